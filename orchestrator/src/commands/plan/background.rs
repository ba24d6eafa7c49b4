//! `studio plan --detach` and `--stop`: a plan that continues in the background, and its end.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::lock::Lock;
use planner::plan::PlanStage;
use rustix::process::{Pid, Signal};
use serde_json::json;
use studio_core::project::pause;

use super::{Args, Plan, status};
use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::subcommand::SubcommandRunner;
use crate::report;

/// Timeout of the end of a plan that was asked to stop.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum number of bytes of the log's end that are shown.
const MAX_OUTPUT_BYTES: usize = 4000;

/// Returns the path of the lock of `studio plan`.
pub(super) fn lock_path(context: &CommandContext) -> Result<PathBuf> {
    Ok(context.repository.studio_dir()?.join("plan.lock"))
}

/// Takes the lock, and writes down who holds it.
pub(super) fn lock(context: &CommandContext) -> Result<Lock> {
    let path = lock_path(context)?;
    let fail = || format!("cannot lock {}", path.display());
    let lock = Lock::try_take(&path).or_fail(fail)?.ok_or_else(|| {
        Failure::refused("`studio plan` is already running in this repository")
            .hint("studio list")
            .hint("studio plan --stop")
    })?;
    std::fs::write(&path, std::process::id().to_string()).or_fail(fail)?;
    Ok(lock)
}

/// Returns the path of what the last run in the background wrote.
pub(super) fn log_path(context: &CommandContext) -> Result<PathBuf> {
    Ok(context.repository.studio_dir()?.join("plan.log"))
}

/// Returns the end of what the last run in the background wrote.
pub(super) fn last_output(context: &CommandContext) -> Result<Option<String>> {
    let path = log_path(context)?;
    match base::files::read(&path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let text = base::text::tail(text.trim(), MAX_OUTPUT_BYTES).trim();
            Ok((!text.is_empty()).then(|| text.to_owned()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).or_fail(|| format!("cannot read {}", path.display())),
    }
}

/// Asks what must be asked here, and continues in the background.
pub(super) fn detach(common: &CommonArgs, mut plan: Plan<'_>) -> Result<u8> {
    let (context, args) = (plan.context, plan.args);
    let mut is_given = args.approve.is_none();
    loop {
        match plan.stage()? {
            // Its text needs an approval of its own, and gets it later.
            PlanStage::Approve | PlanStage::Agree if is_given && args.approve.is_some() => {
                drop(plan);
                return status::show(context);
            }
            PlanStage::Approve => plan.approve()?,
            PlanStage::Agree => plan.agree()?,
            stage => {
                refuse_other_approval(&plan, is_given)?;
                if stage == PlanStage::Over && !args.converge {
                    plan.record.over = true;
                    plan.files.save(&plan.record)?;
                    drop(plan);
                    return status::show(context);
                }
                break;
            }
        }
        is_given = true;
    }
    // The other process takes the lock.
    drop(plan);
    let path = log_path(context)?;
    let log = OpenOptions::new().write(true).truncate(true).create(true).open(&path);
    let log = log.or_fail(|| format!("cannot write {}", path.display()))?;
    SubcommandRunner::new(common)?.run_detached(&continuation(args), log)?;
    match context.json {
        true => report::json_line(&json!(status::read(context)?)),
        false => report::say("the plan continues in the background: studio plan --status"),
    }
    Ok(0)
}

/// Refuses the approval of a text that is not approved and does not wait for it.
fn refuse_other_approval(plan: &Plan<'_>, is_given: bool) -> Result<()> {
    let approved = plan.record.approved.iter().chain(&plan.record.agreed);
    let mut digests = approved.map(|text| base::config::trust::hash(text.as_bytes()));
    let is_known = plan.args.approve.as_ref().is_none_or(|it| digests.any(|digest| digest == *it));
    match is_given || is_known {
        true => Ok(()),
        false => Err(Failure::refused("no text with this digest waits for an approval")
            .because("the plan changed since it was shown")
            .hint("studio plan --status")),
    }
}

/// Returns the words of the command that continues with the same settings.
fn continuation(args: &Args) -> Vec<String> {
    let mut words = vec!["plan".to_owned()];
    let switches = [(args.yes, "--yes"), (args.converge, "--converge")];
    words.extend(switches.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| (*name).to_owned()));
    words.extend(args.checks.iter().map(|line| format!("--check={line}")));
    words.extend(args.jobs.map(|jobs| format!("--jobs={jobs}")));
    words.extend((args.sandbox == "off").then(|| "--sandbox=off".to_owned()));
    words.extend(args.limits.words());
    words
}

/// Stops the running `studio plan` like Ctrl-C.
pub(super) fn stop(context: &CommandContext) -> Result<u8> {
    let path = lock_path(context)?;
    let is_running = || Lock::is_held(&path).or_fail(|| format!("cannot read {}", path.display()));
    let holder = base::files::read_text(&path).ok().and_then(|text| text.trim().parse().ok());
    let holder = holder.and_then(Pid::from_raw).filter(|holder| holds(*holder, &path));
    let holder = holder.filter(|_| is_running().unwrap_or(false));
    let Some(holder) = holder else {
        return Err(Failure::refused("no `studio plan` is running in this repository")
            .hint("studio plan --status"));
    };
    // It may have ended by itself.
    let _ = rustix::process::kill_process(holder, Signal::TERM);
    let deadline = Instant::now() + TIMEOUT;
    while is_running()? {
        if Instant::now() > deadline {
            return Err(Failure::failed("`studio plan` did not stop")
                .because(format!("it is process {}", holder.as_raw_nonzero()))
                .hint("studio doctor"));
        }
        pause();
    }
    match context.json {
        true => report::json_line(&json!(status::read(context)?)),
        false => report::say("stopped; continue with: studio plan"),
    }
    Ok(0)
}

/// Returns whether a process has the lock's file open: its number in the file may be that of an earlier
/// run. Only Linux tells.
fn holds(process: Pid, path: &Path) -> bool {
    if cfg!(not(target_os = "linux")) {
        return true;
    }
    let Ok(path) = path.canonicalize() else { return false };
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()));
    let mut links = descriptors.into_iter().flatten().flatten();
    links.any(|link| std::fs::read_link(link.path()).is_ok_and(|target| target == path))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn only_a_process_that_has_the_lock_open_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.lock");
        let lock = Lock::try_take(&path).unwrap().unwrap();
        let this = rustix::process::getpid();
        assert!(holds(this, &path));
        drop(lock);
        assert!(!holds(this, &path));
    }

    #[test]
    fn a_plan_continues_in_the_background_with_the_same_settings() {
        let parse = |words: &[String]| Line::try_parse_from(words).unwrap().args;
        let words = "plan --yes --converge --check=a --check=-b --jobs=3 --sandbox=off --budget=1.5 \
                     --total-budget=9 --max-tokens=7 --max-turns=8 --timeout=60 --memory=4096 \
                     --processes=12 --disk=1048576";
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let args = parse(&words);
        assert_eq!(continuation(&args).len(), words.len());
        assert_eq!(format!("{:?}", parse(&continuation(&args))), format!("{args:?}"));
        // What begins a plan is not repeated.
        let begun = ["plan", "--detach", "--new", "--approve=x", "wish.md"].map(str::to_owned);
        assert_eq!(continuation(&parse(&begun)), ["plan"]);
    }
}
