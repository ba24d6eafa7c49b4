//! The job of a cluster that runs a session: it is submitted, found, and looked at after its end.

use std::sync::atomic::Ordering;

use base::failure::Result;
use base::files;

use crate::place::cluster::{self, Cluster};
use crate::place::host::{Host, HostError};
use crate::place::job::{self, JobState};
use crate::place::keeper::{Connected, Keeper, Unreached, json_line, lock};
use crate::place::protocol::HostReport;
use crate::place::requests::NumberedRequest;
use crate::place::ship;
use crate::session::journal::{JournalEntry, SessionOutcome};
use crate::session::placement::{FetchingJob, PlacedJob};
use crate::supervisor::control::ControlRequest;

/// How many jobs at most are submitted to fetch what one has left. One ends if home does not connect
/// for some minutes.
const MAX_FETCHING_JOBS: u32 = 5;

/// How a job left a session whose files the host of the cluster has.
pub(super) enum LeftBy {
    /// It is over.
    EndedJob(String),
    /// It will start again.
    RequeuedJob(String),
}

impl Keeper {
    /// Makes sure that a job for the session runs and has the session, and returns its node.
    pub(super) fn connect_job(
        &self,
        cluster: &Cluster<'_>,
    ) -> std::result::Result<Connected, Unreached> {
        let placement = self.placement();
        let name = match &placement.job {
            Some(job) => job.name.clone(),
            None => {
                // Saved before it is submitted, so that it is found whatever happens in between.
                let name = job::new_name()?;
                let job = PlacedJob { name: name.clone(), ..PlacedJob::default() };
                self.update(|placement| {
                    placement.place.clone_from(&self.place.name);
                    placement.job = Some(job);
                })?;
                files::step("place.named");
                name
            }
        };
        let of_cluster = |error| Unreached::of(error, cluster.host());
        let Some(job) = cluster.find(&name).map_err(of_cluster)? else {
            if placement.is_away() {
                let why = format!("the cluster does not know its job {name}");
                return self.connect_after_job(cluster, why);
            }
            cluster.submit(&name).map_err(of_cluster)?;
            files::step("place.submitted");
            return Err(Unreached::Waiting("its job was submitted".to_owned()));
        };
        self.update(|placement| {
            let known = placement.job.get_or_insert_default();
            known.name.clone_from(&name);
            known.id = Some(job.id.clone());
        })?;
        let node = match &job.state {
            JobState::Running(node) => node,
            JobState::Pending(_) => {
                if placement.is_away() && !(self.place.config.shared && self.is_waiting()?) {
                    let why = format!("job {} was requeued", job.id);
                    if let Some(host) = self.host_with_session(cluster)? {
                        return Ok(Connected { host, left: Some(LeftBy::RequeuedJob(why)) });
                    }
                    self.take_back(&why)?;
                }
                if self.place.config.shared {
                    self.deliver_early(cluster)?;
                }
                return Err(Unreached::Waiting(job.description()));
            }
            JobState::Ending => {
                return Err(Unreached::Problem(format!(
                    "{}: {}",
                    self.place.name,
                    job.description()
                )));
            }
            JobState::Over(_) if placement.is_away() => {
                return self.connect_after_job(cluster, job.description());
            }
            JobState::Over(_) => {
                self.update(|placement| placement.job = None)?;
                return Err(Unreached::Refused(cluster::ended_early(&job, &self.place)));
            }
        };
        let host = cluster.node(&job.id, node);
        let report = self.report(&host)?;
        if placement.is_away() {
            let there = report.session.as_ref().map(|session| session.attempt);
            if there == Some(placement.attempt) || self.is_waiting()? {
                self.update(|placement| placement.host.clone_from(&host.name))?;
                if there != Some(placement.attempt) {
                    // The delivery was interrupted.
                    self.deliver(&host, &report, placement.attempt)?;
                }
                return Ok(Connected { host, left: None });
            }
            self.take_back(&format!("job {} was started again, on {node}", job.id))?;
        }
        self.deliver_first(&host, &report)?;
        Ok(Connected { host, left: None })
    }

