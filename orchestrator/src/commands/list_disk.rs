//! `studio list --disk`: how much disk space each session uses, and what else studio keeps.

use base::failure::Result;
use base::parallel;
use base::text::size;
use serde_json::json;

use crate::commands::context::CommandContext;
use crate::report;
use crate::report::table;
use studio_core::session_view::SessionView;
use studio_git::gc::disk_usage;
use studio_git::{check_worktree, gc, pool};

/// The disk usage of a session, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct SessionUsage {
    worktree: u64,
    git: u64,
    caches: u64,
    other: u64,
}

impl SessionUsage {
    fn of(context: &CommandContext, view: &SessionView) -> SessionUsage {
        let directory = context.store.dir(&view.record.id);
        let usage_of = |name: &str| disk_usage(&directory.join(name));
        let (git, caches) = (usage_of("git"), usage_of("caches"));
        SessionUsage {
            // That of a session that is over is in the trash.
            worktree: if view.state.is_over() {
                0
            } else {
                disk_usage(&view.record.session_repo.worktree)
            },
            git,
            caches,
            other: disk_usage(&directory).saturating_sub(git + caches),
        }
    }

    fn total(self) -> u64 {
        self.worktree + self.git + self.caches + self.other
    }
}

/// Runs the command: sessions by size, the largest first.
pub(crate) fn run(context: &CommandContext, all: bool) -> Result<u8> {
    let (views, _) = context.sessions()?;
    let mut rows: Vec<(&SessionView, SessionUsage)> = measure(context, &views);
    rows.sort_by_key(|(_, usage)| std::cmp::Reverse(usage.total()));
    let sessions: u64 = rows.iter().map(|(_, usage)| usage.total()).sum();
    let trash = gc::trash_usage(&context.repository)?;
    let checks = check_usage(context);
    let pool: u64 = pool::directories(&context.repository).iter().map(|dir| disk_usage(dir)).sum();
    let total = sessions + trash + checks + pool;
    rows.retain(|(view, _)| all || !view.state.is_over());
    if context.json {
        let rows = rows.iter().map(|(view, usage)| {
            json!({
                "id": view.record.id, "state": view.state.name(), "worktree": usage.worktree,
                "git": usage.git, "caches": usage.caches, "total": usage.total(),
            })
        });
        let rows: Vec<_> = rows.collect();
        report::json_line(&json!({
            "schema": 1, "sessions": rows, "trash": trash, "checks": checks, "pool": pool,
            "total": total,
        }));
        return Ok(0);
    }
    let mut cells: Vec<[String; 6]> = Vec::new();
    for (view, usage) in rows {
        let (id, state) = (view.record.id.to_string(), view.state.name().to_owned());
        let [worktree, git] = [usage.worktree, usage.git].map(size);
        cells.push([id, state, worktree, git, size(usage.caches), size(usage.total())]);
    }
    if !cells.is_empty() {
        let header = ["ID", "STATE", "WORKTREE", "GIT", "CACHES", "TOTAL"];
        report::out(&table::plain(header, cells));
    }
    report::say(&format!(
        "{} in all: {} of sessions, {} in the trash, {} of check worktrees, {} of prepared worktrees",
        size(total),
        size(sessions),
        size(trash),
        size(checks),
        size(pool)
    ));
    if trash > 0 {
        report::say("studio gc --max-size SIZE    deletes the oldest trash above a size");
    }
    Ok(0)
}

/// Measures the sessions on all processors.
fn measure<'v>(
    context: &CommandContext,
    views: &'v [SessionView],
) -> Vec<(&'v SessionView, SessionUsage)> {
    parallel::map(views, 1, |view| (view, SessionUsage::of(context, view)))
}

fn check_usage(context: &CommandContext) -> u64 {
    let worktrees = check_worktree::all(&context.repository);
    let directory = context.store.root().join("checks");
    worktrees.iter().map(|path| disk_usage(path)).sum::<u64>() + disk_usage(&directory)
}
