//! `studio gc`: deletes the trash of old operations and unused build caches; the only command that
//! deletes data.

use std::path::PathBuf;
use std::time::Duration;

use base::failure::Result;
use base::id::Id;
use base::lock::Lock;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use studio_core::standing;
use studio_git::gc::{self, RetentionPolicy};
use studio_git::pool;

/// The command line of `gc`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Delete data older than this many days; newer trash is deleted only above the maximum size
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub older: u32,
    /// Maximum size of the trash, e.g. 2G: beyond it, the oldest is deleted first
    #[arg(long, value_name = "SIZE", value_parser = base::text::parse_size)]
    pub max_size: Option<u64>,
    /// Print what would be deleted, without deleting it
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let bytes = args.max_size.unwrap_or(RetentionPolicy::default().bytes);
    let policy = RetentionPolicy { days: i64::from(args.older), bytes };
    let now = context.clock.now();
    let freed = match args.dry_run {
        true => gc::preview(&context.repository, policy, now)?,
        false => gc::empty_trash(&context.repository, policy, now)?,
    };
    let caches = if args.dry_run { 0 } else { remove_unused_caches(&context, policy.days)? };
    let prepared = if args.dry_run { 0 } else { remove_prepared(&context, args.older)? };
    let deleted = &freed.operations;
    if context.json {
        let (dry_run, bytes) = (args.dry_run, freed.bytes);
        report::json_line(
            &json!({"schema": 1, "deleted": deleted, "bytes": bytes, "caches": caches, "dry_run": dry_run}),
        );
    } else if deleted.is_empty() {
        report::say("nothing is old enough to be deleted from the trash");
    }
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    for id in deleted.iter().filter(|_| !context.json) {
        report::out(&format!("{verb} the data of {id}; it can no longer be undone"));
    }
    let mut views = context.views()?;
    standing::compare(&context.repository, &context.store, &mut views);
    for sentence in standing::landed_elsewhere(&views) {
        report::say(&format!("note: {sentence}"));
    }
    if prepared > 0 && !context.json {
        let prepared = base::text::count(prepared as u64, "prepared worktree");
        report::out(&format!("deleted {prepared}"));
    }
    if caches > 0 && !context.json {
        let s = if caches == 1 { "" } else { "s" };
        report::out(&format!("deleted {caches} unused build cache{s}"));
    }
    Ok(0)
}

/// Removes worktrees that were prepared and not used for this many days; all of them if none are to
/// be prepared.
fn remove_prepared(context: &CommandContext, days: u32) -> Result<usize> {
    let days = if context.config.studio.pool == Some(0) { 0 } else { days };
    pool::remove_old(&context.repository, Duration::from_secs(u64::from(days) * 86_400))
}

/// Removes the build caches of sessions that are over or were unused for this many days, those of
/// checks that are not running, and the shared one of earlier versions. Returns the number of
/// removed caches.
fn remove_unused_caches(context: &CommandContext, days: i64) -> Result<usize> {
    let mut removed = 0;
    let mut remove = |path: PathBuf| {
        if path.symlink_metadata().is_ok() {
            gc::remove(&path);
            removed += 1;
        }
    };
    remove(context.store.root().join("cache/build"));
    for view in context.views()? {
        let id = &view.record.id;
        let is_unused = view.state.is_over() || is_idle(context, id, days);
        if is_unused && let Some(_lock) = context.store.lock(id)? {
            remove(context.store.file(id, "caches"));
        }
    }
    let slots =
        std::fs::read_dir(context.store.root().join("checks")).into_iter().flatten().flatten();
    for slot in slots {
        if let Ok(Some(_lock)) = Lock::try_take(&slot.path().join("lock")) {
            remove(slot.path().join("cache"));
        }
    }
    Ok(removed)
}

/// Returns whether the last entry of a session's journal is at least this old.
fn is_idle(context: &CommandContext, id: &Id, days: i64) -> bool {
    let journal = std::fs::metadata(context.store.file(id, "journal.jsonl"));
    let changed = journal.and_then(|metadata| metadata.modified()).ok();
    let changed = changed.and_then(|time| jiff::Timestamp::try_from(time).ok());
    changed.is_some_and(|time| time.as_second() <= context.clock.now().as_second() - days * 86_400)
}
