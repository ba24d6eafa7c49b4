//! The record of a session: what is known at its creation, written once as `session.json`.

use std::path::PathBuf;

use base::config::network::NetworkPolicy;
use base::failure::Result;
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::session::home_settings::HomeSettings;
use crate::session::summary::JournalSummary;
use studio_git::moved_repository;
use studio_git::names::{BranchTemplate, WorktreeTemplate};
use studio_git::repo::{Base, Repository};
use studio_git::session_repo::SessionRepo;
use studio_git::start_point::StartPoint;
use studio_git::worktree::WorktreeSpec;

/// The schema of `session.json`.
pub(crate) const SCHEMA: u32 = 1;

/// The record of a session at its creation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The schema of this record.
    pub schema: u32,
    /// The session.
    pub id: Id,
    /// The prompt for the agent.
    pub task: String,
    /// The name of the agent in the agents table.
    pub agent: String,
    /// The persona of g3, if any.
    #[serde(default)]
    pub persona: Option<String>,
    /// The model of g3, if not the configured one.
    #[serde(default)]
    pub model: Option<String>,
    /// The tool profile of g3, if not the configured one.
    #[serde(default)]
    pub profile: Option<String>,
    /// The base that it starts from.
    pub base: Base,
    /// Its worktree, branch and private git directory.
    #[serde(rename = "place")]
    pub session_repo: SessionRepo,
    /// The templates of its branch and worktree.
    pub templates: Templates,
    /// Commands that must pass, one `sh -c` line each.
    pub checks: Vec<String>,
    /// When to stop.
    pub limits: RunLimits,
    /// How it is run.
    #[serde(rename = "manner")]
    pub run_mode: RunMode,
    /// The number of this attempt at the task, starting at 1.
    pub attempt: u32,
    /// The first of several attempts at the task, which names the group of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Id>,
    /// Sessions that must be accepted before this one starts.
    #[serde(default)]
    pub after: Vec<Id>,
    /// Its part in a plan.
    #[serde(default)]
    #[serde(rename = "part")]
    pub plan_ref: PlanRef,
    /// The creation time, RFC 3339 in UTC.
    pub created_at: String,
    /// Uncommitted work that its worktree starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartPoint>,
    /// The session that it forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<SessionOrigin>,
}

/// The session from which another one was forked, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOrigin {
    /// The session.
    pub id: Id,
    /// Its task.
    pub task: String,
    /// The last message of its agent.
    pub last_message: Option<String>,
    /// The new task, if one was given.
    pub message: Option<String>,
    /// Its conversation, if it was copied.
    pub conversation_id: Option<String>,
}

/// The fields of a session that come from a task list or a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanRef {
    /// The task's id in its list, or its stage of `studio sdlc`.
    pub name: Option<String>,
    /// The files that it will change, as glob patterns from the root. Sessions with overlapping
    /// patterns run one after the other.
    pub paths: Vec<String>,
    /// The ids of the requirements that it implements.
    pub requirements: Vec<String>,
    /// The text of those requirements, if the agent implements them as player and coach.
    pub contract: Option<String>,
    /// The plan, or the run of `studio sdlc`, that it belongs to.
    pub plan: Option<String>,
    /// A digest of everything that defined its task in that plan when the session was created.
    pub digest: Option<String>,
}

/// The templates of branches and worktrees, as configured when the session was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Templates {
    /// `[studio] branch`.
    pub branch: String,
    /// `[studio] worktree`.
    pub worktree: String,
}

impl Templates {
    /// Returns the template of branch names.
    pub fn branches(&self) -> Result<BranchTemplate> {
        BranchTemplate::parse(&self.branch)
    }

    /// Returns the template of worktree paths.
    fn worktrees(&self) -> Result<WorktreeTemplate> {
        WorktreeTemplate::parse(&self.worktree)
    }

