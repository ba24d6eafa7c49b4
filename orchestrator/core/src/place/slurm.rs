//! The jobs of Slurm in which sessions run. Slurm says only whether and where a job runs: how a run
//! ended is known from the session's journal.

use base::failure::{Failure, OrFail, Result};

use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError, JobStep};
use crate::place::protocol;

/// How long before its time limit a job is told to end, in seconds.
const NOTICE_SECONDS: u32 = 120;
/// The variables of a job and of the commands in it. Its shell is a login shell.
const VARIABLES: &str = "--export=HOME,USER,LOGNAME,PATH=/usr/local/bin:/usr/bin:/bin";
/// The fields of a job in the output of `squeue`: its id, state, node and reason.
const FIELDS: &str = "%i@%T@%B@%r";

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
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
    /// It is over; Slurm's name of its state.
    Over(String),
}

impl Job {
    /// Says what has become of it.
    pub(crate) fn description(&self) -> String {
        let Job { id, state } = self;
        match state {
            JobState::Pending(reason) => format!("job {id} waits: {reason}"),
            JobState::Running(node) => format!("job {id} runs on {node}"),
            JobState::Ending => format!("job {id} is ending"),
            JobState::Over(state) => match state.as_str() {
                "TIMEOUT" | "DEADLINE" => format!("job {id} reached its time limit"),
                "OUT_OF_MEMORY" => format!("job {id} reached its memory limit"),
                "CANCELLED" => format!("job {id} was cancelled"),
                "NODE_FAIL" | "BOOT_FAIL" => format!("the node of job {id} failed"),
                "PREEMPTED" => format!("job {id} was preempted"),
                other => format!("job {id} ended ({})", base::text::printable(other)),
            },
        }
    }
}

/// A cluster.
pub(crate) struct Cluster<'a> {
    /// Where its commands run.
    pub host: Host,
    place: &'a Place,
}

