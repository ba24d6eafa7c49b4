//! `studio verify`: re-runs the checks that the receipts of landed requirements recorded.

use std::collections::BTreeSet;

use base::failure::Result;
use base::text::head;
use planner::verdict::{self, CheckOutcomes, Verdict};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::requirement_filter::{FilteredRequirements, RequirementFilter};
use crate::commands::{trace, trusted_checks};
use crate::report;
use crate::report::requirements::ServedRequirement;
use crate::report::verify::{CurrentResult, VerifiedLine, VerifyFinding, VerifyReport};
use studio_core::landing::merge_checks;
use studio_core::session::record::Templates;
use studio_core::tree_checks::ChecksRun;
use studio_git::landing_history::{self, Landing};

/// The command line.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Which requirements.
    #[command(flatten)]
    pub scope: RequirementFilter,
    /// Run the checks of each landed commit on its own tree instead of on the tip
    #[arg(long)]
    pub each: bool,
    /// Also run commands known only from receipts (a fetched receipt may not be trustworthy)
    #[arg(long)]
    pub run_recorded: bool,
    /// Print a Markdown report
    #[arg(long)]
    pub markdown: bool,
}

/// Runs the command. The exit code is 1 unless every selected requirement is landed, has a check,
/// and passes.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    trace::check_output_flags(common, args.markdown)?;
    let context = CommandContext::open(common)?;
    let selection = args.scope.read(common, &context)?;
    let tip = landing_history::resolve(&context.repository, &args.scope.onto)?;
    let landings = selected_landings(&selection, args.scope.id.is_some());
    let mut lines = lines(&selection, &landings, args.each, &tip);
    let trusted = trusted_checks::lines(&context)?;
    run_lines(&context, &mut lines, |line| args.run_recorded || trusted.contains(line))?;
    let verified = VerifyReport {
        onto: tip.0,
        each: args.each,
        requirements: selection.served(),
        findings: findings(&selection, &landings, &lines),
        lines,
    };
    match (context.json, args.markdown) {
        (true, _) => report::json_line(&verified.json()),
        (false, true) => report::out(&verified.markdown()),
        (false, false) => report::out(&verified.text()),
    }
    if !context.json {
        report::say(&verified.outcome());
    }
    Ok(u8::from(!verified.holds()))
}

/// Runs the recorded checks that this machine knows on the tip, and returns the requirements whose
/// checks do not pass, with the reason.
pub(crate) fn failed_requirements(
    common: &CommonArgs,
    context: &CommandContext,
    scope: &RequirementFilter,
) -> Result<Vec<(String, String)>> {
    let selection = scope.read(common, context)?;
    let tip = landing_history::resolve(&context.repository, &scope.onto)?;
    let landings = selected_landings(&selection, false);
    let mut lines = lines(&selection, &landings, false, &tip);
    let trusted = trusted_checks::lines(context)?;
    run_lines(context, &mut lines, |line| trusted.contains(line))?;
    let mut failed: Vec<(String, String)> = Vec::new();
    for (line, reason) in lines.iter().filter_map(|line| Some((line, line.failure()?))) {
        for id in &line.requirements {
            match failed.iter_mut().find(|(it, _)| it == id) {
                Some((_, reasons)) => *reasons += &format!("; {reason}"),
                None => failed.push((id.clone(), reason.clone())),
            }
        }
    }
    Ok(failed)
}

/// Returns the relevant landings: all, or those that name the selected requirement.
fn selected_landings(selection: &FilteredRequirements, is_filtered: bool) -> Vec<&Landing> {
    let ids = ids(selection);
    let serves =
        |it: &&Landing| !is_filtered || it.requirements.iter().any(|id| ids.contains(id.as_str()));
    selection.landings.iter().filter(serves).collect()
}

fn ids(selection: &FilteredRequirements) -> BTreeSet<&str> {
    selection.requirements.iter().map(|it| it.id.as_str()).collect()
}

/// Returns every recorded command once for each tree on which it must run.
fn lines(
    selection: &FilteredRequirements,
    landings: &[&Landing],
    each: bool,
    (tip, tree): &(String, String),
) -> Vec<VerifiedLine> {
    let ids = ids(selection);
    let mut lines: Vec<VerifiedLine> = Vec::new();
    for landing in landings {
        let (commit, tree) = if each { (&landing.commit, &landing.tree) } else { (tip, tree) };
        for check in landing.receipt.iter().flat_map(|receipt| &receipt.checks) {
            let is_same = |it: &VerifiedLine| it.command == check.command && it.commit == *commit;
            let index = lines.iter().position(is_same).unwrap_or_else(|| {
                let (command, commit) = (check.command.clone(), commit.clone());
                lines.push(VerifiedLine::new(command, commit, tree.clone()));
                lines.len() - 1
            });
            let line = &mut lines[index];
            line.passed_then &= check.ok;
            if line.commits.last() != Some(&landing.commit) {
                line.commits.push(landing.commit.clone());
            }
            let serves = landing.requirements.iter().filter(|id| ids.contains(id.as_str()));
            for id in serves {
                if !line.requirements.contains(id) {
                    line.requirements.push(id.clone());
                }
            }
        }
    }
    lines
}

