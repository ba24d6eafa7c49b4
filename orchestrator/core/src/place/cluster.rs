//! The cluster of a place.

use base::config::places::PlaceEngine;
use base::failure::Failure;

use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError};
use crate::place::job::ClusterJob;
use crate::place::kubernetes::Kubernetes;
use crate::place::slurm::Slurm;

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
            Cluster::Slurm(slurm) => slurm.submit(name),
            Cluster::Kubernetes(kubernetes) => kubernetes.submit(name),
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
