//! The fixtures of the git tests: a repository with one session.

use base::failure::Result;
use base::id::Id;
use studio_git::import::{self, ImportedWork};
use studio_git::land::{self, LandResult};
use studio_git::merge::{self, CommitMessage, MergeStrategy, PreparedMerge};
use studio_git::names::{BranchName, BranchTemplate, WorktreeTemplate};
use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::snapshot::{self, Snapshot, SnapshotLimits};
use studio_git::worktree::{self, NewWorktree, WorktreeSpec};
use testkit::env::{NOW, TestEnv};
use testkit::repo::Repo;

/// A test repository, as seen by its user and by studio.
pub struct Setting {
    /// The environment; removed on drop.
    pub env: TestEnv,
    /// The user's view.
    pub repo: Repo,
    /// Studio's view.
    pub repository: Repository,
}

/// Creates a repository with one commit in a directory whose name contains a space and a non-ASCII
/// letter.
pub fn setting() -> Setting {
    let env = TestEnv::new();
    let repo = env.repo_at("my repö");
    let repository = discover(&repo);
    Setting { env, repo, repository }
}

/// Discovers a repository as studio does.
pub fn discover(repo: &Repo) -> Repository {
    Repository::discover(repo.path()).unwrap_or_else(|failure| panic!("{failure}"))
}

impl Setting {
    /// Returns the specification of a session from HEAD.
    pub fn order(&self, id: &str) -> WorktreeSpec {
        order(&self.repository, id)
    }

    /// Creates a session from HEAD.
    pub fn session(&self, id: &str) -> Session {
        self.session_of(&self.order(id))
    }

    /// Creates a session from this specification.
    pub fn session_of(&self, order: &WorktreeSpec) -> Session {
        let NewWorktree { session_repo: place, .. } =
            worktree::create(&self.repository, order).unwrap_or_else(|failure| panic!("{failure}"));
        Session { work: Repo::at(&place.worktree), place }
    }
}

/// Returns the specification of a session from HEAD.
pub fn order(repository: &Repository, id: &str) -> WorktreeSpec {
    WorktreeSpec {
        id: Id::parse(id).expect("the test gives an id"),
        base: repository.base(None).unwrap_or_else(|failure| panic!("{failure}")),
        branch: BranchTemplate::default(),
        worktree: WorktreeTemplate::default(),
    }
}

/// Returns the time at which the tests land and discard.
pub fn now() -> jiff::Timestamp {
    NOW.parse().expect("a time")
}

impl Setting {
    /// Imports the agent's commits.
    #[track_caller]
    pub fn home(&self, session: &Session) -> ImportedWork {
        import::import(&self.repository, &session.place)
            .unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Takes a snapshot of the worktree.
    #[track_caller]
    pub fn snapshot(&self, session: &Session) -> Snapshot {
        let home = self.home(session);
        snapshot::take(&self.repository, &session.place, &home, &SnapshotLimits::default(), now())
            .unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Merges the session's work with `main`.
    #[track_caller]
    pub fn prepared(&self, session: &Session, strategy: MergeStrategy) -> PreparedMerge {
        let snapshot = self.snapshot(session);
        let main = BranchName::parse("main").expect("a name");
        merge::prepare(&self.repository, &session.place, &snapshot, &main, strategy, now())
            .unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Merges the session's work with `main` without conflicts, and creates the commit to land.
    #[track_caller]
    pub fn ready(&self, session: &Session, strategy: MergeStrategy) -> land::LandRequest {
        let PreparedMerge::Ready(candidate) = self.prepared(session, strategy) else {
            panic!("the work does not fit");
        };
        let message = CommitMessage { text: "Land it".to_owned(), trailers: trailers() };
        let place = session.place.clone();
        let receipt = Some("{\"checks\":[]}".to_owned());
        let (repository, noted) = (&self.repository, receipt.as_deref());
        let committed = merge::commit(repository, &place, &candidate, &message, noted, None, now())
            .unwrap_or_else(|failure| panic!("{failure}"));
        land::LandRequest {
            session_repo: place,
            candidate: *candidate,
            landing_commit: committed,
            receipt,
            time: NOW.to_owned(),
            dropped: Vec::new(),
            base_update: None,
        }
    }

    /// Lands a session's work on `main` as one commit.
    pub fn accept(&self, session: &Session) -> Result<LandResult> {
        land::accept(&self.repository, &self.ready(session, MergeStrategy::Squash))
    }
}

fn trailers() -> Vec<(String, String)> {
    vec![("Session".to_owned(), "task-abcd\nEvil: x".to_owned())]
}

/// A session: its worktree for the agent, and its paths.
pub struct Session {
    /// The agent's view.
    pub work: Repo,
    /// Studio's record.
    pub place: SessionRepo,
}
