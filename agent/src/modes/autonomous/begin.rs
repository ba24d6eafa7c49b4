//! How a run begins, or is taken up again.

use std::path::Path;
use std::sync::Arc;

use base::clock::Clock;
use base::event::Status;
use base::failure::{Failure, OrFail, Result};
use base::files::{self, Journal};
use planner::verdict::Verdict;

use super::evidence::{Place, Start};
use super::owned;
use super::purse::Purse;
use super::record::{Note, Rounds, Step};
use super::words::{COACH, Contract};
use super::{How, Order, Run, report, requirements};
use crate::gate::Asker;
use crate::prompt::Identity;
use crate::provider::{self, Choice};
use crate::role::Role;
use crate::run::ends::tell_failure;
use crate::run::{Settings, Which, Work};
use crate::session;
use crate::tools::Profile;
use crate::ui::Bus;

/// Rounds at most, unless said.
const ROUNDS: u32 = 5;
/// Questions that a coach may ask its model.
const COACH_TURNS: u32 = 100;
/// Bytes of evidence at most, however much a coach could read.
const MOST_EVIDENCE: u64 = 160_000;
/// The journal of the rounds, in the session's directory.
const JOURNAL: &str = "rounds.jsonl";

/// All that is known before the session is opened.
struct Plan {
    player: Settings,
    coach: Settings,
    room: usize,
    which: Which,
    contract: Contract,
    found: Option<Found>,
}

/// A run to go on with.
struct Found {
    id: String,
    text: String,
    checks: Vec<String>,
    start: Start,
    rounds: Rounds,
}

/// Begins a run, or goes on with one; a failure is told to the bus as well.
pub async fn run(order: &Order, bus: Arc<Bus>, asker: Option<Arc<dyn Asker>>) -> Result<Run> {
    let told = |failure: &Failure| tell_failure(&bus, failure);
    let plan = plan(order).inspect_err(told)?;
    let work = Work::begin(&plan.player, &plan.which, bus.clone(), asker.clone())?;
    let run = open(order, plan, work, (bus.clone(), asker)).await.inspect_err(told)?;
    Ok(run)
}

fn plan(order: &Order) -> Result<Plan> {
    let (player, coach) = sides(&order.settings);
    // Before anything is begun: a coach that cannot be asked would be noticed too late.
    let facts = provider::open(&coach.config, &coach.choice)?;
    let room = facts.facts().context.min(MOST_EVIDENCE) as usize;
    let (text, found) = match &order.how {
        How::New(text) => (text.clone(), None),
        How::Resume(wanted) => {
            let found = found(&order.settings.cwd, wanted.as_deref())?;
            let dir = session::sessions_dir(&order.settings.cwd).join(&found.id);
            let mut given = order.settings.config.studio.checks.list();
            given.extend(order.checks.iter().cloned());
            owned::refuse_strangers(&dir, &found.checks, &given)?;
            (found.text.clone(), Some(found))
        }
    };
    let earlier = found.as_ref().map(|found| found.checks.clone());
    let contract = contract(text, order, earlier.unwrap_or_default())?;
    let which = match &found {
        Some(found) => Which::Resume(Some(found.id.clone())),
        None => {
            Which::New(contract.requirements.iter().take(1).map(|it| it.text.as_str()).collect())
        }
    };
    Ok(Plan { player, coach, room, which, contract, found })
}

async fn open(order: &Order, plan: Plan, work: Work, (bus, asker): Heard) -> Result<Run> {
    let Plan { player, coach, room, contract, found, .. } = plan;
    let place = Place { cwd: player.cwd, keep: work.session.dir.clone() };
    let path = work.session.dir.join(JOURNAL);
    let journal = Journal::open(&path).or_fail(|| format!("cannot open {}", path.display()))?;
    let (rounds, start, note) = match found {
        Some(found) => {
            let most = order.rounds.unwrap_or(found.rounds.most);
            (found.rounds, found.start, Note::Resumed { rounds: most })
        }
        None => {
            let start = place.begin().await?;
            owned::remember(&work.session.dir, &contract.checks)?;
            let note = Note::Begun {
                time: Clock::from_env().stamp(),
                requirements: contract.text.clone(),
                rounds: order.rounds.unwrap_or(ROUNDS),
                checks: contract.checks.clone(),
                start: start.clone(),
            };
            (Rounds::default(), start, note)
        }
    };
    let purse = Purse::new(order.settings.limits);
    let mut run =
        Run { contract, rounds, journal, place, start, purse, work, coach, room, bus, asker };
    let taken_up = matches!(note, Note::Resumed { .. });
    run.note(note)?;
    run.bus.tell(report::begun(&run.contract, run.rounds.most, taken_up));
    Ok(run)
}

