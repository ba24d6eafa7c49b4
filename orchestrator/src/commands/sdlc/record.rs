//! What studio records about the pipeline, besides its sessions: one file, replaced by rename.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};
use base::files::{self, step};
use serde::{Deserialize, Serialize};
use studio_core::session::record::{RunLimits, RunMode};
use studio_git::repo::Repository;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SdlcState {
    /// For each branch, the last commit of its last complete run.
    pub cursors: BTreeMap<String, String>,
    /// The last run.
    pub pipeline: Option<PipelineRecord>,
}

/// A run of the pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PipelineRecord {
    /// Its id, which its sessions refer to.
    pub id: String,
    /// The branch.
    pub branch: String,
    /// The commit before its commits; absent if they begin with the first commit.
    pub from: Option<String>,
    /// The last of its commits.
    pub to: String,
    /// The number of its commits.
    pub commits: usize,
    /// Whether all stages are done.
    pub complete: bool,
    /// The settings of its sessions.
    pub settings: StageSettings,
}

/// The settings of the sessions of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StageSettings {
    /// Additional checks besides the configured ones.
    pub checks: Vec<String>,
    /// The model of g3, if not the configured one.
    pub model: Option<String>,
    /// The limits of each session.
    pub limits: RunLimits,
    /// How each session is run.
    pub run_mode: RunMode,
}

/// The beginning of a pipeline's id.
const ID_PREFIX: &str = "sdlc-";

/// Returns a new id of a pipeline.
pub(crate) fn new_id() -> Result<String> {
    let random = base::random::hex::<4>().or_fail(|| "no random bytes")?;
    Ok(format!("{ID_PREFIX}{random}"))
}

/// Returns whether an id is that of a pipeline, not of a plan.
pub(crate) fn is_id(id: &str) -> bool {
    id.starts_with(ID_PREFIX)
}

/// Returns the path of the file.
fn path(repository: &Repository) -> PathBuf {
    repository.common_dir.join("studio/sdlc.json")
}

/// Returns the path of the lock of the process that advances the pipeline.
pub(crate) fn lock_path(repository: &Repository) -> PathBuf {
    repository.common_dir.join("studio/sdlc.lock")
}

/// Reads the state; the default one before the first run.
pub(crate) fn load(repository: &Repository) -> Result<SdlcState> {
    let path = path(repository);
    let unreadable = |error: std::io::Error| {
        Failure::failed(format!("cannot read {}", path.display()))
            .because(error)
            .hint("studio sdlc reset    forgets the pipeline; its sessions are kept")
    };
    match files::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| unreadable(error.into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(SdlcState::default()),
        Err(error) => Err(unreadable(error)),
    }
}

/// Writes the state.
pub(crate) fn save(repository: &Repository, state: &SdlcState) -> Result<()> {
    step("sdlc.saved");
    let path = path(repository);
    files::replace_json(&path, state).or_fail(|| format!("cannot write {}", path.display()))
}

/// Deletes the file; returns whether there was one.
pub(crate) fn delete(repository: &Repository) -> Result<bool> {
    let path = path(repository);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).or_fail(|| format!("cannot delete {}", path.display())),
    }
}
