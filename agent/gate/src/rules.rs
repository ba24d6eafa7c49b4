//! The user's rules: which calls they match, and the rule that would answer a question.

use std::path::{Path, PathBuf};

use base::config::agent::{GateAction, GateRule};
use globset::{GlobBuilder, GlobMatcher};

use super::{Access, AccessRequest, PermissionQuestion, paths, shell, shell_parse, write_targets};

/// A compiled rule.
pub(crate) struct CompiledRule {
    tool: Option<GlobMatcher>,
    command: Option<GlobMatcher>,
    path: Option<GlobMatcher>,
    /// Rules about hosts never match a call that accesses no host.
    host: Option<GlobMatcher>,
    /// The action.
    pub action: GateAction,
}

/// Creates the question about a call, with the rule that would answer it.
pub(crate) fn build_question(request: &AccessRequest<'_>, reason: String) -> PermissionQuestion {
    let tool = request.tool.to_owned();
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let path = |path: &Path| Some(("path", escape(&path.to_string_lossy())));
    let (what, condition) = match request.access {
        Access::Read(file) => (format!("read {}", file.display()), path(file)),
        Access::Write(file) => (format!("write {}", file.display()), path(file)),
        Access::Run { line, .. } => (format!("run `{line}`"), Some(("command", escape(line)))),
        Access::Act(target) => (format!("act on {target}"), None),
        Access::Screen { is_control: true, .. } => ("act on the screen".to_owned(), None),
        Access::Screen { is_control: false, .. } => ("look at the screen".to_owned(), None),
        Access::Foreign { server, .. } => (format!("run on the MCP server `{server}`"), None),
        Access::Fetch { host, .. } => {
            (format!("ask {host} over the network"), Some(("host", escape(host))))
        }
    };
    let condition = condition.map(|(key, value)| format!("{key} = {}\n", quoted(&value)));
    let rule = format!(
        "[[gate.rules]]\ntool = {}\n{}action = \"allow\"",
        quoted(request.tool),
        condition.unwrap_or_default()
    );
    let writes = match request.access {
        Access::Write(file) => Some(file.clone()),
        Access::Read(_)
        | Access::Run { .. }
        | Access::Foreign { .. }
        | Access::Act(_)
        | Access::Fetch { .. }
        | Access::Screen { .. } => None,
    };
    let host = match request.access {
        Access::Fetch { host, .. } => Some(host.clone()),
        Access::Read(_)
        | Access::Write(_)
        | Access::Run { .. }
        | Access::Foreign { .. }
        | Access::Act(_)
        | Access::Screen { .. } => None,
    };
    let details = request.preview.and_then(|preview| (preview.0)());
    PermissionQuestion { tool, what, reason, rule, host, writes, details }
}

/// Returns the rules that allow access to a directory and everything in it.
pub fn rules_for_tree(dir: &Path) -> [GateRule; 2] {
    let dir = escape(&dir.to_string_lossy());
    let inside = format!("{dir}/**");
    [dir, inside].map(|path| GateRule {
        tool: None,
        command: None,
        path: Some(path),
        host: None,
        action: GateAction::Allow,
    })
}

/// Escapes a text as a glob that matches exactly that text.
fn escape(text: &str) -> String {
    // A backslash is an escape character in a glob, but not in a character class.
    text.split('\\').map(globset::escape).collect::<Vec<_>>().join("[\\]")
}

impl CompiledRule {
    /// Compiles a rule. The error names an invalid pattern.
    pub(crate) fn new(rule: &GateRule) -> base::failure::Result<CompiledRule> {
        let path = rule.path.as_deref().map(paths::expand_home);
        let path = path.as_ref().map(|path| path.to_string_lossy().into_owned());
        Ok(CompiledRule {
            tool: glob(rule.tool.as_deref())?,
            // In a command line `/` has no special meaning.
            command: glob(rule.command.as_deref())?,
            path: glob(path.as_deref())?,
            host: glob(rule.host.as_deref().map(str::to_lowercase).as_deref())?,
            action: rule.action,
        })
    }

    /// Whether the rule matches a call; `default_action` is the action without any rule.
    pub(crate) fn matches(&self, request: &AccessRequest<'_>, default_action: GateAction) -> bool {
        let (path, command) = match request.access {
            Access::Read(path) | Access::Write(path) => (Some(path), None),
            Access::Run { line, cwd, .. } => (Some(cwd), Some((line, cwd))),
            Access::Foreign { .. }
            | Access::Act(_)
            | Access::Screen { .. }
            | Access::Fetch { .. } => (None, None),
        };
        let host = match request.access {
            Access::Fetch { host, .. } => Some(Path::new(host)),
            Access::Read(_)
            | Access::Write(_)
            | Access::Run { .. }
            | Access::Foreign { .. }
            | Access::Act(_)
            | Access::Screen { .. } => None,
        };
        let matches = |glob: &Option<GlobMatcher>, text: Option<&Path>| {
            glob.as_ref().is_none_or(|glob| text.is_some_and(|text| glob.is_match(text)))
        };
        matches(&self.host, host)
            && matches(&self.tool, Some(Path::new(request.tool)))
            && matches(&self.path, path.map(PathBuf::as_path))
            && self.command.as_ref().is_none_or(|glob| {
                let grants = self.action == GateAction::Allow
                    || self.action == GateAction::Box && default_action != GateAction::Allow;
                match command {
                    Some((line, cwd)) if grants => {
                        matches_all_commands(glob, line, cwd, request.root)
                    }
                    Some((line, _)) => matches_any_command(glob, line),
                    None => false,
                }
            })
    }
}

/// Whether a rule that denies, asks or sandboxes matches this line: one of its commands suffices.
fn matches_any_command(glob: &GlobMatcher, line: &str) -> bool {
    let matches = |command: shell_parse::SimpleCommand| {
        let texts = [command.words.join(" "), without_options(&command), command.text];
        texts.iter().any(|text| glob.is_match(text))
    };
    glob.is_match(line) || shell_parse::parse(line).into_iter().any(matches)
}

/// Returns a git command without the options before its subcommand: `git -C . push` becomes `git
/// push`.
fn without_options(command: &shell_parse::SimpleCommand) -> String {
    if command.name() != "git" {
        return String::new();
    }
    let (_, rest) = write_targets::split_git_options(&command.words);
    format!("git {}", rest.join(" "))
}

/// Whether an allowing rule matches this line: it matches the whole line, or every command in it,
/// and no output is redirected to a file outside.
fn matches_all_commands(glob: &GlobMatcher, line: &str, cwd: &Path, root: &Path) -> bool {
    let commands = shell_parse::parse(line);
    let matches = |command: &shell_parse::SimpleCommand| {
        (glob.is_match(&command.text)
            || command.text.is_empty() && !command.redirect_targets.is_empty())
            && shell::redirected_outside(command, cwd, root).is_none()
    };
    glob.glob().glob() == escape(line) || !commands.is_empty() && commands.iter().all(matches)
}

fn glob(pattern: Option<&str>) -> base::failure::Result<Option<GlobMatcher>> {
    let Some(pattern) = pattern else { return Ok(None) };
    let glob = GlobBuilder::new(pattern).literal_separator(false).build().map_err(|error| {
        base::failure::Failure::usage(format!("`{pattern}` in [[gate.rules]] is not a glob"))
            .because(error)
    })?;
    Ok(Some(glob.compile_matcher()))
}
