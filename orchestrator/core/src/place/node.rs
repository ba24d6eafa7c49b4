//! The place's side: the hidden command `studio __node VERB SPOOL`, which home runs there, and
//! `studio __node hold SPOOL JOB`, which a job of a cluster runs.

mod check;
mod deliver;
mod follow;
mod hold;
mod lfs;
mod logout;
mod spool;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::files;
use base::id::Id;
use rustix::fs::Mode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::place::protocol::{
    COMMAND, HostReport, PROTOCOL, PlacedSession, SessionReport, SessionRequest,
    refuse_other_protocol,
};
use crate::place::requests::{NumberedRequest, RequestResult};
use crate::session::journal::{JournalEntry, JournalTail};
use crate::session::store::SessionStore;
use crate::supervisor::control::{self, ControlRequest};
use spool::{JobFiles, Spool};

/// Maximum length of a line of input, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// The arguments of the command.
#[derive(Clone, Debug)]
pub struct NodeArgs {
    verb: String,
    spool: OsString,
    /// The name of the job, for `hold`.
    job: Option<String>,
}

impl NodeArgs {
    /// Parses `__node VERB SPOOL [JOB]`, which studio itself runs; returns `None` for other commands.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Option<NodeArgs> {
        if args.next()? != COMMAND {
            return None;
        }
        let (verb, spool) = (args.next()?.into_string().ok()?, args.next()?);
        let job = args.next().map(OsString::into_string).transpose().ok()?;
        args.next().is_none().then_some(NodeArgs { verb, spool, job })
    }
}

/// Runs the command.
pub fn run(args: &NodeArgs) -> Result<u8> {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let spool = Spool::open(Path::new(&args.spool))?;
    let mut input = BufReader::new(io::stdin().lock());
    match args.verb.as_str() {
        "hold" => hold::hold(&spool, args.job.as_deref().unwrap_or_default()),
        "hello" => answer(&report(&spool, &read_line(&mut input)?)?),
        "ends-at-logout" => answer(&logout::ends_processes()),
        "deliver" => answer(&deliver::deliver(&spool, read_line(&mut input)?, &mut input)?),
        "follow" => follow::follow(&spool, &read_line(&mut input)?, &mut io::stdout().lock()),
        "lfs-missing" => answer(&lfs::missing(&spool, &read_line(&mut input)?)?),
        "lfs" => answer(&lfs::take(&spool, &read_line(&mut input)?, &mut input)?),
        "check" => check::check(&spool, &read_line(&mut input)?, &mut input),
        "request" => answer(&carry_out(&spool, &read_line(&mut input)?)?),
        "tidy" => answer(&deliver::tidy(&spool, &read_line(&mut input)?)?),
        other => Err(Failure::usage(format!("unknown verb: `{other}`"))),
    }
    .map(|()| 0)
}

/// Reads a line of JSON.
fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T> {
    let fail = || "cannot read what home sent";
    let mut line = Vec::new();
    input.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).or_fail(fail)?;
    serde_json::from_slice(&line).or_fail(fail)
}

fn answer(value: &impl Serialize) -> Result<()> {
    let fail = || "cannot answer";
    let mut line = serde_json::to_vec(value).or_fail(fail)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).or_fail(fail)
}

