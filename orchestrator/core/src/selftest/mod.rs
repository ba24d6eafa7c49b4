//! The self-test: random operations on a scratch repository with a scripted agent, one after another
//! or several at once, killed at random moments, and the invariants after each step.

pub mod agent;
mod operation;
mod scratch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base::failure::Result;

use crate::invariants::Baseline;
use crate::selftest::operation::{OperationChooser, Program, SelftestOperation};
use crate::selftest::scratch::{CommandEnd, ScratchRepository};

/// Steps per round; each round has a repository of its own.
const STEPS: u64 = 12;

/// The states of sessions that have come to an end.
const FINAL: [&str; 5] = ["ready", "empty", "failed", "accepted", "discarded"];

/// The beginning of the sentence about the file that the user saves.
const CHANGE_OF_SHARED: &str = "file shared of the main checkout is";

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct SelftestOptions {
    /// Whether processes are killed.
    pub chaos: bool,
    /// How many operations of a step run at once.
    pub parallel: u64,
    /// The number of rounds; the time decides when absent.
    pub rounds: Option<u64>,
    /// The time after which no new round starts.
    pub time: Duration,
    /// The seed of all choices.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct SelftestReport {
    /// Completed rounds.
    pub rounds: u64,
    /// Operations of all rounds.
    pub operations: u64,
    /// Operations that were killed.
    pub killed: u64,
    /// Violated invariants, one sentence each.
    pub findings: Vec<String>,
    /// The scratch repositories of rounds with findings.
    pub kept: Vec<PathBuf>,
}

/// Random numbers (SplitMix64): the same for the same seed on every machine.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns an index of a list of this length, 0 if it is empty.
    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    fn one_of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> Option<&'a T> {
        list.get(self.index(list.len())).copied()
    }
}

/// Runs rounds; `on_round` gets the report after each.
pub fn run(
    options: &SelftestOptions,
    on_round: &mut dyn FnMut(&SelftestReport),
) -> Result<SelftestReport> {
    let mut report = SelftestReport::default();
    let begin = Instant::now();
    // Typical times, by which a moment for a kill is chosen.
    let mut times = BTreeMap::new();
    let is_due = |report: &SelftestReport| match options.rounds {
        Some(rounds) => report.rounds < rounds,
        None => begin.elapsed() < options.time,
    };
    while is_due(&report) {
        let mut random = RandomNumbers(options.seed.wrapping_add(report.rounds));
        let scratch = ScratchRepository::create(random.next())?;
        let chooser = OperationChooser::default();
        let mut round = Round { scratch, random, times, chooser, options: *options };
        let before = report.findings.len();
        round.run(&mut report)?;
        times = round.times;
        report.rounds += 1;
        if report.findings.len() > before {
            report.kept.push(round.scratch.keep());
        }
        on_round(&report);
    }
    Ok(report)
}

/// One round.
struct Round {
    scratch: ScratchRepository,
    random: RandomNumbers,
    times: BTreeMap<String, Duration>,
    chooser: OperationChooser,
    options: SelftestOptions,
}

impl Round {
    fn run(&mut self, report: &mut SelftestReport) -> Result<()> {
        let mut earlier: Option<Baseline> = None;
        for number in 1..=STEPS {
            let operations = self.choose()?;
            // `studio list` starts what is due.
            self.scratch.settle();
            if let Err(failure) = self.scratch.prepare(&operations) {
                report.findings.push(format!("before step {number}: {}", failure.sentence()));
                return Ok(());
            }
            let mut baseline = self.scratch.baseline()?;
            if let Some(earlier) = &earlier {
                baseline.add_work_of(earlier);
            }
            let found = self.step(&operations, &baseline, report)?;
            report.operations += self.options.parallel;
            let names: Vec<String> = operations.iter().map(ToString::to_string).collect();
            let names = names.join(" & ");
            let kind = self.scratch.kind();
            let place = format!("round {}, {kind}, step {number}, {names}", report.rounds + 1);
            let is_broken = !found.is_empty();
            report.findings.extend(found.into_iter().map(|it| format!("{place}: {it}")));
            if is_broken {
                // What follows would only repeat it.
                return Ok(());
            }
            earlier = Some(baseline);
        }
        let place = format!("round {}, {}, at its end", report.rounds + 1, self.scratch.kind());
        report.findings.extend(self.unfinished()?.into_iter().map(|it| format!("{place}: {it}")));
        Ok(())
    }

    /// Resumes what was interrupted, and returns the sessions that do not come to an end.
    fn unfinished(&mut self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let resumed = self.scratch.studio(&["resume", "--all"])?;
        judge("studio resume --all", &resumed, &mut found);
        found.extend(left(&self.scratch.settle()));
        let list = self.scratch.sessions()?;
        for session in list["sessions"].as_array().into_iter().flatten() {
            let state = session["state"].as_str().unwrap_or_default();
            if !FINAL.contains(&state) {
                found.push(format!("`{}` is {state} after `studio resume --all`", session["id"]));
            }
        }
        Ok(found)
    }