/// Who hears what happens, and who can be asked.
type Heard = (Arc<Bus>, Option<Arc<dyn Asker>>);

/// How player and coach are set up. A provider that was typed is meant for both; a model that was
/// typed is meant for the coach only where it is asked at the same place.
fn sides(settings: &Settings) -> (Settings, Settings) {
    let mut both = settings.clone();
    both.config.agent.max_retry_attempts = settings.config.agent.autonomous_max_retry_attempts;
    both.limits.turns = None;
    let providers = &settings.config.providers;
    let at = |role: &Option<String>| settings.choice.reference.clone().or_else(|| role.clone());
    let (player, coach) = (at(&providers.player), at(&providers.coach));
    let typed = Some(settings.choice.clone()).filter(|_| player == coach).unwrap_or_default();
    let choice = Choice { reference: coach, ..typed };
    let turns = both.config.agent.max_turns.unwrap_or(COACH_TURNS).min(COACH_TURNS);
    let mut coach = Settings {
        choice,
        profile: Profile::G3,
        notices: Vec::new(),
        role: Role {
            identity: Identity::Whole(COACH.to_owned()),
            reads_only: true,
            ..Role::default()
        },
        ..both.clone()
    };
    coach.limits.turns = Some(turns);
    let choice = Choice { reference: player, ..settings.choice.clone() };
    (Settings { choice, ..both }, coach)
}

/// The requirements and checks of a run; those of an earlier beginning stay.
fn contract(text: String, order: &Order, earlier: Vec<String>) -> Result<Contract> {
    let mut checks = earlier;
    let configured = order.settings.config.studio.checks.list();
    for line in configured.iter().chain(&order.checks) {
        if !checks.contains(line) {
            checks.push(line.clone());
        }
    }
    let requirements = requirements::of(&text)?;
    Ok(Contract { text, requirements, checks })
}

/// An earlier run on the same requirements.
pub struct Past {
    /// Its session.
    pub id: String,
    /// Rounds that were played.
    pub rounds: u32,
    /// Whether the coach approved in the end.
    pub approved: bool,
    /// Its last verdict.
    pub verdict: Option<Verdict>,
}

/// The latest run on exactly this text, if there is one.
pub fn latest(cwd: &Path, text: &str) -> Result<Option<Past>> {
    let dir = session::sessions_dir(cwd);
    for id in session::list(cwd)?.into_iter().map(|id| id.to_string()) {
        let Ok(notes) = files::read_journal::<Note>(&dir.join(&id).join(JOURNAL)) else { continue };
        let is_meant =
            matches!(notes.first(), Some(Note::Begun { requirements, .. }) if requirements == text);
        if !is_meant {
            continue;
        }
        let rounds = Rounds::of(&notes);
        let verdict = rounds.rounds.iter().rev().find_map(|round| round.verdict().cloned());
        let approved = rounds.next() == Step::End(Status::Done);
        return Ok(Some(Past { id, rounds: rounds.rounds.len() as u32, approved, verdict }));
    }
    Ok(None)
}

/// The run that is meant: by its session, or the latest.
fn found(cwd: &Path, wanted: Option<&str>) -> Result<Found> {
    let dir = session::sessions_dir(cwd);
    let journal = |id: &str| dir.join(id).join(JOURNAL);
    let id = match wanted {
        Some(wanted) => session::find(cwd, Some(wanted))?.to_string(),
        None => {
            let mut all = session::list(cwd)?.into_iter().map(|id| id.to_string());
            all.find(|id| journal(id).exists()).ok_or_else(|| {
                Failure::usage("there is no autonomous run to go on with here")
                    .next("g3 --autonomous")
            })?
        }
    };
    let path = journal(&id);
    let notes: Vec<Note> =
        files::read_journal(&path).or_fail(|| format!("cannot read {}", path.display()))?;
    let rounds = Rounds::of(&notes);
    match notes.into_iter().next() {
        Some(Note::Begun { requirements, checks, start, .. }) => {
            Ok(Found { id, text: requirements, checks, start, rounds })
        }
        Some(_) | None => Err(Failure::usage(format!("session `{id}` is no autonomous run"))
            .next(format!("g3 --resume {id}"))
            .next("g3 --autonomous")),
    }
}
