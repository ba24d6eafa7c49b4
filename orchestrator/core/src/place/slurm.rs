//! The jobs of Slurm in which sessions run.

use std::time::Duration;

use base::process::{Command, OutputLimits};

use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError, JobStep};
use crate::place::job::{self, ClusterJob, JobState};

/// How long before its time limit a job is told to end, in seconds.
const NOTICE_SECONDS: u32 = 120;
/// How long Slurm may take to tell a job how much of its time is left.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// What Slurm's commands say while its controller does not answer.
const AWAY: &[&str] = &[
    "Unable to contact slurm controller",
    "Socket timed out",
    "in standby mode",
    "Transport endpoint",
];
/// The variables of a job and of the commands in it. Its shell is a login shell.
const VARIABLES: &str = "--export=HOME,USER,LOGNAME,PATH=/usr/local/bin:/usr/bin:/bin";
/// The fields of a job in the output of `squeue`: its id, state, node and reason.
const FIELDS: &str = "%i@%T@%B@%r";

/// A cluster with Slurm.
pub(crate) struct Slurm<'a> {
    /// Where its commands run.
    pub host: Host,
    /// Its place.
    pub place: &'a Place,
}

impl Slurm<'_> {
    /// Submits a job with this name, for any node or for this one.
    pub(crate) fn submit(
        &self,
        name: &str,
        node: Option<&str>,
    ) -> std::result::Result<(), HostError> {
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
        let node = node.map(|node| format!("--nodelist={node}"));
        words.extend(node.as_deref());
        let script = format!("#!/bin/sh -l\n{}", job::script(&self.host, name));
        let command = self.host.command(words).input(script.into_bytes());
        self.host.ask_cluster(command, AWAY).map(drop)
    }

    /// Returns the job with this name; `None` if Slurm does not know it (any more).
    pub(crate) fn find(&self, name: &str) -> std::result::Result<Option<ClusterJob>, HostError> {
        let option = format!("--name={name}");
        let words = ["squeue", "--me", "--noheader", "--states=all", &option, "--format", FIELDS];
        let output = self.host.ask_cluster(self.host.command(words), AWAY)?;
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

/// Returns whether a text is the name of one node, which a shell reads as one word.
pub(crate) fn is_node_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Returns whether the job in which this process runs is told to end because its time limit is near;
/// `false` if Slurm cannot be asked.
pub(super) fn is_near_time_limit() -> bool {
    let Ok(job) = std::env::var("SLURM_JOB_ID") else { return false };
    let words = ["--noheader", "--jobs", &job, "--format", "%L"];
    let limits = OutputLimits { time: Some(ANSWER_TIMEOUT), bytes: 1 << 10 };
    let output = Command::new("squeue", "/").args(words).output(limits);
    output.is_ok_and(|output| output.ok() && is_near_end(output.text().trim()))
}

/// Returns whether a job is told to end now, if this is its time left in the output of `squeue`, such as
/// `1-02:03:04`, `02:03:04` or `3:04`. Slurm may be a minute early.
fn is_near_end(time_left: &str) -> bool {
    let is_below_hour = time_left.matches(':').count() == 1;
    let mut parts = time_left.split(':').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(minutes)), Some(Ok(seconds))) if is_below_hour => {
            minutes * 60 + seconds <= NOTICE_SECONDS + 60
        }
        _ => false,
    }
}

/// Returns the job of the output of `squeue` that is not over, else the last one.
fn newest_job(text: &str) -> Option<ClusterJob> {
    let mut jobs: Vec<ClusterJob> = text.lines().filter_map(parse_job).collect();
    jobs.sort_by_key(|job| (!matches!(job.state, JobState::Over(_)), job.id.parse::<u64>().ok()));
    jobs.pop()
}

fn parse_job(line: &str) -> Option<ClusterJob> {
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
    Some(ClusterJob { id, state })
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
    fn a_job_near_its_time_limit_is_known() {
        for near in ["0:00", "0:59", "2:00", "3:00"] {
            assert!(is_near_end(near), "{near}");
        }
        for other in
            ["3:01", "45:00", "1:00:00", "1-00:00:00", "UNLIMITED", "INVALID", "NOT_SET", ""]
        {
            assert!(!is_near_end(other), "{other}");
        }
    }

    #[test]
    fn a_list_of_nodes_is_no_node() {
        assert!(["node1", "gpu-03.farm.example", "a_b"].into_iter().all(is_node_name));
        assert!(
            !["", "n/a", "(null)", "node[1-2]", "a,b", "a b", "$x"].into_iter().any(is_node_name)
        );
    }

    #[test]
    fn a_job_that_runs_counts_before_those_that_are_over() {
        let job = newest_job("30@COMPLETED@node1@None\n29@RUNNING@node2@None\n28@FAILED@a@b\n");
        assert_eq!(job.unwrap().id, "29");
        assert_eq!(newest_job("30@COMPLETED@node1@None\n28@FAILED@a@b\n").unwrap().id, "30");
    }
}
