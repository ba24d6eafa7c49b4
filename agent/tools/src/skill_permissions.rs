//! Restricts the calls that run while a skill with `allowed-tools` is active.

use super::call::Invocation;
use super::kind::ToolKind;
use super::profile::{self, Profile, ProfileTool};
use gate::{Access, shell_parse};
use skills::SkillSet;
use skills::allowed::AllowedTool;

/// Names that other agents use for our tools.
const OTHERS: &[(&str, ToolKind)] = &[
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
    let is_named = |entry: &AllowedTool| speaks_of(entry, call);
    (call.face.engine != ToolKind::SKILL).then(|| refused_by(&call.at.skills, is_named)).flatten()
}

/// Like [`refusal`], for an external tool.
pub fn refusal_of(name: &str, shelf: &SkillSet) -> Option<String> {
    refused_by(shelf, |entry| !entry.has_pattern() && is_named(&entry.name, name))
}

fn refused_by(shelf: &SkillSet, is_named: impl Fn(&AllowedTool) -> bool) -> Option<String> {
    let active = shelf.restricting();
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

fn speaks_of(entry: &AllowedTool, call: &Invocation<'_>) -> bool {
    if !is_called(&entry.name, call.face) {
        return false;
    }
    if !entry.has_pattern() {
        return true;
    }
    let reached = &call.scope().access;
    let runs = reached.iter().any(|access| matches!(access, Access::Run { .. }));
    let fits = |access: &Access| match access {
        Access::Run { line, .. } => {
            let pieces = shell_parse::parse(line);
            let fits = |piece: &shell_parse::SimpleCommand| {
                piece.written.is_empty() && entry.fits_command(&piece.words)
            };
            !pieces.is_empty() && pieces.iter().all(fits)
        }
        Access::Read(path) | Access::Write(path) => {
            let root = gate::paths::follow(&call.at.root);
            let below = root.ok().and_then(|root| path.strip_prefix(root).ok());
            let below = below.is_some_and(|below| entry.fits_path(&below.to_string_lossy()));
            below || entry.fits_path(&path.to_string_lossy())
        }
        // The hosts of a command are part of its command line, which is checked above.
        Access::Fetch { host, .. } => runs || entry.fits_host(host),
        Access::Foreign { .. } | Access::Act(_) | Access::Screen { .. } => false,
    };
    !reached.is_empty() && reached.iter().all(fits)
}

/// Whether a name refers to a tool: its own name, that of any profile or other agent for the same
/// kind, or a glob over names.
fn is_called(name: &str, face: &ProfileTool) -> bool {
    if name == face.name || name.contains('*') {
        return is_named(name, &face.name);
    }
    let others = OTHERS.iter().filter(|(known, _)| *known == name).map(|(_, engine)| *engine);
    let ours = Profile::EACH.into_iter().flat_map(profile::faces);
    let ours = ours.filter(|known| known.name == name).map(|known| known.engine);
    others.chain(ours).any(|engine| engine.family() == face.engine.family())
}

/// Whether a name or a glob over names matches this tool.
fn is_named(name: &str, tool: &str) -> bool {
    let glob = || globset::Glob::new(name).map(|glob| glob.compile_matcher());
    name == tool || name.contains('*') && glob().is_ok_and(|glob| glob.is_match(tool))
}