/// Runs the allowed commands, grouped by tree.
fn run_lines(
    context: &CommandContext,
    lines: &mut [VerifiedLine],
    may_run: impl Fn(&str) -> bool,
) -> Result<()> {
    let studio = &context.config.studio;
    let templates = Templates { branch: studio.branch.clone(), worktree: studio.worktree.clone() };
    for group in lines.chunk_by_mut(|a, b| a.commit == b.commit) {
        let commands: Vec<String> =
            group.iter().map(|line| line.command.clone()).filter(|line| may_run(line)).collect();
        let Some(first) = group.first().filter(|_| !commands.is_empty()) else { continue };
        if !context.json {
            let word = if commands.len() == 1 { "check" } else { "checks" };
            report::say(&format!(
                "running {} {word} on {}",
                commands.len(),
                head(&first.commit, 12)
            ));
        }
        let (commit, tree) = (first.commit.clone(), first.tree.clone());
        let state = merge_checks::TreeState { commit: &commit, tree: &tree };
        let run = merge_checks::run(context, &templates, state, &commands)?;
        for line in group.iter_mut().filter(|line| commands.contains(&line.command)) {
            line.current = match &run {
                ChecksRun::Checks(results) => {
                    let result = results.iter().find(|it| it.command == line.command);
                    result
                        .map_or(CurrentResult::Refused, |result| CurrentResult::Ran(result.clone()))
                }
                ChecksRun::SetUpFailed { line, output: ended, .. } => CurrentResult::SetUpFailed {
                    line: line.clone(),
                    exit: ended.exit,
                    tail: ended.tail.clone(),
                },
            };
        }
    }
    Ok(())
}

/// Returns further findings for the user, the most severe first.
fn findings(
    selection: &FilteredRequirements,
    landings: &[&Landing],
    lines: &[VerifiedLine],
) -> Vec<VerifyFinding> {
    let mut findings = Vec::new();
    for it in selection.served() {
        let id = &it.row.id;
        match it.state() {
            "not landed" => {
                findings.push(VerifyFinding::new("not_landed", format!("{id} has not landed")))
            }
            "no check" => {
                let text = format!("{id} has no passing check");
                findings.push(VerifyFinding::new("no_check", text));
            }
            _ => {}
        }
    }
    for landing in landings {
        let commit = head(&landing.commit, 12);
        match &landing.receipt {
            None => {
                let ids = landing.requirements.join(", ");
                let text = format!("{commit} names {ids} and has no receipt: it was rewritten");
                findings.push(VerifyFinding::new("no_receipt", text));
            }
            Some(receipt) if receipt.tree.as_ref() != Some(&landing.tree) => {
                let text = format!("the receipt of {commit} records another tree");
                findings.push(VerifyFinding::new("other_tree", text));
            }
            Some(_) => {}
        }
    }
    for line in lines {
        if line.requirements.is_empty() {
            let text = format!("`{}` covers no requirement", line.command);
            findings.push(VerifyFinding::new("no_requirement", text));
        }
        if matches!(line.current, CurrentResult::Refused) {
            let text = format!(
                "`{}` was not run: it is known only from a receipt, and receipts are fetched with \
                 the repository; to run it: studio verify --run-recorded",
                line.command
            );
            findings.push(VerifyFinding::new("refused", text));
        }
    }
    findings.extend(disagreements(selection, lines));
    let mut seen: BTreeSet<String> = BTreeSet::new();
    findings.retain(|it| seen.insert(it.text.clone()));
    findings
}

/// Returns the contradictions between a coach's verdict and the current results of the checks.
fn disagreements(selection: &FilteredRequirements, lines: &[VerifiedLine]) -> Vec<VerifyFinding> {
    let outcomes = lines.iter().filter_map(|line| match &line.current {
        CurrentResult::Ran(result) => Some((line.command.as_str(), result.ok)),
        CurrentResult::Refused | CurrentResult::SetUpFailed { .. } => None,
    });
    let checks = CheckOutcomes::of(outcomes);
    let of_one = |it: ServedRequirement<'_>| {
        let requirements = it
            .coach()
            .map(|(requirement_verdict, _)| requirement_verdict.clone())
            .into_iter()
            .collect();
        let verdict = Verdict { approved: true, requirements, feedback: String::new() };
        verdict::disagreements(&verdict, &checks)
    };
    let all = selection.served().into_iter().flat_map(of_one);
    all.map(|it| VerifyFinding::new("disagreement", it.text)).collect()
}
