//! Restricts the calls that run while a skill with `allowed-tools` is active.

use super::call::Invocation;
use super::kind::ToolKind;
use super::profile::{self, Profile, ProfileTool};
use gate::{Access, shell_parse};
use skills::SkillSet;
use skills::allowed::AllowedTool;

/// Names that other agents use for our tools.
const FOREIGN_NAMES: &[(&str, ToolKind)] = &[
    ("Bash", ToolKind::RUN),
    ("Read", ToolKind::READ),
    ("Write", ToolKind::WRITE),
    ("Edit", ToolKind::REPLACE),
    ("MultiEdit", ToolKind::REPLACE),
    ("Grep", ToolKind::GREP),
    ("Glob", ToolKind::GLOB),
    ("TodoRead", ToolKind::TODO_READ),
    ("TodoWrite", ToolKind::TODO_WRITE),
    ("WebFetch", ToolKind::FETCH),
    ("WebSearch", ToolKind::WEB_SEARCH),
];

/// Returns why a call may not run while skills with allowed tools are active and none of them
/// allows it. Calls that a skill allows still pass through the gate.
pub(crate) fn refusal(call: &Invocation<'_>) -> Option<String> {
    let is_named = |entry: &AllowedTool| matches_call(entry, call);
    (call.profile_tool.kind != ToolKind::SKILL)
        .then(|| refused_by(&call.context.skills, is_named))
        .flatten()
}

/// Like [`refusal`], for an external tool.
pub fn external_refusal(name: &str, skills: &SkillSet) -> Option<String> {
    refused_by(skills, |entry| !entry.has_pattern() && is_named(&entry.name, name))
}

fn refused_by(skills: &SkillSet, is_named: impl Fn(&AllowedTool) -> bool) -> Option<String> {
    let active = skills.restricting_skills();
    let entries: Vec<&AllowedTool> =
        active.iter().flat_map(|skill| skill.allowed.iter().flatten()).collect();
    if active.is_empty() || entries.iter().any(|entry| is_named(entry)) {
        return None;
    }
    let names: Vec<&str> = active.iter().map(|skill| skill.name.as_str()).collect();
    let texts: Vec<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
    let texts = if texts.is_empty() { "none".to_owned() } else { texts.join(", ") };
    Some(format!(
        "refused: while the skill {} is active, only these tools run: {texts}. Continue with them, or \
         end your turn: the user's next message ends this",
        names.join(", "),
    ))
}

fn matches_call(entry: &AllowedTool, call: &Invocation<'_>) -> bool {
    if !refers_to(&entry.name, call.profile_tool) {
        return false;
    }
    if !entry.has_pattern() {
        return true;
    }
    let accesses = &call.scope().access;
    let runs = accesses.iter().any(|access| matches!(access, Access::Run { .. }));
    let is_allowed = |access: &Access| match access {
        Access::Run { line, .. } => {
            let commands = shell_parse::parse(line);
            let is_allowed = |command: &shell_parse::SimpleCommand| {
                command.redirect_targets.is_empty() && entry.matches_command(&command.words)
            };
            !commands.is_empty() && commands.iter().all(is_allowed)
        }
        Access::Read(path) | Access::Write(path) => {
            let root = gate::paths::follow(&call.context.root);
            let relative = root.ok().and_then(|root| path.strip_prefix(root).ok());
            let is_match =
                relative.is_some_and(|relative| entry.matches_path(&relative.to_string_lossy()));
            is_match || entry.matches_path(&path.to_string_lossy())
        }
        // The hosts of a command are part of its command line, which is checked above.
        Access::Fetch { host, .. } => runs || entry.matches_host(host),
        Access::Foreign { .. } | Access::Act(_) | Access::Screen { .. } => false,
    };
    !accesses.is_empty() && accesses.iter().all(is_allowed)
}

/// Whether a name refers to a tool: its own name, that of any profile or other agent for the same
/// kind, or a glob over names.
fn refers_to(name: &str, tool: &ProfileTool) -> bool {
    if name == tool.name || name.contains('*') {
        return is_named(name, &tool.name);
    }
    let foreign = FOREIGN_NAMES.iter().filter(|(known, _)| *known == name).map(|(_, kind)| *kind);
    let kinds = Profile::EACH.into_iter().flat_map(profile::tools);
    let kinds = kinds.filter(|known| known.name == name).map(|known| known.kind);
    foreign.chain(kinds).any(|kind| kind.family() == tool.kind.family())
}

/// Whether a name or a glob over names matches this tool.
fn is_named(name: &str, tool: &str) -> bool {
    let glob = || globset::Glob::new(name).map(|glob| glob.compile_matcher());
    name == tool || name.contains('*') && glob().is_ok_and(|glob| glob.is_match(tool))
}
