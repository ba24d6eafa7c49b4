//! Pushes a session's work to a branch of a remote.

use base::failure::{Failure, OrFail, Result};

use crate::object_quarantine::{self, KeepFiles, Quarantine};
use crate::refs;
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::signing::{self, CommitSigner, NewCommit};
use crate::snapshot::Snapshot;

/// The commit to push.
#[derive(Debug)]
pub struct PushCommit {
    /// Its id.
    pub id: String,
    /// Protects its objects from `git gc` while this value exists.
    pub keep_files: Option<KeepFiles>,
}

/// The URLs of a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrls {
    /// Where it is fetched from.
    pub fetch: String,
    /// Where it is pushed to.
    pub push: String,
}

/// Returns the URLs of a configured remote. Fails with exit code 5 if it has no URL.
pub fn remote_urls(repository: &Repository, remote: &str) -> Result<RemoteUrls> {
    if repository.open()?.find_remote(remote).is_err() {
        let name = base::text::printable(remote);
        return Err(Failure::not_found(format!("no such remote: `{name}`"))
            .hint("git remote -v")
            .hint("studio pr ID --remote NAME"));
    }
    let urls = repository.git().remote_urls(remote);
    let (fetch, push) = urls.or_fail(|| "cannot read the URL of the remote")?;
    Ok(RemoteUrls { fetch, push })
}

/// Returns the commit with all of the session's work: its last one, or with uncommitted changes a
/// commit on top of it. `previous` is the one of the last push, which is used again if it has the
/// same content.
pub fn commit(
    repository: &Repository,
    session_repo: &SessionRepo,
    snapshot: &Snapshot,
    message: &str,
    previous: Option<&str>,
    signer: Option<&CommitSigner>,
    now: jiff::Timestamp,
) -> Result<PushCommit> {
    let cannot = || "cannot make the commit to push";
    if !snapshot.is_dirty() {
        return Ok(PushCommit { id: snapshot.head.clone(), keep_files: None });
    }
    let scratch = Quarantine::open(repository)?;
    let repo = &scratch.repo;
    let find = |id: &str| repo.find_commit(refs::oid(id)?).or_fail(cannot);
    let (head, work) = (find(&snapshot.head)?, find(&snapshot.work)?);
    if let Some(id) = previous
        && let Ok(commit) = find(id)
        && commit.tree_id() == work.tree_id()
        && commit.parent_ids().eq([head.id()])
    {
        return Ok(PushCommit { id: id.to_owned(), keep_files: None });
    }
    let author = crate::repo::signature(repo, now).or_fail(cannot)?;
    let new = NewCommit {
        committer: author.clone(),
        author,
        message,
        tree: work.tree().or_fail(cannot)?,
        parents: vec![&head],
    };
    let id = signing::create_commit(repo, &new, signer)?.to_string();
    let keep_files = object_quarantine::import_objects(
        repository,
        &[scratch.objects()],
        std::slice::from_ref(&id),
        &[snapshot.head.clone(), snapshot.work.clone()],
        &session_repo.id,
    )?;
    Ok(PushCommit { id, keep_files: Some(keep_files) })
}

/// Pushes a commit to a branch, a full ref. The branch must not exist there, or be at one of the
/// `own` commits, which studio pushed before; otherwise it is refused (3). Returns `false` if the
/// branch has the commit already.
pub fn push(
    repository: &Repository,
    url: &str,
    commit: &str,
    branch: &str,
    own: &[&str],
) -> Result<bool> {
    let git = repository.git();
    let tip = git.remote_tip(url, branch).map_err(|error| failure(url, &error.to_string()))?;
    match &tip {
        Some(tip) if tip == commit => return Ok(false),
        Some(tip) if !own.contains(&tip.as_str()) => {
            let name = branch.trim_start_matches("refs/heads/");
            return Err(Failure::refused(format!("the remote branch `{name}` has other commits"))
                .because(format!(
                    "it is at {}, which studio did not push",
                    base::text::head(tip, 12)
                ))
                .hint(format!(
                    "git fetch && git log FETCH_HEAD    or: git push REMOTE --delete {name}"
                )));
        }
        Some(_) | None => {}
    }
    git.push(url, commit, branch, tip.as_deref())
        .map_err(|error| failure(url, &error.to_string()))?;
    Ok(true)
}

/// Returns the URL of a remote without user and password.
pub fn without_login(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or(authority);
            format!("{scheme}://{host}/{path}")
        }
        None => url.to_owned(),
    }
}

/// Returns the failure of a connection, without the login that the URL may contain.
fn failure(url: &str, error: &str) -> Failure {
    let public = without_login(url);
    let reason = base::text::printable_output(&error.replace(url, &public));
    Failure::failed(format!("cannot push to {}", base::text::printable(&public)))
        .because(reason)
        .hint("git push --dry-run    shows whether your own git can connect")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_a_push_shows_no_login() {
        let url = "https://me:secret@example.org/a/b.git";
        let text = failure(url, &format!("cannot open {url}")).full_text();
        assert!(text.contains("cannot open https://example.org/a/b.git"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
