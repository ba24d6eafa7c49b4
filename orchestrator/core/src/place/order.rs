//! What a place needs to know of a session.

use std::path::Path;

use base::config::studio::StudioConfig;
use base::failure::Result;
use serde::{Deserialize, Serialize};
use studio_git::replica::WorkRefs;
use studio_git::repo::Repository;
use studio_git::session_repo;

use crate::place::Place;
use crate::session::home_settings::HomeSettings;
use crate::session::record::{RunMode, SessionRecord};

/// The version of the protocol between home and a place.
pub(crate) const PROTOCOL: u32 = 1;

/// A question about a session at a place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionQuery {
    /// The version of the protocol.
    pub protocol: u32,
    /// The name of the repository at the place.
    pub repository: String,
    /// The session.
    pub id: base::id::Id,
}

/// The delivery of a session. The journal and the pack follow it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The repository and the session.
    #[serde(flatten)]
    pub query: SessionQuery,
    /// The number of this delivery.
    pub attempt: u32,
    /// The session's record, for the place.
    pub record: SessionRecord,
    /// Its work so far.
    pub work: WorkRefs,
    /// The settings of git that its worktree shares with the repository.
    pub git_config: String,
    /// `info/exclude` of the repository.
    pub exclude: String,
    /// `info/attributes` of the repository, if it has one.
    pub attributes: Option<String>,
    /// `shallow` of the repository, if it has one.
    pub shallow: Option<String>,
    /// The size of the journal.
    pub journal_bytes: u64,
    /// The size of the pack.
    pub pack_bytes: u64,
}

impl Order {
    /// Returns the delivery of a session; its sizes are not set yet.
    pub(crate) fn of(
        repository: &Repository,
        settings: &StudioConfig,
        place: &Place,
        record: &SessionRecord,
        (attempt, work): (u32, WorkRefs),
    ) -> Result<Order> {
        let info = |name: &str| {
            let bytes = std::fs::read(repository.common_dir.join(name)).ok()?;
            String::from_utf8(bytes).ok()
        };
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
            query: query(repository, record),
            attempt,
            record: SessionRecord { run_mode, after: Vec::new(), ..record.clone() },
            work,
            git_config: session_repo::config(&repository.open()?)?,
            exclude: info("info/exclude").unwrap_or_default(),
            attributes: info("info/attributes"),
            shallow: info("shallow"),
            journal_bytes: 0,
            pack_bytes: 0,
        })
    }
}

/// Returns what names a session at a place.
pub(crate) fn query(repository: &Repository, record: &SessionRecord) -> SessionQuery {
    SessionQuery {
        protocol: PROTOCOL,
        repository: repository_name(&repository.common_dir),
        id: record.id.clone(),
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
