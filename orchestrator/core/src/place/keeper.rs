//! Home's side of a session at a place: delivers it, brings home what happens there, and carries the
//! user's requests over. It holds the session's lock as a supervisor does, and can be killed and started
//! again at any moment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::files;
use base::lock::Lock;
use studio_git::replica;
use studio_git::repo::Repository;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::launch::live_message::LiveMessages;
use crate::notification::Notifier;
use crate::place::cluster::Cluster;
use crate::place::configured_place::Place;
use crate::place::hello;
use crate::place::host::{Host, HostError};
use crate::place::host_choice::{self, HostAnswer};
use crate::place::job_connection::LeftBy;
use crate::place::lfs;
use crate::place::link::{self, FollowEnd, PlaceLink};
use crate::place::protocol::{self, Order};
use crate::place::protocol::{HostReport, KnownSessions, PlacedSession, SessionRequest};
use crate::place::requests::{NumberedRequest, RequestResult, Requests};
use crate::place::ship;
use crate::place::unreached;
use crate::project::Project;
use crate::session::collect;
use crate::session::journal::{JournalEntry, SessionOutcome};
use crate::session::placement::Placement;
use crate::session::record::SessionRecord;
use crate::session::store::SessionStore;
use crate::session::summary::Phase;
use crate::supervisor::control::{self, ControlCall, ControlChannels, ControlRequest};

/// The first wait after a broken connection; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The longest wait between two attempts to connect.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait between two questions whether a job runs, with few sessions at the place.
const LONGEST_WAIT_FOR_JOB: Duration = Duration::from_secs(5);
/// How many questions a second all sessions of the repository at a place ask at most.
const QUESTIONS_PER_SECOND: u32 = 20;
/// How long the sender of a request waits for its result. A request that is not carried out by then
/// still will be.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the longest wait between two questions whether a job runs, with this number of other sessions
/// at the place.
fn longest_wait_for_job(sessions: u64) -> Duration {
    let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
    LONGEST_WAIT_FOR_JOB.max(Duration::from_secs(sessions.into()) / QUESTIONS_PER_SECOND)
}

/// Returns the result of a request to its sender.
type ReplySender = oneshot::Sender<std::result::Result<(), String>>;

/// A host that has the session.
pub(super) struct Connected {
    /// The host.
    pub host: Host,
    /// What has become of the job that ran the session, if nothing runs it there now.
    pub left: Option<LeftBy>,
}

/// What home knows about a session at a place, shared by its tasks.
#[derive(Clone)]
pub(crate) struct Keeper {
    /// The repository at home.
    pub repository: Repository,
    /// The sessions at home.
    pub store: SessionStore,
    /// The session.
    pub record: SessionRecord,
    pub(super) place: Place,
    settings: Arc<base::config::studio::StudioConfig>,
    pub(super) placement: Arc<Mutex<Placement>>,
    pub(super) requests: Arc<Mutex<Requests>>,
    /// Who waits for the results of requests, by number.
    replies: Arc<Mutex<BTreeMap<u64, ReplySender>>>,
    /// The message that the agent is writing there.
    pub live: LiveMessages,
    /// Wakes the task that carries requests over.
    wake: Arc<Notify>,
    /// Ends a wait when the session is to be stopped.
    stop: Arc<Notify>,
    /// Whether the session is known to be at the place although its job has not begun.
    pub(super) is_early: Arc<AtomicBool>,
}

