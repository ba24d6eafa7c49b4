//! Receipts of landed work, as notes in `refs/notes/studio`.

use std::collections::BTreeMap;

use base::failure::{OrFail, Result};
use base::id::Id;

use crate::object_format;
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
            repo.reference(NOTES, object_format::parse_id(before)?, true, "")?;
        }
        let commit = repo.find_commit(object_format::parse_id(commit)?)?;
        let time = jiff::Timestamp::from_second(commit.time().seconds()).unwrap_or_default();
        let signature = crate::repo::signature(repo, time)?;
        repo.note(&signature, &signature, Some(NOTES), commit.id(), text, true)
    };
    write_note().or_fail(cannot)?;
    Ok(RefChange::new(NOTES, before, refs::read(repo, NOTES)?))
}

/// Returns the note of a commit.
pub fn read(repository: &Repository, commit: &str) -> Result<Option<String>> {
    let repo = repository.open()?;
    let Some(tree) = tree(&repo)? else { return Ok(None) };
    let find = || -> std::result::Result<Option<String>, git2::Error> {
        let (mut tree, mut name) = (tree, commit);
        loop {
            if let Some(entry) = tree.get_name(name) {
                let note = repo.find_blob(entry.id())?;
                return Ok(Some(String::from_utf8_lossy(note.content()).into_owned()));
            }
            // git divides many notes among directories: `ab/cd/ef…`.
            let Some((directory, rest)) = name.split_at_checked(2) else { return Ok(None) };
            let Some(id) = tree.get_name(directory).map(|entry| entry.id()) else {
                return Ok(None);
            };
            (tree, name) = (repo.find_tree(id)?, rest);
        }
    };
    find().or_fail(cannot_read)
}

/// Returns the blobs of all notes by their commits.
pub(crate) fn all(repo: &git2::Repository) -> Result<BTreeMap<git2::Oid, git2::Oid>> {
    let mut notes = BTreeMap::new();
    let Some(tree) = tree(repo)? else { return Ok(notes) };
    let walked = tree.walk(git2::TreeWalkMode::PreOrder, |directory, entry| {
        let name = entry.name().unwrap_or_default();
        let digits = format!("{directory}{name}").replace('/', "");
        let commit = object_format::parse_id(&digits).ok().filter(|id| id.to_string() == digits);
        if let (Some(commit), Some(git2::ObjectType::Blob)) = (commit, entry.kind()) {
            notes.insert(commit, entry.id());
        }
        git2::TreeWalkResult::Ok
    });
    walked.or_fail(cannot_read)?;
    Ok(notes)
}

/// Returns the tree of the notes; `None` if there are none.
fn tree(repo: &git2::Repository) -> Result<Option<git2::Tree<'_>>> {
    let Some(notes) = refs::read(repo, NOTES)? else { return Ok(None) };
    let tree = repo.find_commit(refs::oid(&notes)?).and_then(|notes| notes.tree());
    tree.map(Some).or_fail(cannot_read)
}

fn cannot_read() -> &'static str {
    "cannot read the receipts"
}

fn cannot() -> &'static str {
    "cannot write the receipt"
}

#[cfg(test)]
mod tests {
    use super::*;

    use base::process::{Command, OutputLimits};

    #[test]
    fn notes_are_read_however_git_divides_them() {
        let directory = tempfile::tempdir().unwrap();
        let git = |args: &[&str], input: &str| {
            let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
            let job = Command::new("git", directory.path()).args(identity).args(args).input(input);
            let output = job.output(OutputLimits::seconds(60)).unwrap();
            assert!(output.ok(), "git {args:?}: {}", output.error_text());
            output.text()
        };
        git(&["init", "-q", "-b", "main"], "");
        let import: String = (0..600)
            .map(|n| format!("commit refs/heads/main\ncommitter A <a@b> {n} +0000\ndata 0\n\n"))
            .collect();
        git(&["fast-import", "--quiet"], &import);
        let ids: Vec<String> = git(&["rev-list", "main"], "").lines().map(str::to_owned).collect();
        let repository = Repository::discover(directory.path()).unwrap();
        let noted = || all(&repository.open().unwrap()).unwrap().len();
        assert_eq!((noted(), read(&repository, &ids[0]).unwrap()), (0, None));
        git(&["notes", "--ref=studio", "add", "-m", "the note", &ids[0]], "");
        assert_eq!(noted(), 1);
        let (first, others) = ids.split_first().unwrap();
        let copies: String = others[1..].iter().map(|id| format!("{first} {id}\n")).collect();
        git(&["notes", "--ref=studio", "copy", "--stdin"], &copies);
        let tree = git(&["ls-tree", "--name-only", NOTES], "");
        assert!(tree.lines().all(|name| name.len() == 2), "{tree}");
        assert_eq!(noted(), 599);
        assert_eq!(read(&repository, &ids[599]).unwrap().as_deref(), Some("the note\n"));
        assert_eq!(read(&repository, &ids[1]).unwrap(), None);
    }
}
