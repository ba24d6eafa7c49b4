//! The tool that loads a skill, and the rule of what runs while one is active.

use std::path::{Component, Path, PathBuf};

use ignore::WalkBuilder;
use serde::Deserialize;
use serde_json::json;

use super::call::{Call, Trouble};
use super::profile::{self, Engine, Face};
use super::{ErrorKind, Outcome, Profile};
use crate::gate::{Access, verbs};
use crate::skills::allowed::Entry;
use crate::skills::parse::MOST;
use crate::skills::{Home, Shelf, Skill, embedded, extract, find};

#[derive(Deserialize)]
struct Args {
    name: String,
    file: Option<String>,
}

/// Files that are listed at most.
const LISTED: usize = 100;

/// What other agents call tools that ours do.
const OTHERS: &[(&str, Engine)] = &[
    ("Bash", Engine::Run),
    ("Read", Engine::Read),
    ("Write", Engine::Write),
    ("Edit", Engine::Replace),
    ("MultiEdit", Engine::Replace),
    ("Grep", Engine::Grep),
    ("Glob", Engine::Glob),
    ("TodoRead", Engine::TodoRead),
    ("TodoWrite", Engine::TodoWrite),
    ("WebFetch", Engine::Fetch),
    ("WebSearch", Engine::WebSearch),
];