/// Keeps a session at its place until its run has ended or is lost. The caller holds its lock. Returns
/// the outcome; `None` if the run is lost.
pub(crate) fn supervise(
    project: &Project,
    record: &SessionRecord,
    notifier: Notifier,
) -> Result<Option<SessionOutcome>> {
    let (repository, store) = (project.repository.clone(), project.store.clone());
    let id = record.id.clone();
    let name = record.run_mode.place.as_deref().unwrap_or_default();
    let placement = Placement::read(&store, &id).unwrap_or_default();
    let place = match Place::find(&project.config, name) {
        Ok(place) => place,
        Err(failure) if placement.is_away() => {
            let placement = unreached::given_up(placement, &store, &id, failure.sentence())?;
            placement.write(&store, &id)?;
            let has_begun = store.summary(&id)?.phase != Phase::Queued;
            return if has_begun { Ok(None) } else { Err(failure) };
        }
        Err(failure) => return Err(failure),
    };
    let keeper = Keeper {
        requests: Arc::new(Mutex::new(Requests::read(&store, &id))),
        replies: Arc::default(),
        repository,
        store,
        record: record.clone(),
        place,
        settings: Arc::new(project.config.studio.clone()),
        placement: Arc::new(Mutex::new(placement)),
        live: LiveMessages::default(),
        wake: Arc::default(),
        stop: Arc::default(),
        is_early: Arc::default(),
    };
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let outcome = runtime.block_on(keeper.run(project, &notifier));
    drop(runtime);
    outcome
}

impl Keeper {
    async fn run(&self, project: &Project, notifier: &Notifier) -> Result<Option<SessionOutcome>> {
        let id = &self.record.id;
        let (requests_tx, requests_rx) = mpsc::unbounded_channel();
        let channels = ControlChannels { requests: requests_tx, live: self.live.clone() };
        let _endpoint = control::serve(&self.repository.common_dir, id, channels)
            .or_fail(|| "cannot open the control socket")?;
        let carrier = tokio::spawn(self.clone().carry_requests(requests_rx));
        let end = self.keep_link(project, notifier).await;
        carrier.abort();
        let _ = carrier.await;
        let end = match end {
            // The run goes on there, whatever is wrong here.
            Err(failure) if self.placement().is_away() && !self.is_waiting()? => {
                self.give_up(&failure.sentence())
            }
            end => end,
        };
        if let Err(failure) = &end {
            // Home writes the journal from here on.
            self.update(|placement| {
                placement.place.clone_from(&self.place.name);
                placement.away = false;
                placement.problem = None;
                placement.lost.get_or_insert_with(|| failure.sentence());
            })?;
        }
        let end = end?;
        if self.placement().unreached.is_none() {
            self.requeue_unsent_messages()?;
        }
        lock(&self.replies).clear();
        Ok(end)
    }

    /// Connects until the run has ended or is lost.
    async fn keep_link(
        &self,
        project: &Project,
        notifier: &Notifier,
    ) -> Result<Option<SessionOutcome>> {
        if self.placement().is_away() && self.is_ended()? {
            // Its last line was taken before home was killed.
            return self.settle();
        }
        let (mut wait, mut last_contact) = (FIRST_WAIT, Instant::now());
        loop {
            let mut longest = LONGEST_WAIT;
            let keeper = self.clone();
            let connecting = tokio::task::spawn_blocking(move || keeper.connect());
            let connected = connecting.await.or_fail(|| "cannot connect to the place")?;
            let problem = match connected {
                Ok(Connected { host, left }) => {
                    let mut link = PlaceLink::open(self, &host, left.is_some(), notifier).await?;
                    self.wake.notify_one();
                    let end = link.run(|| drop(project.schedule())).await?;
                    if link.was_heard() {
                        (wait, last_contact) = (FIRST_WAIT, Instant::now());
                    }
                    match (end, left) {
                        (FollowEnd::Ended, left) if self.is_unended_job()? => match left {
                            None => "the run in the job has not ended properly".to_owned(),
                            Some(LeftBy::RequeuedJob(why)) => {
                                self.take_back(&why)?;
                                why
                            }
                            Some(LeftBy::EndedJob(why)) => return self.end_without_run(&why),
                        },
                        (FollowEnd::Ended, left) => {
                            if let Some(LeftBy::RequeuedJob(_)) = left {
                                self.cancel_job();
                            }
                            return self.settle();
                        }
                        (FollowEnd::Superseded, _) => {
                            return self.lose(&format!(
                                "{} has a later delivery of the session",
                                host.name
                            ));
                        }
                        (FollowEnd::Broken(problem), _) => no_connection(&problem),
                    }
                }
                Err(Unreached::Refused(failure)) if self.is_waiting()? => return Err(failure),
                // The run goes on there, whatever is wrong with the host now.
                Err(Unreached::Refused(failure)) => failure.sentence(),
                Err(Unreached::Problem(problem)) => no_connection(&problem),
                Err(Unreached::Lost(why)) => return self.lose(&why),
                Err(Unreached::Waiting(why)) => {
                    last_contact = Instant::now();
                    let sessions = self.placed_sessions()?.values().sum();
                    longest = longest_wait_for_job(sessions);
                    why
                }
            };
            if self.stop_before_delivery()? {
                return Ok(Some(SessionOutcome::Stopped));
            }
            self.update(|placement| {
                placement.place.clone_from(&self.place.name);
                placement.problem = Some(problem.clone());
            })?;
            let silence = last_contact.elapsed();
            if silence > Duration::from_secs(self.place.config.lost_after()) {
                let minutes = silence.as_secs().div_ceil(60);
                let minutes = base::text::count(minutes, "minute");
                return self.give_up(&format!("{problem}, for {minutes}"));
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (2 * wait).min(longest),
                () = self.stop.notified() => wait = FIRST_WAIT,
            }
        }
    }

