//! Making a session: everything is decided here and written down once.

use std::collections::BTreeMap;

use base::config::studio::SessionLimits;
use base::failure::{Failure, Result};
use base::id::Id;

use crate::commands::desk::Desk;
use crate::commands::run::{Args, is_attended};
use crate::launch::contract::Options;
use crate::schedule::default_jobs;
use crate::session::random;
use crate::session::record::{Limits, Manner, Part, Record, SCHEMA, Templates};
use studio_git::{checkout, worktree};

/// Ids that are tried before giving up; each is one of 810,000 for its slug.
const TRIES: u32 = 200;

/// What is to be started.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// What the agent is asked to do.
    pub task: String,
    /// Its agent.
    pub agent: Option<String>,
    /// The persona that the agent plays.
    pub persona: Option<String>,
    /// The model that g3 asks instead of the configured one.
    pub model: Option<String>,
    /// The names that g3's tools have instead of the configured ones.
    pub profile: Option<String>,
    /// Branch, tag or commit to start from.
    pub base: Option<String>,
    /// Checks besides the configured ones.
    pub checks: Vec<String>,
    /// Names of the tasks that must be accepted first.
    pub after: Vec<String>,
    /// What its list says of it.
    pub part: Part,
    /// When to stop.
    pub limits: Limits,
    /// How it is run.
    pub manner: Manner,
}

impl Order {
    /// A task with everything else as it is configured.
    pub fn of(task: String) -> Order {
        Order { task, ..Order::default() }
    }

    /// How g3 is to work on it.
    pub fn options(&self) -> Options<'_> {
        Options {
            persona: self.persona.as_deref(),
            model: self.model.as_deref(),
            profile: self.profile.as_deref(),
        }
    }

    /// What the command line says goes for every task that does not say it itself.
    pub fn take_flags(&mut self, args: &Args) {
        self.agent = self.agent.take().or_else(|| args.agent.clone());
        self.persona = self.persona.take().or_else(|| args.persona.clone());
        self.base = self.base.take().or_else(|| args.base.clone());
        self.checks.extend(args.checks.iter().cloned());
        self.model = args.model.clone();
        self.profile = args.profile.clone();
        self.limits = args.limits.limits();
        self.manner = Manner {
            jobs: args.jobs.unwrap_or(0),
            attended: is_attended(args.ways.ask),
            accept: args.ways.accept,
            boxed: args.ways.sandbox != "off",
            config: None,
            directory: None,
        };
    }
}

/// Writes new sessions down, each after those that it waits for. They start when the scheduler
/// finds a place for them.
pub fn create(desk: &Desk, orders: &[Order]) -> Result<Vec<Id>> {
    let mut named: BTreeMap<&str, Id> = BTreeMap::new();
    let mut ids = Vec::with_capacity(orders.len());
    for order in orders {
        let after = order.after.iter().filter_map(|name| named.get(name.as_str()).cloned());
        let id = create_one(desk, order, after.collect())?;
        named.extend(order.part.name.as_deref().map(|name| (name, id.clone())));
        ids.push(id);
    }
    Ok(ids)
}

fn create_one(desk: &Desk, order: &Order, after: Vec<Id>) -> Result<Id> {
    let mut record = Record { after, ..draft(desk, order)? };
    desk.repository.remember_checkout()?;
    for n in 0..TRIES {
        let id = Id::new(&order.task, random::four(&order.task, n)?);
        let wanted = record.templates.order(&id, &record.base)?;
        record.place = wanted.place(&desk.repository)?;
        record.id = id;
        worktree::refuse_blocked_branch(&desk.repository.open()?, &record.place)?;
        let taken = desk.repository.tip(&record.place.branch)?.is_some();
        if !taken && desk.store.create(&record, desk.clock)? {
            return Ok(record.id);
        }
    }
    Err(Failure::refused("no free id was found for this task").next("studio gc"))
}

/// The record of a session, but for the id that it gets. Refuses what could not be started.
pub fn draft(desk: &Desk, order: &Order) -> Result<Record> {
    let studio = &desk.config.studio;
    let base = desk.repository.base(order.base.as_deref())?;
    checkout::refuse_unreadable(&desk.repository, base.branch.as_ref())?;
    let templates = Templates { branch: studio.branch.clone(), worktree: studio.worktree.clone() };
    let mut checks = studio.checks.list();
    let more: Vec<String> =
        order.checks.iter().filter(|check| !checks.contains(check)).cloned().collect();
    checks.extend(more);
    let mut manner = order.manner.clone();
    if manner.jobs == 0 {
        manner.jobs = studio.jobs.unwrap_or_else(default_jobs);
    }
    manner.config = desk.config_file.clone();
    manner.directory = desk.directory.clone();
    manner.boxed = manner.boxed && desk.config.sandbox.enabled;
    if studio.limits.budget_usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
        return Err(Failure::usage("`[studio.limits] budget_usd` is no number of dollars")
            .next("give a number, 0 or more"));
    }
    let id = Id::new(&order.task, [0; 4]);
    let wanted = templates.order(&id, &base)?;
    Ok(Record {
        schema: SCHEMA,
        id,
        task: order.task.clone(),
        agent: order.agent.clone().unwrap_or_else(|| "g3".to_owned()),
        persona: order.persona.clone(),
        model: order.model.clone(),
        profile: order.profile.clone(),
        base,
        place: wanted.place(&desk.repository)?,
        templates,
        checks,
        limits: limits(&order.limits, &studio.limits),
        manner,
        attempt: 1,
        after: Vec::new(),
        part: order.part.clone(),
        created_at: desk.clock.stamp(),
    })
}

/// The flags, then the configuration, then the floor that the disk needs (512 MiB).
fn limits(flags: &Limits, configured: &SessionLimits) -> Limits {
    Limits {
        seconds: flags.seconds.or(configured.timeout_seconds),
        turns: flags.turns.or(configured.max_turns),
        tokens: flags.tokens.or(configured.max_tokens),
        usd: flags.usd.or(configured.budget_usd),
        output_bytes: flags.output_bytes.or(configured.output_bytes),
        disk_floor_bytes: Some(configured.disk_floor_bytes.unwrap_or(512 << 20)),
    }
}
