//! `studio selftest`: runs studio on a scratch repository with a scripted agent.

use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use serde_json::json;
use studio_core::selftest::{self, SelftestOptions, SelftestReport};

use crate::commands::context::CommonArgs;
use crate::report;

/// The number of rounds without `--rounds` and `--minutes`.
const DEFAULT_ROUNDS: u64 = 5;
/// Maximum number of operations at once.
const MAX_PARALLEL: u64 = 32;

/// The command line of `selftest`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Kill studio and its processes with SIGKILL at random moments
    #[arg(long)]
    pub chaos: bool,
    /// Number of operations that run at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub parallel: u64,
    /// Number of rounds of 12 steps, each in a new repository (default: 5)
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    pub rounds: Option<u64>,
    /// Start new rounds for this many minutes
    #[arg(long, value_name = "N")]
    pub minutes: Option<u64>,
    /// Seed of the random operations and moments (default: random)
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
}

/// Runs the command: 0 if all invariants held, 1 otherwise.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    if args.rounds == Some(0) || args.minutes == Some(0) {
        return Err(Failure::usage("nothing to run: 0 rounds").hint("studio selftest --rounds 5"));
    }
    if !(1..=MAX_PARALLEL).contains(&args.parallel) {
        return Err(Failure::usage(format!("--parallel {} is not possible", args.parallel))
            .because(format!("from 1 to {MAX_PARALLEL} operations run at once"))
            .hint("studio selftest --parallel 3"));
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => {
            let bytes = base::random::bytes::<4>().or_fail(|| "cannot choose a seed")?;
            u64::from(u32::from_le_bytes(bytes))
        }
    };
    let rounds = args.rounds.or(args.minutes.is_none().then_some(DEFAULT_ROUNDS));
    let time = Duration::from_secs(args.minutes.unwrap_or_default().saturating_mul(60));
    let options =
        SelftestOptions { chaos: args.chaos, parallel: args.parallel, rounds, time, seed };
    if !common.json {
        report::say(&format!("seed {seed}"));
    }
    let mut shown = 0;
    let result = selftest::run(&options, &mut |report| {
        if !common.json {
            report.findings.iter().skip(shown).for_each(|finding| report::say(finding));
            shown = report.findings.len();
            report::say(&progress(report));
        }
    })?;
    if common.json {
        report::json_line(&json!({
            "schema": 1, "seed": seed, "rounds": result.rounds, "operations": result.operations,
            "killed": result.killed, "findings": result.findings, "kept": result.kept,
        }));
    } else {
        report::out(&report::selftest::page(&result, &options));
    }
    Ok(u8::from(!result.findings.is_empty()))
}

fn progress(report: &SelftestReport) -> String {
    format!(
        "round {}: {} operations, {} killed, {} findings",
        report.rounds,
        report.operations,
        report.killed,
        report.findings.len()
    )
}
