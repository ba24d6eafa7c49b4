//! A job of a cluster. A cluster says only whether and where a job runs: how a run ended is known from
//! the session's journal.

use base::failure::{OrFail, Result};

use crate::place::host::Host;
use crate::place::protocol;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterJob {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: JobState,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// It waits, for this reason.
    Pending(String),
    /// It runs on this node.
    Running(String),
    /// Its last run is ending.
    Ending,
    /// It is over; the cluster's name of its state.
    Over(String),
}

impl ClusterJob {
    /// Says what has become of it.
    pub(crate) fn description(&self) -> String {
        let ClusterJob { id, state } = self;
        match state {
            JobState::Pending(reason) => format!("job {id} waits: {reason}"),
            JobState::Running(node) => format!("job {id} runs on {node}"),
            JobState::Ending => format!("job {id} is ending"),
            JobState::Over(state) => match state.as_str() {
                "TIMEOUT" | "DEADLINE" | "DeadlineExceeded" => {
                    format!("job {id} reached its time limit")
                }
                "OUT_OF_MEMORY" | "OOMKilled" => format!("job {id} reached its memory limit"),
                "CANCELLED" => format!("job {id} was cancelled"),
                "NODE_FAIL" | "BOOT_FAIL" => format!("the node of job {id} failed"),
                "PREEMPTED" | "Preempting" => format!("job {id} was preempted"),
                "Evicted" => format!("job {id} was evicted from its node"),
                other => format!("job {id} ended ({})", base::text::printable(other)),
            },
        }
    }
}

/// Returns a name for a job that no other one has. It says nothing about the task.
pub(crate) fn new_name() -> Result<String> {
    let nonce = base::random::hex::<8>().or_fail(|| "no random bytes")?;
    Ok(format!("studio-{nonce}"))
}

/// Returns what a job runs: studio's part, as soon as it is there. A cluster may show it to others, so
/// it contains only paths and the name of the job.
pub(crate) fn script(host: &Host, name: &str) -> String {
    let Host { program, spool, .. } = host;
    format!(
        "umask 077\ncd\nuntil [ -x {program} ]; do sleep 0.2; done\nexec {program} {} hold {spool} {name}\n",
        protocol::COMMAND
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_run_says_what_became_of_its_job() {
        let described = |state: &str| {
            ClusterJob { id: "7".to_owned(), state: JobState::Over(state.to_owned()) }.description()
        };
        assert_eq!(described("TIMEOUT"), "job 7 reached its time limit");
        assert_eq!(described("OUT_OF_MEMORY"), "job 7 reached its memory limit");
        assert_eq!(described("FAILED"), "job 7 ended (FAILED)");
    }
}
