//! What is known about a session when it is made; written once, as `session.json`.

use std::path::PathBuf;

use base::failure::Result;
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::session::summary::JournalSummary;
use studio_git::names::{BranchTemplate, WorktreeTemplate};
use studio_git::repair;
use studio_git::repo::{Base, Repository};
use studio_git::session_repo::SessionRepo;
use studio_git::worktree::WorktreeSpec;

/// The schema of `session.json`.
pub(crate) const SCHEMA: u32 = 1;

/// What is known about a session when it is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The schema of this record.
    pub schema: u32,
    /// The session.
    pub id: Id,
    /// What the agent is asked to do.
    pub task: String,
    /// The name of the agent in the agents table.
    pub agent: String,
    /// The persona that g3 plays, if any.
    #[serde(default)]
    pub persona: Option<String>,
    /// The model that g3 asks instead of the configured one.
    #[serde(default)]
    pub model: Option<String>,
    /// The names that g3's tools have instead of the configured ones.
    #[serde(default)]
    pub profile: Option<String>,
    /// Where it started.
    pub base: Base,
    /// Its worktree, branch and private git directory.
    pub place: SessionRepo,
    /// The templates that the place was made from.
    pub templates: Templates,
    /// Commands that must pass, one `sh -c` line each.
    pub checks: Vec<String>,
    /// When to stop.
    pub limits: RunLimits,
    /// How the session is to be run.
    pub manner: RunMode,
    /// Which attempt at the task this is; counts from 1.
    pub attempt: u32,
    /// Sessions that must be accepted before this one starts.
    #[serde(default)]
    pub after: Vec<Id>,
    /// Its part in a plan.
    #[serde(default)]
    pub part: PlanRef,
    /// RFC 3339, UTC.
    pub created_at: String,
}

/// What a list of tasks says of a session besides its task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanRef {
    /// The task's id in its list.
    pub name: Option<String>,
    /// What it will touch: glob patterns from the root. Sessions whose patterns meet work one
    /// after the other.
    pub paths: Vec<String>,
    /// Ids of the requirements that it serves.
    pub requirements: Vec<String>,
    /// Those requirements, word for word, where its agent works under them as player and coach.
    pub contract: Option<String>,
    /// The plan that it belongs to.
    pub plan: Option<String>,
    /// A digest of all that its task was in that plan when the session was made.
    pub digest: Option<String>,
}

/// How branches and worktrees are called, as configured when the session was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Templates {
    /// `[studio] branch`.
    pub branch: String,
    /// `[studio] worktree`.
    pub worktree: String,
}

impl Templates {
    /// Returns how branches are called.
    pub(crate) fn branches(&self) -> Result<BranchTemplate> {
        BranchTemplate::parse(&self.branch)
    }

    /// Returns where worktrees are.
    fn worktrees(&self) -> Result<WorktreeTemplate> {
        WorktreeTemplate::parse(&self.worktree)
    }

    /// Returns what is to be made for a session.
    pub(crate) fn order(&self, id: &Id, base: &Base) -> Result<WorktreeSpec> {
        Ok(WorktreeSpec {
            id: id.clone(),
            base: base.clone(),
            branch: self.branches()?,
            worktree: self.worktrees()?,
        })
    }
}

impl SessionRecord {
    /// Returns whether it starts from its branch as that is then, not as it was when it was made.
    pub(crate) fn starts_from_the_tip(&self) -> bool {
        !self.after.is_empty() || !self.part.paths.is_empty()
    }

    /// Returns the record with the checks that the user has set since it was made.
    #[must_use]
    pub(crate) fn with_checks_of(mut self, story: &JournalSummary) -> SessionRecord {
        self.checks = story.commands.clone().unwrap_or(self.checks);
        self
    }

    /// Returns the record with its place where the repository is now: repositories are moved. What
    /// lies at a place of its own stays there.
    pub(crate) fn located(mut self, repository: &Repository) -> Result<SessionRecord> {
        self.place = match self.templates.worktrees()?.is_relative() {
            true => self.templates.order(&self.id, &self.base)?.place(repository)?,
            false => repair::place_now(&repository.common_dir, &self.place),
        };
        Ok(self)
    }
}

/// When a session is stopped by itself, over all its runs together; absent means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunLimits {
    /// Time of all runs together, in seconds.
    pub seconds: Option<u64>,
    /// Replies of models.
    pub turns: Option<u32>,
    /// Tokens in and out, caches included.
    pub tokens: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
    /// Bytes of raw output of the agent.
    pub output_bytes: Option<u64>,
    /// Bytes that must stay free on the disk of the worktree.
    pub disk_floor_bytes: Option<u64>,
}

impl RunLimits {
    /// These limits where there are any, else the earlier ones.
    #[must_use]
    pub fn or(self, earlier: RunLimits) -> RunLimits {
        RunLimits {
            seconds: self.seconds.or(earlier.seconds),
            turns: self.turns.or(earlier.turns),
            tokens: self.tokens.or(earlier.tokens),
            usd: self.usd.or(earlier.usd),
            output_bytes: self.output_bytes.or(earlier.output_bytes),
            disk_floor_bytes: self.disk_floor_bytes.or(earlier.disk_floor_bytes),
        }
    }
}

/// How a session is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunMode {
    /// How many sessions of the repository may run beside each other, this one included.
    pub jobs: u32,
    /// Whether somebody is there to answer permission requests; otherwise they are denied.
    pub attended: bool,
    /// Whether it is landed as soon as it is ready.
    pub accept: bool,
    /// Whether its processes run in the box.
    pub boxed: bool,
    /// The configuration file that was given instead of the usual ones; absolute.
    pub config: Option<PathBuf>,
    /// The directory whose `g3.toml` counts: where the session was asked for.
    pub directory: Option<PathBuf>,
}
