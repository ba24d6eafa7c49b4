//! The cluster of a place.

use std::time::{Duration, Instant};

use base::config::places::PlaceEngine;
use base::failure::{Failure, Result};

use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError};
use crate::place::job::{ClusterJob, JobState};
use crate::place::kubernetes::Kubernetes;
use crate::place::slurm::{self, Slurm};
use crate::project::pause;

/// How long a cluster is not asked again for a job that waits: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A cluster.
pub(crate) enum Cluster<'a> {
    /// Slurm.
    Slurm(Slurm<'a>),
    /// Kubernetes.
    Kubernetes(Kubernetes<'a>),
}

impl<'a> Cluster<'a> {
    /// Returns the cluster of a place; `None` if it consists of hosts. `program` is studio at its nodes.
    pub(crate) fn of(place: &'a Place, program: &str) -> Option<Cluster<'a>> {
        let host = || {
            let host = Host::of_cluster(place, program);
            host.share_connection();
            host
        };
        match place.config.engine {
            PlaceEngine::Ssh => None,
            PlaceEngine::Slurm => Some(Cluster::Slurm(Slurm { host: host(), place })),
            PlaceEngine::Kubernetes => {
                Some(Cluster::Kubernetes(Kubernetes { host: host(), place }))
            }
        }
    }

    /// Returns the host on which its commands run.
    pub(crate) fn host(&self) -> &Host {
        match self {
            Cluster::Slurm(slurm) => &slurm.host,
            Cluster::Kubernetes(kubernetes) => &kubernetes.host,
        }
    }

    /// Submits a job with this name.
    pub(crate) fn submit(&self, name: &str) -> std::result::Result<(), HostError> {
        match self {
            Cluster::Slurm(slurm) => slurm.submit(name, None),
            Cluster::Kubernetes(kubernetes) => kubernetes.submit(name),
        }
    }

    /// Submits a job that runs on this node; returns `false` if a node keeps nothing of a job that is over.
    pub(crate) fn submit_at(&self, name: &str, node: &str) -> std::result::Result<bool, HostError> {
        match self {
            Cluster::Slurm(slurm) if slurm::is_node_name(node) => {
                slurm.submit(name, Some(node)).map(|()| true)
            }
            Cluster::Slurm(_) | Cluster::Kubernetes(_) => Ok(false),
        }
    }

    /// Returns the job with this name; `None` if the cluster does not know it (any more).
    pub(crate) fn find(&self, name: &str) -> std::result::Result<Option<ClusterJob>, HostError> {
        match self {
            Cluster::Slurm(slurm) => slurm.find(name),
            Cluster::Kubernetes(kubernetes) => kubernetes.find(name),
        }
    }

    /// Returns the node on which a job runs. Commands run there in the job.
    pub(crate) fn node(&self, job: &str, node: &str) -> Host {
        match self {
            Cluster::Slurm(slurm) => slurm.node(job, node),
            Cluster::Kubernetes(kubernetes) => kubernetes.node(job, node),
        }
    }

    /// Waits until a job runs, and returns its node. `keep_waiting` gets what has become of the job so
    /// far, every few milliseconds, and can end the wait.
    pub(crate) fn await_node(
        &self,
        name: &str,
        mut keep_waiting: impl FnMut(&str) -> Result<()>,
    ) -> Result<Host> {
        let failed = |why: String| Err(Failure::failed("a job did not run").because(why));
        let (mut wait, mut is_known) = (FIRST_WAIT, false);
        loop {
            let found = self.find(name).map_err(|error| error.into_failure(self.host()))?;
            let description = match found {
                Some(ClusterJob { id, state: JobState::Running(node) }) => {
                    return Ok(self.node(&id, &node));
                }
                Some(job) if matches!(job.state, JobState::Over(_)) => {
                    return failed(job.description());
                }
                Some(job) => {
                    is_known = true;
                    job.description()
                }
                None if is_known => return failed("the cluster does not know it any more".into()),
                None => "the cluster does not know the job".to_owned(),
            };
            let asked_at = Instant::now();
            while asked_at.elapsed() < wait {
                keep_waiting(&description)?;
                pause();
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Cancels the jobs with this name.
    pub(crate) fn cancel(&self, name: &str) -> std::result::Result<(), HostError> {
        match self {
            Cluster::Slurm(slurm) => slurm.cancel(name),
            Cluster::Kubernetes(kubernetes) => kubernetes.cancel(name),
        }
    }
}

/// Returns the failure of a session whose job was over before it was delivered.
pub(crate) fn ended_early(job: &ClusterJob, place: &Place) -> Failure {
    Failure::failed(format!("it did not start at {}", place.name))
        .because(job.description())
        .hint(format!("studio places check {}", place.name))
}
