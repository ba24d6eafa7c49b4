//! What changed since a run began, as the harness itself sees it.

mod cut;
mod list;

use std::path::PathBuf;

use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};

use agent_core::run::root_of;
use agent_core::session::checkpoint::Checkpoints;

/// What the files were like when a run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunBaseline {
    /// As a tree of git, also what was not committed, and also outside of repositories.
    Tree(String),
    /// Where there is no program git: in a list of all files.
    List,
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvidenceChanges {
    /// One line for each file: `A`, `M` or `D`, and its path.
    pub files: Vec<String>,
    /// The diff of each text file, cut to fit.
    pub diff: String,
    /// What is not shown, one sentence each.
    pub notes: Vec<String>,
}

/// Where a run looks, and where it keeps what it needs for that.
#[derive(Clone, Debug)]
pub(crate) struct EvidencePaths {
    /// The working directory.
    pub cwd: PathBuf,
    /// The session's directory.
    pub keep: PathBuf,
}

impl EvidencePaths {
    /// Looks at everything as it is now.
    pub(crate) async fn begin(&self) -> Result<RunBaseline> {
        let place = self.clone();
        on_a_thread(move || match base::git::version() {
            Ok(_) => place.trees()?.take().map(RunBaseline::Tree),
            Err(_) => list::write(&place.cwd, &place.keep).map(|()| RunBaseline::List),
        })
        .await
    }

    /// What changed since then, in at most so many bytes.
    pub(crate) async fn since(&self, start: &RunBaseline, room: usize) -> Result<EvidenceChanges> {
        let (place, start) = (self.clone(), start.clone());
        on_a_thread(move || place.look(&start, room)).await
    }

    fn look(&self, start: &RunBaseline, room: usize) -> Result<EvidenceChanges> {
        match start {
            RunBaseline::List => {
                let files = list::changed(&self.cwd, &self.keep)?;
                let notes = vec!["no git, so no diff: read the files".to_owned()];
                Ok(cut::to_fit(files, "", notes, room))
            }
            RunBaseline::Tree(then) => {
                let trees = self.trees()?;
                let (files, diff) = trees.difference(then, &trees.take()?)?;
                Ok(cut::to_fit(files, &diff, Vec::new(), room))
            }
        }
    }

    fn trees(&self) -> Result<Checkpoints> {
        Checkpoints::open(&self.keep, &root_of(&self.cwd))
    }
}

/// git and the walk block; signals are heard meanwhile.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.or_fail(|| "cannot collect the changes")?
}
