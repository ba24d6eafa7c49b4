//! Receipts of landed work, as notes in `refs/notes/studio`.

use base::failure::{OrFail, Result};
use base::id::Id;

use crate::object_quarantine::{self, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;

/// The ref of the notes; `git log --notes=studio` shows them.
pub(crate) const NOTES: &str = "refs/notes/studio";

/// Sets the note of a commit, replacing an earlier one.
pub(crate) fn write(repository: &Repository, commit: &str, text: &str) -> Result<()> {
    if read(repository, commit)?.is_some_and(|existing| existing.trim_end() == text.trim_end()) {
        return Ok(());
    }
    let scratch = Quarantine::open(repository)?;
    let change = create_note(&*repository.open()?, &scratch, commit, text)?;
    let id = Id::parse("receipt").or_fail(cannot)?;
    let existing_commits: Vec<String> = change.before.iter().cloned().collect();
    let commits: Vec<String> = change.after.iter().cloned().collect();
    let keep_files = object_quarantine::import_objects(
        repository,
        &[scratch.objects()],
        &commits,
        &existing_commits,
        &id,
    )?;
    refs::update_or_fail(repository, &[change], "studio: receipt")?;
    keep_files.release();
    Ok(())
}

/// Creates a note in a scratch directory, replacing an earlier one, and returns the change of the
/// notes' ref.
pub(crate) fn create_note(
    source: &git2::Repository,
    scratch: &Quarantine,
    commit: &str,
    text: &str,
) -> Result<RefChange> {
    let before = refs::read(source, NOTES)?;
    let repo = &scratch.repo;
    let write_note = || -> std::result::Result<git2::Oid, git2::Error> {
        if let Some(before) = &before {
            repo.reference(NOTES, git2::Oid::from_str(before)?, true, "")?;
        }
        let commit = repo.find_commit(git2::Oid::from_str(commit)?)?;
        let time = jiff::Timestamp::from_second(commit.time().seconds()).unwrap_or_default();
        let signature = crate::repo::signature(repo, time)?;
        repo.note(&signature, &signature, Some(NOTES), commit.id(), text, true)?;
        repo.refname_to_id(NOTES)
    };
    let after = write_note().or_fail(cannot)?.to_string();
    Ok(RefChange::new(NOTES, before, Some(after)))
}

/// Returns the note of a commit.
pub fn read(repository: &Repository, commit: &str) -> Result<Option<String>> {
    let repo = repository.open()?;
    match repo.find_note(Some(NOTES), refs::oid(commit)?) {
        Ok(note) => Ok(Some(String::from_utf8_lossy(note.message_bytes()).into_owned())),
        Err(e) if e.code() == git2::ErrorCode::NotFound => Ok(None),
        Err(e) => Err(e).or_fail(|| "cannot read the receipt"),
    }
}

fn cannot() -> &'static str {
    "cannot write the receipt"
}