fn report(spool: &Spool, query: &PlacedSession) -> Result<HostReport> {
    let git = base::git_version::detect();
    let machine = crate::admission::Machine::measure();
    let repository = spool.existing_repository(query)?;
    let (mut commits, mut session) = (Vec::new(), None);
    let job = query.job.as_ref().map(|job| JobFiles::new(spool, job)).transpose()?;
    if let Some(repository) = &repository {
        refuse_other_protocol(query)?;
        commits = studio_git::replica::known_commits(repository)?;
        let is_delivered = job.as_ref().is_none_or(|job| job.session().is_some());
        let attempt = spool::attempt(&SessionStore::new(&repository.common_dir), &query.id);
        let attempt = attempt.filter(|_| is_delivered);
        session = attempt.map(|attempt| SessionReport { attempt });
    }
    Ok(HostReport {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        git: git.as_ref().ok().map(ToString::to_string),
        git_problem: git.err().map(|failure| failure.sentence()),
        g3: base::process::sibling_program("g3").is_some()
            || base::process::find_program("g3").is_some(),
        git_lfs: base::process::find_program("git-lfs").is_some(),
        sandbox_gaps: base::sandbox::missing_features().to_vec(),
        free_bytes: crate::admission::free_disk(spool.root()),
        free_memory: machine.free_memory,
        cores: machine.cores as u64,
        load: machine.load,
        sessions: spool.running_sessions(),
        clock: base::clock::Clock::from_env().now().as_second(),
        commits,
        session,
        sees_job: job.is_some_and(|job| job.runs()),
    })
}

/// Sends a request to the supervisor of a session, unless that was done before.
fn carry_out(spool: &Spool, order: &SessionRequest) -> Result<RequestResult> {
    let (repository, id) = (spool.repository(&order.query)?, &order.query.id);
    let store = SessionStore::new(&repository.common_dir);
    if spool::attempt(&store, id) != Some(order.attempt) {
        return Ok(RequestResult::NotRunning);
    }
    let _lock = base::lock::Lock::take(&store.file(id, "request.lock"))
        .or_fail(|| "cannot lock the requests of the session")?;
    let path = store.file(id, "request.json");
    let last: Option<CarriedOut> =
        std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let NumberedRequest { number, request } = &order.request;
    let save = |state: &CarriedOut| {
        files::replace_json(&path, state).or_fail(|| "cannot save the request")
    };
    match last.filter(|last| last.number >= *number) {
        Some(CarriedOut { number: last, .. }) if last > *number => return Ok(RequestResult::Done),
        Some(CarriedOut { result: Some(result), .. }) => return Ok(result),
        // The connection or this process ended in between.
        Some(last) if has_effect(&store, id, last.journal_bytes, request) => {
            let result = RequestResult::Done;
            save(&CarriedOut { result: Some(result.clone()), ..last })?;
            return Ok(result);
        }
        Some(_) | None => {}
    }
    let journal = store.file(id, "journal.jsonl");
    let journal_bytes = std::fs::metadata(&journal).map_or(0, |metadata| metadata.len());
    let begun = CarriedOut { number: *number, journal_bytes, result: None };
    save(&begun)?;
    let result = match control::send_request(&repository.common_dir, id, request) {
        Ok(true) => RequestResult::Done,
        Ok(false) => return Ok(RequestResult::NotRunning),
        Err(failure) => RequestResult::Refused(failure.reason().unwrap_or_default().to_owned()),
    };
    save(&CarriedOut { result: Some(result.clone()), ..begun })?;
    Ok(result)
}

/// The last request of a session.
#[derive(Serialize, Deserialize)]
struct CarriedOut {
    number: u64,
    /// The length of the journal before it.
    journal_bytes: u64,
    /// The result; `None` before it is known.
    result: Option<RequestResult>,
}

/// Returns whether the journal says after this offset that a request was carried out.
fn has_effect(store: &SessionStore, id: &Id, offset: u64, request: &ControlRequest) -> bool {
    let mut tail = JournalTail::from_offset(store.file(id, "journal.jsonl"), offset);
    let lines = tail.read_new().unwrap_or_default();
    lines.iter().any(|line| match (&line.entry, request) {
        (JournalEntry::Sent { text }, ControlRequest::Send { text: sent }) => text == sent,
        (JournalEntry::StopRequested { .. }, ControlRequest::Stop) => true,
        (JournalEntry::Answered { n, .. }, ControlRequest::Answer { n: asked, .. }) => {
            asked.is_none_or(|asked| asked == *n)
        }
        (JournalEntry::SameLines { id, .. }, ControlRequest::SameLines { id: told, .. }) => {
            id == told
        }
        _ => false,
    })
}