    /// Makes sure that the session is at a host of the place, and returns the host.
    fn connect(&self) -> std::result::Result<Connected, Unreached> {
        let program = ship::program_path(&self.place)?;
        match Cluster::of(&self.place, &program) {
            Some(cluster) => self.connect_job(&cluster),
            None => self.connect_host(&program).map(|host| Connected { host, left: None }),
        }
    }

    fn connect_host(&self, program: &str) -> std::result::Result<Host, Unreached> {
        let placement = self.placement();
        if placement.is_away() {
            let host = Host::new(&self.place, &placement.host, program);
            host.share_connection();
            let report = self.report(&host)?;
            let there = report.session.as_ref().map(|session| session.attempt);
            if there == Some(placement.attempt) {
                return Ok(host);
            }
            if there.is_some_and(|attempt| attempt > placement.attempt) {
                return Err(Unreached::Refused(Failure::refused(format!(
                    "{} has a later delivery of the session",
                    host.name
                ))));
            }
            if self.is_waiting()? {
                // The delivery was interrupted.
                self.deliver(&host, &report, placement.attempt)?;
                return Ok(host);
            }
            self.take_back(&format!("{} no longer has the session", host.name))?;
        }
        let (host, report) = self.choose_host(program)?;
        self.deliver_first(&host, &report)?;
        Ok(host)
    }

    /// Delivers the session to a host that does not have it.
    pub(super) fn deliver_first(
        &self,
        host: &Host,
        report: &HostReport,
    ) -> std::result::Result<(), Unreached> {
        self.prepare_home()?;
        let placement = self.placement();
        let attempt = placement.attempt + 1;
        // From here on only the place writes the journal.
        self.update(|placement| {
            *placement = Placement {
                place: self.place.name.clone(),
                host: host.name.clone(),
                job: placement.job.clone(),
                attempt,
                away: true,
                heard_at: Some(Clock::from_env().stamp()),
                ..Placement::default()
            };
        })?;
        files::step("place.chosen");
        self.deliver(host, report, attempt)?;
        files::step("place.delivered");
        Ok(())
    }

    /// Writes lines of the journal at home.
    pub(super) fn write_journal(&self, entries: &[JournalEntry]) -> Result<()> {
        let fail = || "cannot write the journal";
        let mut writer = self.store.writer(&self.record.id, Clock::from_env())?;
        for entry in entries {
            writer.write(entry.clone()).or_fail(fail)?;
        }
        writer.sync().or_fail(fail)
    }

