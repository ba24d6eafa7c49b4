//! What home and a place say to each other, one line of JSON each; `frames` has the rest.

use std::path::{Path, PathBuf};

use base::config::studio::StudioConfig;
use base::failure::{Failure, Result};
use base::id::Id;
use serde::{Deserialize, Serialize};
use studio_git::lfs_objects::LfsFile;
use studio_git::replica::WorkRefs;
use studio_git::repo::Repository;
use studio_git::session_repo;

use crate::place::configured_place::Place;
use crate::place::requests::NumberedRequest;
use crate::session::home_settings::HomeSettings;
use crate::session::record::{RunMode, SessionRecord, Templates};

/// The hidden command.
pub(crate) const COMMAND: &str = "__node";
/// The version of the protocol between home and a place.
pub(crate) const PROTOCOL: u32 = 4;

/// What names a session at a place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlacedSession {
    /// The version of the protocol.
    pub protocol: u32,
    /// The name of the repository at the place.
    pub repository: String,
    /// The session.
    pub id: Id,
    /// The name of the job that runs it, if a cluster does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Whether the host of the cluster has the same spool as the nodes of its jobs.
    #[serde(default)]
    pub shared: bool,
}

/// The delivery of a session. The journal and the pack follow it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The repository and the session.
    #[serde(flatten)]
    pub query: PlacedSession,
    /// The number of this delivery.
    pub attempt: u32,
    /// The session's record, for the place.
    pub record: SessionRecord,
    /// Its work so far.
    pub work: WorkRefs,
    /// What its worktree shares with the repository.
    #[serde(flatten)]
    pub shared: SharedSettings,
    /// The size of the journal.
    pub journal_bytes: u64,
    /// The size of the pack.
    pub pack_bytes: u64,
}

/// What worktrees share with their repository.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharedSettings {
    /// The settings of git.
    pub git_config: String,
    /// `info/exclude` of the repository.
    pub exclude: String,
    /// `info/attributes` of the repository, if it has one.
    pub attributes: Option<String>,
    /// `shallow` of the repository, if it has one.
    pub shallow: Option<String>,
}

/// Checks to run on the files of a commit. The pack follows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckOrder {
    /// The repository, and the id under which its commits are kept.
    #[serde(flatten)]
    pub query: PlacedSession,
    /// What the check worktree shares with the repository.
    #[serde(flatten)]
    pub shared: SharedSettings,
    /// The commit.
    pub commit: String,
    /// The templates of branches and worktrees.
    pub templates: Templates,
    /// The settings of home.
    pub settings: HomeSettings,
    /// The checks.
    pub checks: Vec<String>,
    /// The size of the pack.
    pub pack_bytes: u64,
}

/// Files in Git LFS that sessions or checks need. Their contents follow, unless it is asked which are
/// missing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LfsOrder {
    /// The repository, and any session.
    #[serde(flatten)]
    pub query: PlacedSession,
    /// What worktrees share with the repository, which is created if it is missing.
    #[serde(flatten)]
    pub shared: SharedSettings,
    /// The files.
    pub files: Vec<LfsFile>,
}

/// What a host tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostReport {
    /// The version of the protocol.
    pub protocol: u32,
    /// The version of studio.
    pub version: String,
    /// The version of git; absent if git cannot be used.
    pub git: Option<String>,
    /// Why git cannot be used.
    pub git_problem: Option<String>,
    /// Whether g3 is there, beside studio or in PATH.
    pub g3: bool,
    /// Whether git-lfs is in PATH.
    pub git_lfs: bool,
    /// Why the sandbox is incomplete; empty if it is complete.
    pub sandbox_gaps: Vec<String>,
    /// Bytes of free space on the disk of the spool.
    pub free_bytes: Option<u64>,
    /// Bytes of available memory.
    pub free_memory: Option<u64>,
    /// The number of cores.
    pub cores: u64,
    /// The load average of the last minute.
    pub load: Option<f64>,
    /// The number of sessions that run.
    pub sessions: u64,
    /// Its time, in seconds since 1970.
    pub clock: i64,
    /// Commits of the repository that are there.
    pub commits: Vec<String>,
    /// The session, if it is there.
    pub session: Option<SessionReport>,
    /// Whether the job of the session runs and has the same spool.
    pub sees_job: bool,
}

