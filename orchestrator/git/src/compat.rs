//! Features of git that landings do not apply, such as hooks, with notes that say so.

use base::config::studio::StudioConfig;
use git2::{AttrCheckFlags, AttrValue};

use crate::checkout::{self, FileChange};
use crate::repo::Repository;

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

/// Describes the landed paths that the user's git would have filtered (LFS, encryption), in one
/// sentence. Filters do not run, because agents write both files and attributes.
pub fn unfiltered_note(repository: &Repository, before: &str, after: &str) -> Option<String> {
    let repo = repository.open().ok()?;
    if !has_filter(&repo) {
        return None;
    }
    let is_filtered = |change: &FileChange| {
        let attribute = repo.get_attr(&change.path, "filter", AttrCheckFlags::FILE_THEN_INDEX);
        matches!(attribute.map(AttrValue::from_string), Ok(AttrValue::String(_)))
    };
    let mut changes = checkout::changes(&repo, before, after).ok()?;
    changes.retain(|change| change.after.is_some() && is_filtered(change));
    let names: Vec<_> = changes.iter().map(|change| change.path.to_string_lossy()).collect();
    let filtered: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let names = match filtered.as_slice() {
        [] => return None,
        paths => paths.iter().take(5).copied().collect::<Vec<_>>().join(" "),
    };
    let suffix = if filtered.len() > 5 { ", and more" } else { "" };
    Some(format!(
        "git filters were not run: {names}{suffix} landed as the agent wrote it; to filter it: git add \
         --renormalize {names}"
    ))
}

/// Returns whether the user's git has any filter: one that only attributes name has no effect.
fn has_filter(repo: &git2::Repository) -> bool {
    let config = repo.config().and_then(|mut config| config.snapshot());
    let Ok(config) = config else { return true };
    let entries = config.entries(Some(r"^filter\."));
    entries.map_or(true, |mut entries| entries.next().is_some())
}

/// Returns the features of this repository that a landing did not apply, one sentence each.
pub fn skipped_features(repository: &Repository, settings: &StudioConfig) -> Vec<String> {
    let mut notes = Vec::new();
    let hooks = repository.common_dir.join("hooks");
    let has_hook = HOOK_NAMES.iter().any(|hook| hooks.join(hook).exists());
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