    /// Returns the specification of a session's worktree.
    pub(crate) fn worktree_spec(&self, id: &Id, base: &Base) -> Result<WorktreeSpec> {
        Ok(WorktreeSpec {
            id: id.clone(),
            base: base.clone(),
            branch: self.branches()?,
            worktree: self.worktrees()?,
        })
    }
}

impl SessionRecord {
    /// Returns whether it starts from the tip of its branch at its start, not at its creation.
    pub(crate) fn starts_at_tip(&self) -> bool {
        // Attempts at one task start from the same commit.
        self.group.is_none() && (!self.after.is_empty() || !self.plan_ref.paths.is_empty())
    }

    /// Returns whether another session is an attempt at the same task.
    pub fn is_other_attempt(&self, other: &SessionRecord) -> bool {
        self.group.is_some() && self.group == other.group && self.id != other.id
    }

    /// Replaces the checks and limits by those that the user has set since the creation.
    #[must_use]
    pub(crate) fn with_settings(mut self, summary: &JournalSummary) -> SessionRecord {
        self.checks = summary.commands.clone().unwrap_or(self.checks);
        self.limits = summary.limits.or(self.limits);
        self
    }

    /// Updates the paths to the current location of the repository, which may have been moved.
    /// Worktrees that were moved individually stay where they are.
    pub(crate) fn relocated(mut self, repository: &Repository) -> Result<SessionRecord> {
        self.session_repo = match self.templates.worktrees()?.is_relative() {
            true => SessionRepo {
                base: self.session_repo.base,
                ..self.templates.worktree_spec(&self.id, &self.base)?.session_repo(repository)?
            },
            false => moved_repository::current_paths(&repository.common_dir, &self.session_repo),
        };
        Ok(self)
    }
}

/// The limits of a session, over all its runs together; absent means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunLimits {
    /// Duration of all runs, in seconds.
    pub seconds: Option<u64>,
    /// Number of model replies.
    pub turns: Option<u32>,
    /// Number of tokens, input and output, including cached ones.
    pub tokens: Option<u64>,
    /// Cost in US dollars.
    pub usd: Option<f64>,
    /// Cost in US dollars of all sessions of its run together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_usd: Option<f64>,
    /// Bytes of raw output of the agent that are kept.
    pub output_bytes: Option<u64>,
    /// Bytes of free space that must remain on the disk of the worktree.
    pub disk_floor_bytes: Option<u64>,
    /// Bytes of memory of all processes together; the configured limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads together; the configured limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes on disk of the session's files; the configured limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

impl RunLimits {
    /// Returns these limits, with unset ones from the earlier limits.
    #[must_use]
    pub fn or(self, previous: RunLimits) -> RunLimits {
        RunLimits {
            seconds: self.seconds.or(previous.seconds),
            turns: self.turns.or(previous.turns),
            tokens: self.tokens.or(previous.tokens),
            usd: self.usd.or(previous.usd),
            total_usd: self.total_usd.or(previous.total_usd),
            output_bytes: self.output_bytes.or(previous.output_bytes),
            disk_floor_bytes: self.disk_floor_bytes.or(previous.disk_floor_bytes),
            memory_bytes: self.memory_bytes.or(previous.memory_bytes),
            processes: self.processes.or(previous.processes),
            disk_bytes: self.disk_bytes.or(previous.disk_bytes),
        }
    }
}

/// How a session is run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunMode {
    /// Maximum number of concurrent sessions in the repository, including this one.
    pub jobs: u32,
    /// Whether the user answers permission requests; otherwise they are denied.
    pub attended: bool,
    /// Whether it is landed when it is ready.
    pub accept: bool,
    /// Whether its processes run in the sandbox.
    #[serde(rename = "boxed")]
    pub sandboxed: bool,
    /// Which hosts its agent can reach, if that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    /// The run that it belongs to: its sessions share a total budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The file given with `--config`; absolute.
    pub config: Option<PathBuf>,
    /// The directory whose `g3.toml` applies: where the session was created.
    pub directory: Option<PathBuf>,
    /// The place where it runs; here when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The settings of home, if this is the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<HomeSettings>,
}