    /// Ends a run that was not delivered, if the user stops it.
    pub(super) fn stop_before_delivery(&self) -> Result<bool> {
        let placement = self.placement();
        let waiting = lock(&self.requests).waiting.clone();
        let stop = waiting.into_iter().find(|it| it.request == ControlRequest::Stop);
        let Some(stop) = stop.filter(|_| !placement.is_away()) else { return Ok(false) };
        self.cancel_job();
        self.write_journal(&[JournalEntry::Exit { outcome: SessionOutcome::Stopped, ms: None }])?;
        self.update(|placement| {
            placement.job = None;
            placement.problem = None;
        })?;
        lock(&self.requests).remove(&self.store, &self.record.id, stop.number)?;
        if let Some(reply) = lock(&self.replies).remove(&stop.number) {
            let _ = reply.send(Ok(()));
        }
        Ok(true)
    }

    /// Returns what names the session at its place.
    pub(crate) fn query(&self) -> PlacedSession {
        let job = self.placement().job.map(|job| job.name);
        PlacedSession {
            shared: self.place.config.shared,
            ..protocol::query(&self.repository, &self.record.id, job)
        }
    }

    /// Returns the host that has the session; `None` if no job runs it.
    fn host(&self) -> Result<Option<Host>> {
        let program = ship::program_path(&self.place)?;
        let placement = self.placement();
        let job = placement.job.and_then(|job| match job.fetching {
            Some(fetching) => fetching.id,
            None => job.id,
        });
        Ok(match (Cluster::of(&self.place, &program), job) {
            (None, _) => Some(Host::new(&self.place, &placement.host, &program)),
            (Some(cluster), Some(_)) if placement.host == cluster.host().name => {
                Some(cluster.host().clone())
            }
            (Some(cluster), Some(id)) => Some(cluster.node(&id, &placement.host)),
            (Some(_), None) => None,
        })
    }

    /// Returns a host that has the files of the session, also when its job is over.
    fn host_for_tidying(&self) -> Result<Option<Host>> {
        let program = ship::program_path(&self.place)?;
        match Cluster::of(&self.place, &program).filter(|_| self.place.config.shared) {
            Some(cluster) => Ok(Some(cluster.host().clone())),
            None => self.host(),
        }
    }

    /// Returns what a host says about itself.
    pub(super) fn report(&self, host: &Host) -> std::result::Result<HostReport, Unreached> {
        let report = hello::report(&self.place, host, &self.query());
        report.map_err(|error| Unreached::of(error, host))
    }