/// What a host tells about a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionReport {
    /// The number of its delivery.
    pub attempt: u32,
}

/// A request to a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionRequest {
    /// The session.
    #[serde(flatten)]
    pub query: PlacedSession,
    /// The number of the delivery.
    pub attempt: u32,
    /// The request.
    #[serde(flatten)]
    pub request: NumberedRequest,
}

/// Which sessions home still has, so that the others can be deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KnownSessions {
    /// The repository, and any session.
    #[serde(flatten)]
    pub query: PlacedSession,
    /// The ids of the sessions that can still be continued or undone.
    pub known: Vec<Id>,
    /// The number of the delivery of the session whose run has ended: home has everything of it.
    #[serde(default)]
    pub settled: u32,
}

/// What home has of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FollowQuery {
    /// The session.
    #[serde(flatten)]
    pub query: PlacedSession,
    /// The number of its delivery.
    pub attempt: u32,
    /// The length of home's journal.
    pub at: u64,
    /// The work that home has.
    pub work: WorkRefs,
    /// Whether the job of the session is over: nothing runs a session that waits.
    pub is_over: bool,
}

/// The result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivered {
    /// Where the state of an earlier delivery is that home does not have; `None` if home has all.
    pub set_aside: Option<PathBuf>,
}

impl Order {
    /// Returns the delivery of a session; its sizes are not set yet.
    pub(crate) fn of(
        repository: &Repository,
        settings: &StudioConfig,
        place: &Place,
        (query, record): (PlacedSession, &SessionRecord),
        (attempt, work): (u32, WorkRefs),
    ) -> Result<Order> {
        let home = HomeSettings::of(settings, place.config.keep_interval(), &record.agent);
        let run_mode = RunMode {
            accept: false,
            place: None,
            home: Some(home),
            config: None,
            directory: None,
            ..record.run_mode.clone()
        };
        Ok(Order {
            query,
            attempt,
            record: SessionRecord { run_mode, after: Vec::new(), ..record.clone() },
            work,
            shared: SharedSettings::of(repository)?,
            journal_bytes: 0,
            pack_bytes: 0,
        })
    }
}

impl SharedSettings {
    /// Returns those of a repository.
    pub(crate) fn of(repository: &Repository) -> Result<SharedSettings> {
        let info = |name: &str| {
            let bytes = std::fs::read(repository.common_dir.join(name)).ok()?;
            String::from_utf8(bytes).ok()
        };
        Ok(SharedSettings {
            git_config: session_repo::config(&*repository.open()?)?,
            exclude: info("info/exclude").unwrap_or_default(),
            attributes: info("info/attributes"),
            shallow: info("shallow"),
        })
    }
}

/// Returns what names a session at a place, and in a job there.
pub(crate) fn query(repository: &Repository, id: &Id, job: Option<String>) -> PlacedSession {
    PlacedSession {
        protocol: PROTOCOL,
        repository: repository_name(&repository.common_dir),
        id: id.clone(),
        job,
        shared: false,
    }
}

/// Returns the name of a repository at places: two repositories, of one or of several machines, never
/// share one.
fn repository_name(common_dir: &Path) -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let user = base::user_dirs::home_dir().unwrap_or_default();
    let identity =
        Path::new("/").join(machine.trim()).join(user.strip_prefix("/").unwrap_or(&user));
    let checkout = common_dir.parent().and_then(Path::file_name).unwrap_or_default();
    let relative = common_dir.strip_prefix("/").unwrap_or(common_dir);
    base::user_dirs::name_for_path(&identity.join(relative).join(checkout))
}

/// Refuses another version of the protocol.
pub(crate) fn refuse_other_protocol(query: &PlacedSession) -> Result<()> {
    if query.protocol == PROTOCOL {
        return Ok(());
    }
    Err(Failure::usage("the studio here has another protocol than the studio at home")
        .because(format!("{PROTOCOL} here, {} at home", query.protocol))
        .hint("install the same version, or remove `binary` of the place"))
}
