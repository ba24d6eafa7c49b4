//! Features of git that landings do not apply, such as hooks, with notes that say so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::config::studio::StudioConfig;
use git2::{AttrCheckFlags, AttrValue};

use crate::checkout::{self, FileChange, FileEntry};
use crate::filters;
use crate::repo::Repository;

/// Maximum number of unfiltered files that are named.
const MAX_UNFILTERED: usize = 5;

/// The hooks that a manual commit or merge would run.
const HOOK_NAMES: &[&str] = &[
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-merge-commit",
    "post-merge",
    "post-checkout",
];

/// Maximum size of a hook of Git LFS, in bytes.
const MAX_LFS_HOOK_BYTES: u64 = 4096;

/// Describes the landed paths that the user's git would have filtered (LFS, encryption) and that are
/// not, in one sentence, with the lines that make studio run the filter. Only those of the user's
/// configuration run, because agents write both files and attributes.
pub fn unfiltered_note(repository: &Repository, before: &str, after: &str) -> Option<String> {
    let repo = repository.open().ok()?;
    if !has_filter(&repo) {
        return None;
    }
    let _keep_alive = filters::keep_alive();
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut filters = BTreeSet::new();
    for change in checkout::changes(&repo, before, after).ok()? {
        let Some(entry) = change.after else { continue };
        let Some(filter) = filter_attribute(&repo, &change.path) else { continue };
        let is_trusted = filters::applies(&repo, &change.path);
        if is_trusted && is_filtered(&repo, &change, entry) {
            continue;
        }
        if !is_trusted {
            filters.insert(filter);
        }
        paths.push(change.path);
        if paths.len() > MAX_UNFILTERED {
            break;
        }
    }
    if paths.is_empty() {
        return None;
    }
    let names: Vec<_> = paths.iter().take(MAX_UNFILTERED).map(|it| it.to_string_lossy()).collect();
    let names = names.join(" ");
    let suffix = if paths.len() > MAX_UNFILTERED { ", and more" } else { "" };
    let note = format!(
        "git filters were not run: {names}{suffix} landed as the agent wrote it; to filter it: git add \
         --renormalize {names}"
    );
    let lines: Vec<String> =
        filters.iter().filter_map(|name| filters::setting_for(repository, name)).collect();
    Some(match lines.is_empty() {
        true => note,
        false => {
            format!(
                "{note}; to let studio run it, in ~/.config/g3/config.toml:\n{}",
                lines.join("\n")
            )
        }
    })
}

/// Returns the name of the filter that the attributes name for a path.
fn filter_attribute(repo: &git2::Repository, path: &Path) -> Option<String> {
    let attribute = repo.get_attr(path, "filter", AttrCheckFlags::FILE_THEN_INDEX).ok()?;
    match AttrValue::from_string(attribute) {
        AttrValue::String(name) => Some(name.to_owned()),
        AttrValue::True | AttrValue::False | AttrValue::Bytes(_) | AttrValue::Unspecified => None,
    }
}

/// Returns whether a landed blob is what the user's filter makes of its file.
fn is_filtered(repo: &git2::Repository, change: &FileChange, entry: FileEntry) -> bool {
    match repo.find_blob(entry.id) {
        Ok(blob) => filters::is_filtered(repo, &change.path, blob.content()),
        // A submodule.
        Err(_) => true,
    }
}

/// Returns whether the user's git has any filter: one that only attributes name has no effect.
fn has_filter(repo: &git2::Repository) -> bool {
    if filters::are_trusted() {
        return true;
    }
    let config = repo.config().and_then(|mut config| config.snapshot());
    let Ok(config) = config else { return true };
    let entries = config.entries(Some(r"^filter\."));
    entries.map_or(true, |mut entries| entries.next().is_some())
}

/// Whether a hook does no more than call Git LFS, as `git lfs install` writes it. Those hooks concern
/// locked files and pushes, and have nothing to do at a landing.
fn calls_only_lfs(hooks: &Path, name: &str) -> bool {
    let content = base::files::read_bounded(&hooks.join(name), MAX_LFS_HOOK_BYTES);
    let Ok(content) = content else { return false };
    let (search, call) = ("command -v git-lfs >/dev/null", format!("git lfs {name} \"$@\""));
    String::from_utf8_lossy(&content).lines().map(str::trim).all(|line| {
        line.is_empty() || line.starts_with('#') || line.starts_with(search) || line == call
    })
}

/// Returns the features of this repository that a landing did not apply, one sentence each.
pub fn skipped_features(repository: &Repository, settings: &StudioConfig) -> Vec<String> {
    let mut notes = Vec::new();
    let hooks = repository.common_dir.join("hooks");
    let is_skipped = |name: &str| hooks.join(name).exists() && !calls_only_lfs(&hooks, name);
    let has_hook = HOOK_NAMES.iter().any(|name| is_skipped(name));
    let Ok(repo) = repository.open() else { return notes };
    let config = repo.config().and_then(|mut config| config.snapshot());
    let has_hooks_path =
        config.as_ref().is_ok_and(|config| config.get_str("core.hooksPath").is_ok());
    if !settings.hooks && (has_hook || has_hooks_path) {
        let note = "the repository's hooks were not run; use checks instead, or `[studio] hooks`";
        notes.push(note.to_owned());
    }
    let wants_signatures =
        || config.is_ok_and(|config| config.get_bool("commit.gpgSign").unwrap_or(false));
    if !settings.sign && wants_signatures() {
        let note = "the commit is not signed, although commit.gpgSign is set; `[studio] sign = true` \
                    signs landings";
        notes.push(note.to_owned());
    }
    notes
}