    /// Delivers the session before its job begins, to the files that the host of the cluster shares with
    /// the nodes. The user may stop it there.
    fn deliver_early(&self, cluster: &Cluster<'_>) -> std::result::Result<(), Unreached> {
        let placement = self.placement();
        if self.is_to_stop() {
            if placement.is_away() {
                // It is over then, and the session is taken back.
                self.cancel_job();
            }
            return Ok(());
        }
        if placement.is_away() && self.is_early.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_early.store(false, Ordering::Relaxed);
        let report = self.report(cluster.host())?;
        let there = report.session.as_ref().map(|session| session.attempt);
        match placement.is_away() {
            true if there == Some(placement.attempt) => {}
            // The delivery was interrupted.
            true => self.deliver(cluster.host(), &report, placement.attempt)?,
            false => self.deliver_first(cluster.host(), &report)?,
        }
        self.is_early.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a host that has the files of a job that is over, for this reason: then nothing is lost.
    fn connect_after_job(
        &self,
        cluster: &Cluster<'_>,
        why: String,
    ) -> std::result::Result<Connected, Unreached> {
        match self.host_with_session(cluster)? {
            Some(host) => Ok(Connected { host, left: Some(LeftBy::EndedJob(why)) }),
            None if self.place.config.shared => Err(Unreached::Lost(why)),
            None => self.connect_fetching_job(cluster, why),
        }
    }

    /// Makes sure that a job runs on the node that has the files of a job that is over, and returns the
    /// node.
    fn connect_fetching_job(
        &self,
        cluster: &Cluster<'_>,
        why: String,
    ) -> std::result::Result<Connected, Unreached> {
        let placement = self.placement();
        let node = &placement.host;
        let Some(fetching) = placement.job.and_then(|job| job.fetching) else {
            return self.name_fetching_job(1, why);
        };
        let of_cluster = |error| Unreached::of(error, cluster.host());
        let waiting = |what: &str| Err(Unreached::Waiting(format!("{why}; {what}")));
        let Some(job) = cluster.find(&fetching.name).map_err(of_cluster)? else {
            if fetching.id.is_some() {
                return self.name_fetching_job(fetching.number + 1, why);
            }
            if !cluster.submit_at(&fetching.name, node).map_err(of_cluster)? {
                return Err(Unreached::Lost(why));
            }
            files::step("place.fetching_submitted");
            return waiting(&format!("a job that fetches its work from {node} was submitted"));
        };
        self.update(|placement| {
            if let Some(fetching) = placement.job.as_mut().and_then(|job| job.fetching.as_mut()) {
                fetching.id = Some(job.id.clone());
            }
        })?;
        match &job.state {
            JobState::Running(node) => {
                let host = cluster.node(&job.id, node);
                let there = self.report(&host)?.session.map(|session| session.attempt);
                match there == Some(placement.attempt) {
                    true => Ok(Connected { host, left: Some(LeftBy::EndedJob(why)) }),
                    // The node deleted it.
                    false => Err(Unreached::Lost(why)),
                }
            }
            JobState::Pending(_) if self.is_to_stop() => Err(Unreached::Lost(why)),
            JobState::Pending(_) | JobState::Ending => {
                waiting(&format!("its work is to be fetched from {node}: {}", job.description()))
            }
            JobState::Over(_) => self.name_fetching_job(fetching.number + 1, why),
        }
    }

    /// Saves the name of a job that is to fetch what an earlier one left, before it is submitted, and how
    /// many that makes.
    fn name_fetching_job(
        &self,
        number: u32,
        why: String,
    ) -> std::result::Result<Connected, Unreached> {
        if number > MAX_FETCHING_JOBS || self.is_to_stop() {
            return Err(Unreached::Lost(why));
        }
        let fetching = FetchingJob { name: job::new_name()?, id: None, number };
        self.update(|placement| {
            if let Some(job) = &mut placement.job {
                job.fetching = Some(fetching);
            }
        })?;
        files::step("place.fetching_named");
        Err(Unreached::Waiting(why))
    }

    /// Returns whether the user wants the run to stop, and the place does not know it.
    fn is_to_stop(&self) -> bool {
        let is_stop = |it: &NumberedRequest| it.request == ControlRequest::Stop;
        lock(&self.requests).waiting.iter().any(is_stop)
    }

    /// Returns the host of the cluster if it has the session, as where nodes and host share a home
    /// directory.
    fn host_with_session(
        &self,
        cluster: &Cluster<'_>,
    ) -> std::result::Result<Option<Host>, Unreached> {
        let host = cluster.host();
        let report = match host.ask::<HostReport>("hello", json_line(&self.query())) {
            Ok(report) => report,
            // Then its files are others than those of the nodes.
            Err(HostError::NotInstalled | HostError::Failed(_)) => return Ok(None),
            Err(error @ HostError::Connection(_)) => return Err(Unreached::of(error, host)),
        };
        let attempt = self.placement().attempt;
        if report.session.is_none_or(|session| session.attempt != attempt) {
            return Ok(None);
        }
        self.update(|placement| placement.host.clone_from(&host.name))?;
        Ok(Some(host.clone()))
    }

    /// Takes back a session whose job lost its node: the next delivery continues it.
    pub(super) fn take_back(&self, why: &str) -> Result<()> {
        self.update(|placement| placement.away = false)?;
        let text = format!("{why}: it continues from the work that is here");
        let mut entries = vec![JournalEntry::Note { text }];
        if !self.is_waiting()? {
            let prompt = Some(base::text::CONTINUE_PROMPT.to_owned());
            entries.push(JournalEntry::Queued { prompt });
        }
        self.write_journal(&entries)
    }

    /// Returns whether the run ended without a result although a job was to run it: the job is looked
    /// at again.
    pub(super) fn is_unended_job(&self) -> Result<bool> {
        Ok(self.placement().job.is_some() && !self.is_ended()?)
    }

    /// Ends a run whose job is over although the run has not ended: the user stopped it before it began, or
    /// it is lost.
    pub(super) fn end_without_run(&self, why: &str) -> Result<Option<SessionOutcome>> {
        if self.is_waiting()? {
            self.tidy();
            self.update(|placement| placement.away = false)?;
            if self.stop_before_delivery()? {
                return Ok(Some(SessionOutcome::Stopped));
            }
        }
        self.lose(why)
    }

    /// Cancels the job of the session, if it has one. A job that cannot be cancelled ends by itself
    /// when home does not connect to it.
    pub(super) fn cancel_job(&self) {
        if let (Some(job), Ok(program)) = (self.placement().job, ship::program_path(&self.place))
            && let Some(cluster) = Cluster::of(&self.place, &program)
        {
            let _ = cluster.cancel(&job.name);
            if let Some(fetching) = &job.fetching {
                let _ = cluster.cancel(&fetching.name);
            }
        }
    }
}