impl<'a> Cluster<'a> {
    /// Returns the cluster of a place. `program` is studio at its nodes.
    pub(crate) fn new(place: &'a Place, program: &str) -> Cluster<'a> {
        let host = Host::of_cluster(place, program);
        host.share_connection();
        Cluster { host, place }
    }

    /// Returns a name for a job that no other one has. It says nothing about the task.
    pub(crate) fn new_job_name() -> Result<String> {
        let nonce = base::random::hex::<8>().or_fail(|| "no random bytes")?;
        Ok(format!("studio.{nonce}"))
    }

    /// Submits a job with this name.
    pub(crate) fn submit(&self, name: &str) -> std::result::Result<(), HostError> {
        let (signal, job_name) =
            (format!("--signal=B:TERM@{NOTICE_SECONDS}"), format!("--job-name={name}"));
        let mut words = vec![
            "sbatch",
            "--parsable",
            VARIABLES,
            "--requeue",
            "--open-mode=append",
            "--dependency=singleton",
            "--chdir=/",
            "--output=/dev/null",
            &signal,
            &job_name,
        ];
        words.extend(self.place.config.options.iter().map(String::as_str));
        let command = self.host.command(words).input(self.script(name).into_bytes());
        self.host.run(command).map(drop)
    }

    /// Returns what a job runs: studio's part, as soon as it is there. Slurm may show it to others, so
    /// it contains only paths and the name of the job.
    fn script(&self, name: &str) -> String {
        let Host { program, spool, .. } = &self.host;
        format!(
            "#!/bin/sh -l\numask 077\ncd\nuntil [ -x {program} ]; do sleep 0.2; done\n\
             exec {program} {} hold {spool} {name}\n",
            protocol::COMMAND
        )
    }

    /// Returns the job with this name; `None` if Slurm does not know it (any more).
    pub(crate) fn find(&self, name: &str) -> std::result::Result<Option<Job>, HostError> {
        let option = format!("--name={name}");
        let words = ["squeue", "--me", "--noheader", "--states=all", &option, "--format", FIELDS];
        let output = self.host.run(self.host.command(words))?;
        Ok(newest_job(&output.text()))
    }

    /// Returns the node on which a job runs. Commands run there as steps of the job.
    pub(crate) fn node(&self, job: &str, node: &str) -> Host {
        let step = JobStep {
            words: ["srun", "--overlap", &format!("--jobid={job}"), VARIABLES]
                .map(str::to_owned)
                .to_vec(),
            not_runnable: "execve()",
            exited: "Exited with exit code",
        };
        self.host.in_job(step, node)
    }

    /// Cancels the jobs with this name.
    pub(crate) fn cancel(&self, name: &str) -> std::result::Result<(), HostError> {
        let option = format!("--name={name}");
        self.host.run(self.host.command(["scancel", "--me", &option])).map(drop)
    }
}

/// Returns the failure of a session whose job was over before it was delivered.
pub(crate) fn ended_early(job: &Job, place: &Place) -> Failure {
    Failure::failed(format!("it did not start at {}", place.name))
        .because(job.description())
        .hint(format!("studio places check {}", place.name))
}

/// Returns the job of the output of `squeue` that is not over, else the last one.
fn newest_job(text: &str) -> Option<Job> {
    let mut jobs: Vec<Job> = text.lines().filter_map(parse_job).collect();
    jobs.sort_by_key(|job| (!matches!(job.state, JobState::Over(_)), job.id.parse::<u64>().ok()));
    jobs.pop()
}

fn parse_job(line: &str) -> Option<Job> {
    let mut fields = line.trim().splitn(4, '@');
    let (id, state, node) = (fields.next()?, fields.next()?, fields.next()?);
    let reason = fields.next().unwrap_or_default();
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    let id = is_id.then(|| id.to_owned())?;
    let state = match state {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => {
            JobState::Pending(base::text::printable(reason))
        }
        "CONFIGURING" => JobState::Pending("its node starts".to_owned()),
        "RUNNING" => JobState::Running(base::text::printable(node)),
        // Its processes are there, but do nothing.
        "SUSPENDED" | "STOPPED" => JobState::Running(base::text::printable(node)),
        "COMPLETING" | "STAGE_OUT" => JobState::Ending,
        other => JobState::Over(other.to_owned()),
    };
    Some(Job { id, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_from_the_output_of_squeue() {
        let parsed = |line: &str| newest_job(line).map(|job| (job.id, job.state));
        let pending = |why: &str| JobState::Pending(why.to_owned());
        for (line, expected) in [
            ("20@RUNNING@node1@None\n", JobState::Running("node1".to_owned())),
            ("21@PENDING@n/a@Resources\n", pending("Resources")),
            (
                "22@PENDING@@ReqNodeNotAvail, UnavailableNodes:n@1",
                pending("ReqNodeNotAvail, UnavailableNodes:n@1"),
            ),
            ("23@TIMEOUT@node2@TimeLimit", JobState::Over("TIMEOUT".to_owned())),
            ("24@COMPLETING@node2@None", JobState::Ending),
        ] {
            assert_eq!(parsed(line), Some((line[..2].to_owned(), expected)), "{line}");
        }
        assert_eq!(parsed(""), None);
        assert_eq!(parsed("slurm_load_jobs error\nx@RUNNING@a@b\n"), None);
    }

    #[test]
    fn a_job_that_runs_counts_before_those_that_are_over() {
        let job = newest_job("30@COMPLETED@node1@None\n29@RUNNING@node2@None\n28@FAILED@a@b\n");
        assert_eq!(job.unwrap().id, "29");
        assert_eq!(newest_job("30@COMPLETED@node1@None\n28@FAILED@a@b\n").unwrap().id, "30");
    }

    #[test]
    fn a_lost_run_says_what_became_of_its_job() {
        let described = |state: &str| {
            Job { id: "7".to_owned(), state: JobState::Over(state.to_owned()) }.description()
        };
        assert_eq!(described("TIMEOUT"), "job 7 reached its time limit");
        assert_eq!(described("OUT_OF_MEMORY"), "job 7 reached its memory limit");
        assert_eq!(described("FAILED"), "job 7 ended (FAILED)");
    }
}