    /// Chooses the operations of a step, each of which the sessions allow.
    fn choose(&mut self) -> Result<Vec<SelftestOperation>> {
        let list = self.scratch.sessions()?;
        let mut operations: Vec<SelftestOperation> = Vec::new();
        for _ in 0..self.options.parallel {
            let operation = self.chooser.choose(&list, &mut self.random);
            // Of two programs that save the same file, one overwrites the work of the other.
            let is_saved = |chosen: &SelftestOperation| chosen.saved.is_some();
            match operation.saved.is_some() && operations.iter().any(is_saved) {
                true => operations.push(SelftestOperation::studio(&["list"])),
                false => operations.push(operation),
            }
        }
        Ok(operations)
    }

    /// Chooses when an operation is killed, if it is.
    fn choose_kill(&mut self, operation: &SelftestOperation) -> Option<Duration> {
        let usual = self.times.get(operation.name()).copied().unwrap_or(Duration::from_millis(300));
        let micros = u64::try_from(usual.as_micros()).unwrap_or(u64::MAX).saturating_mul(6) / 5;
        let moment = Duration::from_micros(self.random.below(micros));
        let is_studio = operation.program == Program::Studio;
        let is_killed = self.options.chaos && is_studio && self.random.below(2) == 0;
        is_killed.then_some(moment)
    }

    /// Runs operations at once, each possibly killed, then what repairs them; returns what is violated.
    fn step(
        &mut self,
        operations: &[SelftestOperation],
        baseline: &Baseline,
        report: &mut SelftestReport,
    ) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let planned: Vec<(&SelftestOperation, Option<Duration>)> =
            operations.iter().map(|operation| (operation, self.choose_kill(operation))).collect();
        let is_any_killed = planned.iter().any(|(_, kill_after)| kill_after.is_some());
        let ended = self.scratch.run_at_once(&planned)?;
        let kills_another = is_any_killed && self.random.below(3) == 0;
        if kills_another {
            // A supervisor, a sandbox, an agent or a git as well.
            self.scratch.kill_one(self.random.next());
        }
        for (operation, ended) in operations.iter().zip(&ended) {
            report.killed += u64::from(ended.code.is_none());
            if ended.code == Some(0) {
                self.times.insert(operation.name().to_owned(), ended.time);
            }
            if operation.program == Program::Studio {
                judge(&operation.to_string(), ended, &mut found);
            }
        }
        found.extend(left(&self.scratch.settle()));
        if kills_another {
            self.scratch.remove_git_locks();
        }
        let saved: Vec<&String> = operations.iter().filter_map(|it| it.saved.as_ref()).collect();
        // What the user wrote to a tried file stays.
        let end_of_trial = match saved.is_empty() {
            true => ["try", "--end"].as_slice(),
            false => &["try", "--end", "--keep"],
        };
        for args in [["doctor"].as_slice(), end_of_trial] {
            judge(&format!("studio {}", args.join(" ")), &self.scratch.studio(args)?, &mut found);
        }
        found.extend(left(&self.scratch.settle()));
        let is_expected = |sentence: &String| {
            let is_saved = !saved.is_empty() && sentence.starts_with(CHANGE_OF_SHARED);
            is_saved || is_recent_leftover(sentence)
        };
        found.extend(baseline.violations()?.into_iter().filter(|it| !is_expected(it)));
        let lines = self.scratch.shared_lines();
        let lost = saved.into_iter().filter(|line| !lines.contains(line));
        found.extend(lost.map(|line| format!("the user's line {line} is lost: {lines:?}")));
        found.extend(baseline.inconsistent_sessions(&self.scratch.sessions()?)?);
        Ok(found)
    }
}

/// Adds a finding if a command crashed, hung or failed without a reason.
fn judge(what: &str, ended: &CommandEnd, found: &mut Vec<String>) {
    let is_expected = ended.code.is_none_or(|code| (0..=5).contains(&code));
    let has_reason = !matches!(ended.code, Some(2..=5)) || !ended.err.trim().is_empty();
    if !is_expected || !has_reason || ended.err.contains("panicked") {
        let code = ended.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
        found.push(format!("{what} ended with exit code {code}: {}{}", ended.out, ended.err));
    }
}

fn left(processes: &[(u32, String)]) -> impl Iterator<Item = String> + '_ {
    processes.iter().map(|(pid, words)| format!("process {pid} is left: {words}"))
}

/// Returns whether a sentence is about a file that is removed when it is older, or when it is in the
/// way: a temporary file, or a lock that does not stop the user's git.
fn is_recent_leftover(sentence: &str) -> bool {
    let is_lock_of_all = scratch::LOCKS_OF_ALL.iter().any(|name| sentence.contains(name));
    sentence.ends_with("is left over") && !is_lock_of_all
}