/// Loads a skill, or one file that lies beside it.
pub fn run(call: &Call<'_>) -> Result<Outcome, Trouble> {
    let Args { name, file } = call.decode()?;
    let shelf = &call.at.skills;
    let Some(skill) = shelf.find(name.trim()) else {
        let known: Vec<&str> = shelf.skills().iter().map(|skill| skill.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let text = format!("no such skill: `{}`; available: {known}", name.trim());
        return Err(Trouble::new(ErrorKind::NotFound, text));
    };
    if let Some(file) = file.filter(|file| !file.trim().is_empty()) {
        let text = beside(skill, file.trim())
            .map_err(|why| Trouble::failed(format!("cannot read {file} of {name}: {why}")))?;
        return Ok(Outcome::done(text));
    }
    let text = loaded(skill, &call.at.cwd)?;
    shelf.activate(&skill.name);
    let metadata = json!({ "name": skill.name, "location": skill.location() });
    Ok(Outcome::done(text).titled(format!("loaded the skill {}", skill.name)).with(metadata))
}

/// The instructions, and above them where the skill is and what it brings.
fn loaded(skill: &Skill, cwd: &Path) -> Result<String, Trouble> {
    let mut head = format!("Skill: {}\n", skill.name);
    match &skill.home {
        Home::Embedded => {
            let bundle = embedded::bundle(&skill.name);
            let made = bundle.map_or(Ok(Vec::new()), |bundle| extract::scripts(bundle, cwd));
            let made =
                made.map_err(|why| Trouble::io("cannot put the skill's programs there", &why))?;
            head.push_str("Base directory: none, it is part of g3\n");
            let shown =
                |path: &PathBuf| path.strip_prefix(cwd).unwrap_or(path).display().to_string();
            let made: Vec<String> = made.iter().map(shown).collect();
            if !made.is_empty() {
                head.push_str(&format!("Programs: {}\n", made.join(", ")));
            }
        }
        Home::Directory { dir, file, .. } => {
            head.push_str(&format!("Base directory: {}\n", dir.display()));
            let files = files(dir, file);
            if !files.is_empty() {
                let list: String = files.iter().map(|file| format!("- {file}\n")).collect();
                head.push_str(&format!(
                    "Files (read one with this tool: name and file; paths in the text start at \
                     the base directory):\n{list}"
                ));
            }
        }
    }
    if let Some(allowed) = &skill.allowed {
        let names: Vec<&str> = allowed.iter().map(|entry| entry.text.as_str()).collect();
        head.push_str(&format!(
            "Until the user's next message only these tools run, and skill: {}\n",
            names.join(", ")
        ));
    }
    Ok(format!("{head}\n{}", skill.body))
}

/// The files of a skill besides its `SKILL.md`, links not followed.
fn files(dir: &Path, main: &Path) -> Vec<String> {
    let walk = WalkBuilder::new(dir)
        .standard_filters(false)
        .max_depth(Some(6))
        .sort_by_file_path(Ord::cmp)
        .build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let paths = files.map(|entry| entry.into_path()).filter(|path| path != main);
    let mut names: Vec<String> = paths
        .filter_map(|path| Some(path.strip_prefix(dir).ok()?.display().to_string()))
        .take(LISTED + 1)
        .collect();
    if names.len() > LISTED {
        names.truncate(LISTED);
        names.push("(more)".to_owned());
    }
    names
}

/// A file beside a `SKILL.md`.
fn beside(skill: &Skill, file: &str) -> Result<String, String> {
    match &skill.home {
        Home::Embedded => {
            let found = embedded::file(&skill.name, file).map(str::to_owned);
            found.ok_or_else(|| "there is none".to_owned())
        }
        Home::Directory { dir, within, .. } => {
            let inside =
                Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
            if !inside {
                return Err("the path must lie below the base directory".to_owned());
            }
            let text = find::read(&dir.join(file), within.as_deref().or(Some(dir)), MOST + 1)?;
            Ok(base::text::head(&text, MOST).to_owned())
        }
    }
}

/// Why a call may not run while skills are active that name their tools: none of them names it.
/// What a skill allows passes the gate as ever.
pub fn refusal(call: &Call<'_>) -> Option<String> {
    let is_named = |entry: &Entry| speaks_of(entry, call);
    (call.face.engine != Engine::Skill).then(|| refused_by(&call.at.skills, is_named)).flatten()
}

/// As [`refusal`], for a tool that is none of g3's own.
pub fn refusal_of(name: &str, shelf: &Shelf) -> Option<String> {
    refused_by(shelf, |entry| !entry.has_pattern() && is_named(&entry.name, name))
}

fn refused_by(shelf: &Shelf, is_named: impl Fn(&Entry) -> bool) -> Option<String> {
    let active = shelf.restricting();
    let entries: Vec<&Entry> =
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

fn speaks_of(entry: &Entry, call: &Call<'_>) -> bool {
    if !is_called(&entry.name, call.face) {
        return false;
    }
    if !entry.has_pattern() {
        return true;
    }
    let reached = call.reaches();
    let runs = reached.iter().any(|access| matches!(access, Access::Run { .. }));
    let fits = |access: &Access| match access {
        Access::Run { line, .. } => {
            let pieces = verbs::pieces(line);
            let fits =
                |piece: &verbs::Piece| piece.written.is_empty() && entry.fits_command(&piece.words);
            !pieces.is_empty() && pieces.iter().all(fits)
        }
        Access::Read(path) | Access::Write(path) => {
            let root = crate::gate::paths::follow(&call.at.root);
            let below = root.ok().and_then(|root| path.strip_prefix(root).ok());
            let below = below.is_some_and(|below| entry.fits_path(&below.to_string_lossy()));
            below || entry.fits_path(&path.to_string_lossy())
        }
        // The hosts of a command are part of its line, which is judged above.
        Access::Fetch { host, .. } => runs || entry.fits_host(host),
        Access::Foreign { .. } | Access::Act(_) | Access::Screen { .. } => false,
    };
    !reached.is_empty() && reached.iter().all(fits)
}

/// Whether a name means a tool: its own, that of any profile or other agent for the same kind of
/// work, or a glob over names.
fn is_called(name: &str, face: &Face) -> bool {
    if name == face.name || name.contains('*') {
        return is_named(name, &face.name);
    }
    let others = OTHERS.iter().filter(|(known, _)| *known == name).map(|(_, engine)| *engine);
    let ours = Profile::EACH.into_iter().flat_map(profile::faces);
    let ours = ours.filter(|known| known.name == name).map(|known| known.engine);
    others.chain(ours).any(|engine| engine.kind() == face.engine.kind())
}

/// Whether a name, or a glob over names, means this tool.
fn is_named(name: &str, tool: &str) -> bool {
    let glob = || globset::Glob::new(name).map(|glob| glob.compile_matcher());
    name == tool || name.contains('*') && glob().is_ok_and(|glob| glob.is_match(tool))
}

#[cfg(test)]
mod tests;
