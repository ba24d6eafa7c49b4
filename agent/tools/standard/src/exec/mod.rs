//! The command tools: one implementation for all profiles, and background processes.

use std::path::Path;

use base::config::agent::GateAction;
use reqwest::Url;

use gate::{Access, AccessRequest, hosts, paths, shell_parse};
use tools::call::Invocation;
use tools::context::ToolContext;
use tools::exec::directory;
use tools::profile::OutputStyle;
use tools::tool::CallScope;
use tools::web::guarded_client;

pub mod auto_answer;
pub mod background;
pub mod background_control;
pub mod git_guard;
pub mod heredoc;
pub mod output_window;
pub mod process;
pub mod render;
pub mod sandbox_denial;
pub mod shell;

/// Returns what a command accesses.
fn accesses(call: &Invocation<'_>) -> Vec<Access> {
    if let Some(patch) = heredoc::patch_request(call) {
        return patch.files().into_iter().map(Access::Write).collect();
    }
    let line = call.text("command");
    let run_access = Access::Run {
        line: line.to_owned(),
        cwd: call.path.clone(),
        confirm_destructive: call.profile_tool.style == OutputStyle::Core,
    };
    let hosts = if is_allowed_by_rule(call, &run_access) { Vec::new() } else { hosts(call, line) };
    std::iter::once(run_access).chain(hosts).collect()
}

/// Returns the accesses and keys of a command line.
pub(crate) fn scope(call: &Invocation<'_>) -> CallScope {
    let keys = named_files(call.text("command"), &call.path);
    CallScope { access: accesses(call), keys, files: Vec::new() }
}

/// Whether a rule of the user allows a command to run.
fn is_allowed_by_rule(call: &Invocation<'_>, run_access: &Access) -> bool {
    let ToolContext { root, session_dir, gate, .. } = call.context;
    let verdict = gate.judge(&AccessRequest {
        tool: &call.profile_tool.name,
        root,
        session_dir,
        access: run_access,
        preview: None,
    });
    verdict.by_rule && verdict.action == GateAction::Allow
}

/// Returns the hosts that a command line fetches from, to which the policy of the web tools
/// applies. Local and private hosts are not included.
fn hosts(call: &Invocation<'_>, line: &str) -> Vec<Access> {
    let allowed = &call.context.services.web.webfetch.allow_hosts;
    let urls = hosts::fetched_urls(line);
    let mut hosts: Vec<Access> = Vec::new();
    for url in urls.iter().filter_map(|text| Url::parse(text).ok()) {
        let access = guarded_client::access(allowed, &url);
        if !hosts.contains(&access) {
            hosts.push(access);
        }
    }
    hosts
}

/// Returns the keys of a foreground command, including the shell itself if the directory is kept.
pub(crate) fn touched_files(call: &Invocation<'_>) -> Vec<String> {
    let patched_files = heredoc::patch_request(call).map(|patch| patch.files()).unwrap_or_default();
    match directory::is_persistent(call.profile_tool) {
        true => vec!["shell".to_owned()],
        false if !patched_files.is_empty() => {
            patched_files.iter().map(|file| file.to_string_lossy().into_owned()).collect()
        }
        false => named_files(call.text("command"), &call.path),
    }
}

/// Returns the files that a command line names, so that it runs in order with calls that write
/// them.
fn named_files(line: &str, cwd: &Path) -> Vec<String> {
    let commands = shell_parse::parse(line);
    let words =
        commands.iter().flat_map(|command| command.words.iter().chain(&command.redirect_targets));
    let mut files: Vec<String> = words
        .filter(|word| word.contains(['.', '/']) && !word.contains(['$', '*']))
        .filter_map(|word| paths::resolve(cwd, word).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    files.sort();
    files.dedup();
    files
}