    /// Returns the host with the most room, and saves that the session goes there. Only that one is
    /// asked if the hosts have answered another start just now.
    fn choose_host(&self, program: &str) -> std::result::Result<(Host, HostReport), Unreached> {
        let names = self.place.config.all_hosts();
        let path = host_choice::answers_file(&self.repository, &self.place)?;
        let mut asking = None;
        let mut recent = host_choice::recent_answers(&path, &names);
        if recent.is_empty() && names.len() > 1 {
            // Of the sessions that start at the same time, one asks, and the others wait for its answers.
            asking = Some(host_choice::lock(&path)?);
            recent = host_choice::recent_answers(&path, &names);
        }
        if let Some(name) = self.take_best(&recent)? {
            drop(asking.take());
            let host = Host::new(&self.place, &name, program);
            host.share_connection();
            if let Ok(report) = self.report(&host) {
                return Ok((host, report));
            }
        }
        let (mut answers, mut first_error) = (Vec::new(), None);
        let ask = |name: &str| {
            let host = Host::new(&self.place, name, program);
            host.share_connection();
            self.report(&host)
        };
        for (name, answer) in names.iter().zip(host_choice::ask_all(&names, ask)) {
            match answer {
                Ok(report) => answers.push(HostAnswer { name: name.clone(), report }),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        host_choice::save_answers(&path, &answers);
        drop(asking);
        let name = self.take_best(&answers)?;
        match (answers.into_iter().find(|it| Some(&it.name) == name.as_ref()), first_error) {
            (Some(HostAnswer { name, report }), _) => {
                Ok((Host::new(&self.place, &name, program), report))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(Failure::usage("the place has no host").into()),
        }
    }

    /// Saves that the session goes to the best of these hosts; returns its name. Sessions that start at
    /// the same time see each other, although no host knows of them yet.
    fn take_best(&self, answers: &[HostAnswer]) -> Result<Option<String>> {
        let path = self.repository.studio_dir()?.join("places.lock");
        let _lock = Lock::take(&path).or_fail(|| format!("cannot lock {}", path.display()))?;
        let placed = self.placed_sessions()?;
        let Some(best) = host_choice::best(answers, &placed) else { return Ok(None) };
        self.update(|placement| {
            placement.place.clone_from(&self.place.name);
            placement.host.clone_from(&best.name);
            placement.lost = None;
        })?;
        Ok(Some(best.name.clone()))
    }

    /// Returns how many sessions of this repository run or are about to run on each host of the place.
    fn placed_sessions(&self) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for id in self.store.ids()? {
            let is_other = id != self.record.id && self.store.is_locked(&id);
            let placement = is_other.then(|| Placement::read(&self.store, &id)).flatten();
            if let Some(placement) = placement.filter(|it| it.place == self.place.name) {
                *counts.entry(placement.host).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Creates the session's branch and private git directory at home. A worktree that is there is
    /// moved away: the session continues at the place with the work that it contains.
    fn prepare_home(&self) -> Result<()> {
        let session_repo = &self.record.session_repo;
        let (branches, start) = (self.record.templates.branches()?, self.record.start.as_ref());
        replica::create(&self.repository, session_repo, &branches, start)?;
        if session_repo.worktree.symlink_metadata().is_err() {
            return Ok(());
        }
        let _shell_lock = self.store.lock_shell(&self.record.id)?;
        let limits = studio_git::snapshot::SnapshotLimits::default();
        let (_, snapshot) = collect::fetch(&self.repository, &self.record, &limits)?;
        studio_git::snapshot::refuse_omissions(&snapshot, &session_repo.worktree)?;
        let nonce = base::random::hex::<4>().or_fail(|| "no random bytes")?;
        let name = format!("{}.before-{nonce}", self.record.id);
        let target = session_repo.worktree.with_file_name(name);
        std::fs::rename(&session_repo.worktree, &target)
            .or_fail(|| format!("cannot move {}", session_repo.worktree.display()))?;
        let text = format!(
            "the session continues at {} with the work of its worktree, which is now {}",
            self.place.name,
            target.display()
        );
        self.write_journal(&[JournalEntry::Note { text }])
    }

    /// Sends the session to a host.
    pub(super) fn deliver(
        &self,
        host: &Host,
        report: &HostReport,
        attempt: u32,
    ) -> std::result::Result<(), Unreached> {
        if self.needs_g3() && !report.g3 {
            ship::install_g3(host, &self.place)?;
        }
        let work = replica::work_refs(&self.repository, &self.record.session_repo)?;
        let work = work.ok_or_else(|| Failure::failed("the branch of the session is missing"))?;
        let journal = std::fs::read(self.journal()).or_fail(|| "cannot read the journal")?;
        let mut commits = work.commits();
        commits.push(self.record.base.commit.clone());
        lfs::send(host, &self.query(), &self.repository, &commits)
            .map_err(|error| Unreached::of(error, host))?;
        let pack = replica::pack(&self.repository, &commits, &report.commits)?;
        let pack_bytes = pack.metadata().or_fail(|| "cannot pack the work")?.len();
        let order = Order {
            journal_bytes: journal.len() as u64,
            pack_bytes,
            ..Order::of(
                &self.repository,
                &self.settings,
                &self.place,
                (self.query(), &self.record),
                (attempt, work),
            )?
        };
        let delivered = link::send_order(host, &order, &journal, pack);
        let delivered = delivered.map_err(|error| Unreached::of(error, host))?;
        self.update(|placement| placement.set_aside = delivered.set_aside)?;
        Ok(())
    }

    /// Returns whether the agent is g3 as studio knows it.
    fn needs_g3(&self) -> bool {
        let configured = self.settings.agents.get(&self.record.agent);
        self.record.agent == "g3" && configured.is_none_or(|row| row.command.is_empty())
    }

    /// Returns the path of home's journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.store.file(&self.record.id, "journal.jsonl")
    }

    /// Takes the session back after its run: home writes its journal from here on.
    fn settle(&self) -> Result<Option<SessionOutcome>> {
        match self.store.summary(&self.record.id)?.phase {
            Phase::Ended { outcome } => {
                files::step("place.ended");
                self.update(|placement| {
                    placement.away = false;
                    placement.problem = None;
                })?;
                self.tidy();
                if self.placement().job.is_some_and(|job| job.fetching.is_some()) {
                    self.cancel_job();
                }
                self.update(|placement| placement.job = None)?;
                Ok(Some(outcome))
            }
            _ => self.lose("its supervisor exited unexpectedly there"),
        }
    }

    /// Records that the run is lost. One that never began, as far as home knows, has failed.
    pub(super) fn lose(&self, why: &str) -> Result<Option<SessionOutcome>> {
        self.cancel_job();
        self.update(|placement| {
            placement.away = false;
            placement.problem = None;
            placement.job = None;
            placement.lost = Some(why.to_owned());
        })?;
        if !self.is_waiting()? {
            return Ok(None);
        }
        Err(Failure::failed(format!("it did not start at {}", self.place.name))
            .because(why)
            .hint(format!("studio places check {}", self.place.name)))
    }

    /// Records that the place cannot be reached. The run may go on there, if it has begun.
    fn give_up(&self, why: &str) -> Result<Option<SessionOutcome>> {
        if self.is_waiting()? {
            return self.lose(why);
        }
        let (store, id) = (&self.store, &self.record.id);
        let placement = unreached::given_up(self.placement(), store, id, why.to_owned())?;
        self.update(|it| *it = placement)?;
        Ok(None)
    }

    /// Returns whether the run has not begun, as far as home knows.
    pub(super) fn is_waiting(&self) -> Result<bool> {
        Ok(self.store.summary(&self.record.id)?.phase == Phase::Queued)
    }

    /// Returns whether the run has ended with a result, as far as home knows.
    pub(super) fn is_ended(&self) -> Result<bool> {
        Ok(matches!(self.store.summary(&self.record.id)?.phase, Phase::Ended { .. }))
    }

    /// Tells the place that the run is settled, and lets it delete sessions that home no longer has.
    /// They only take space there, and a job that is not told ends by itself.
    pub(super) fn tidy(&self) {
        let (Ok(Some(host)), Ok(known)) = (self.host_for_tidying(), self.store.ids()) else {
            return;
        };
        let settled = self.placement().attempt;
        let known = KnownSessions { query: self.query(), known, settled };
        let _ = host.ask::<u64>("tidy", json_line(&known));
    }

    /// A message that reached no agent starts the next run, unless its sender still waits: then the
    /// sender is told that the run is ending, and starts the next one.
    fn requeue_unsent_messages(&self) -> Result<()> {
        let id = &self.record.id;
        let waiting = lock(&self.requests).waiting.clone();
        for NumberedRequest { number, request } in waiting {
            let has_sender = lock(&self.replies).contains_key(&number);
            if let (ControlRequest::Send { text }, false) = (request, has_sender) {
                self.write_journal(&[JournalEntry::Queued { prompt: Some(text) }])?;
            }
            lock(&self.requests).remove(&self.store, id, number)?;
        }
        Ok(())
    }

    /// Saves requests and carries them over, one after the other.
    async fn carry_requests(self, mut calls: mpsc::UnboundedReceiver<ControlCall>) {
        let mut senders = tokio::task::JoinSet::new();
        senders.spawn(self.clone().send_requests());
        while let Some((request, reply)) = calls.recv().await {
            if let ControlRequest::Status | ControlRequest::Follow = request {
                let _ = reply.send(Ok(()));
                continue;
            }
            let is_stop = request == ControlRequest::Stop;
            match lock(&self.requests).add(&self.store, &self.record.id, request) {
                Ok(number) => {
                    lock(&self.replies).insert(number, reply);
                    self.wake.notify_one();
                    if is_stop {
                        self.stop.notify_one();
                    }
                    let replies = self.replies.clone();
                    senders.spawn(async move {
                        tokio::time::sleep(REQUEST_TIMEOUT).await;
                        // It is saved, and will be carried out.
                        let reply = lock(&replies).remove(&number);
                        if let Some(reply) = reply {
                            let _ = reply.send(Ok(()));
                        }
                    });
                }
                Err(failure) => drop(reply.send(Err(failure.full_text()))),
            }
        }
    }

    /// Sends the requests that wait, whenever there is a connection, and again if that fails.
    async fn send_requests(self) {
        let mut wait = FIRST_WAIT;
        loop {
            let is_waiting = !lock(&self.requests).waiting.is_empty();
            tokio::select! {
                () = tokio::time::sleep(wait), if is_waiting => {
                    wait = (2 * wait).min(LONGEST_WAIT);
                }
                () = self.wake.notified() => wait = FIRST_WAIT,
            }
            loop {
                let next = lock(&self.requests).waiting.first().cloned();
                let Some(next) = next else { break };
                let (keeper, request) = (self.clone(), next.clone());
                let sent = tokio::task::spawn_blocking(move || keeper.send_request(&request)).await;
                let result = match sent {
                    Ok(Some(RequestResult::Done)) => Ok(()),
                    Ok(Some(RequestResult::Refused(reason))) => Err(reason),
                    // The run there begins or ends. After its end a message starts the next one.
                    Ok(Some(RequestResult::NotRunning) | None) | Err(_) => break,
                };
                let _ = lock(&self.requests).remove(&self.store, &self.record.id, next.number);
                let reply = lock(&self.replies).remove(&next.number);
                if let Some(reply) = reply {
                    let _ = reply.send(result);
                }
            }
        }
    }

    /// Sends one request; `None` if the host cannot be reached.
    fn send_request(&self, request: &NumberedRequest) -> Option<RequestResult> {
        let placement = self.placement();
        if !placement.is_away() {
            return None;
        }
        let host = self.host().ok()??;
        let request = SessionRequest {
            query: self.query(),
            attempt: placement.attempt,
            request: request.clone(),
        };
        host.ask("request", json_line(&request)).ok()
    }

    /// Returns where the session is.
    pub(crate) fn placement(&self) -> Placement {
        lock(&self.placement).clone()
    }

    /// Changes the placement, and saves it if it is different then.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Placement)) -> Result<()> {
        let mut placement = lock(&self.placement);
        let before = placement.clone();
        change(&mut placement);
        match *placement == before {
            true => Ok(()),
            false => placement.write(&self.store, &self.record.id),
        }
    }
}

/// Why a session cannot be kept at its place now.
pub(super) enum Unreached {
    /// It waits for its job.
    Waiting(String),
    /// For a reason that may pass.
    Problem(String),
    /// Its job is over.
    Lost(String),
    /// For a reason that stays.
    Refused(Failure),
}

impl Unreached {
    pub(super) fn of(error: HostError, host: &Host) -> Unreached {
        match error {
            HostError::Connection(why) => Unreached::Problem(format!("{}: {why}", host.name)),
            error @ (HostError::NotInstalled | HostError::Failed(_)) => {
                Unreached::Refused(error.into_failure(host))
            }
        }
    }
}

impl From<Failure> for Unreached {
    fn from(failure: Failure) -> Unreached {
        Unreached::Refused(failure)
    }
}

fn no_connection(problem: &str) -> String {
    format!("no connection to {problem}")
}

/// Returns a value as one line.
pub(crate) fn json_line(value: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_sessions_ask_for_their_jobs_less_often() {
        for (sessions, seconds) in [(0, 5), (10, 5), (100, 5), (1000, 50)] {
            assert_eq!(longest_wait_for_job(sessions), Duration::from_secs(seconds), "{sessions}");
        }
    }
}
