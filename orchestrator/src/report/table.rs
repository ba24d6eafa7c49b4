//! Tables and pages for display.

use base::text::{head, printable};
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;

use crate::report::coach;
use studio_core::session::record::SessionRecord;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;

/// Formats a table without lines, as wide as the terminal.
pub(crate) fn plain<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width());
    table.set_header(header);
    table.add_rows(rows);
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Returns the number of columns: `COLUMNS`, else the terminal's, else 100.
pub(crate) fn width() -> u16 {
    let configured = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let detected =
        || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().map(|size| size.ws_col);
    configured.or_else(detected).filter(|columns| *columns >= 40).unwrap_or(100)
}

/// Returns the number of lines: `LINES`, else the terminal's.
pub(crate) fn height() -> Option<usize> {
    let configured = std::env::var("LINES").ok().and_then(|text| text.parse().ok());
    let detected = || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    configured
        .or_else(|| detected().map(|size| usize::from(size.ws_row)))
        .filter(|lines| *lines > 4)
}

/// Describes the changes: `2 files +10 -3`, with a star for uncommitted ones.
pub(crate) fn changes(view: &SessionView) -> String {
    let Some(work) = view.work() else { return "-".to_owned() };
    let dirty = if work.dirty { "*" } else { "" };
    let files = count(work.files_changed, "file");
    format!("{files} +{} -{}{dirty}", work.insertions, work.deletions)
}

/// Returns a number with its noun: `1 commit`, `2 commits`.
fn count(n: impl Into<u64>, what: &str) -> String {
    let n = n.into();
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Returns the age in the largest unit that fits.
pub(crate) fn age(since: &str, now: Timestamp) -> String {
    let Ok(since) = since.parse::<Timestamp>() else { return "-".to_owned() };
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m", seconds / 60),
        3600..=86_399 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns the agent and its persona.
pub(crate) fn agent(record: &SessionRecord) -> String {
    match &record.persona {
        Some(persona) => format!("{} as {persona}", record.agent),
        None => record.agent.clone(),
    }
}

/// Formats one session in full.
pub(crate) fn page(view: &SessionView) -> String {
    let record = &view.record;
    let summary = &view.facts.summary;
    let mut lines = vec![format!("{}  {}", record.id, view.state.name())];
    let reason = view.reason().filter(|reason| !reason.trim().is_empty());
    lines.extend(reason.map(|reason| row("why", &reason)));
    lines.extend([
        row("task", &first_lines(&record.task, 5)),
        row("agent", &agent(record)),
        row("base", &base(view)),
        row("branch", record.session_repo.branch.as_str()),
        row("worktree", &record.session_repo.worktree.display().to_string()),
    ]);
    lines.extend(place(view).map(|place| row("place", &place)));
    lines.push(row(
        "changes",
        &match view.work() {
            Some(work) => format!("{}, {}", changes(view), count(work.commits, "commit")),
            None => "none yet".to_owned(),
        },
    ));
    if let Some(group) = &record.group {
        let text = format!("{} of the group {group}: studio compare {group}", record.attempt);
        lines.push(row("attempt", &text));
    }
    let tried_in = view.tried_in.as_ref().map(|path| row("tried in", &path.display().to_string()));
    lines.extend(tried_in);
    lines.extend(view.message.as_ref().map(|message| row("message", message.subject())));
    for check in summary.checks.iter().flatten() {
        let result = if check.ok { "passed" } else { "failed" };
        let base_note = check.fails_on.as_ref().map(|it| format!("; it also fails on `{it}`"));
        let base_note = base_note.unwrap_or_default();
        lines.push(row(
            "check",
            &format!("`{}` {result} in {} ms{base_note}", check.command, check.ms),
        ));
    }
    if let Some(standing) = &view.standing {
        let target = record.base.branch.as_ref().map_or("its base", |branch| branch.as_str());
        let text = match (standing.ahead, standing.behind) {
            (0, 0) => None,
            (ahead, 0) => Some(format!("{} ahead of {target}", count(ahead as u64, "commit"))),
            (0, behind) => Some(format!("{} behind {target}", count(behind as u64, "commit"))),
            (ahead, behind) => Some(format!(
                "{} ahead of {target}, {behind} behind",
                count(ahead as u64, "commit")
            )),
        };
        lines.extend(text.map(|text| row("history", &text)));
        if !standing.conflicts.is_empty() {
            let files = standing.conflicts.join(", ");
            lines.push(row("conflicts", &format!("with {target}: {files}")));
        }
    }
    for other in view.conflicts_with.iter().flatten() {
        lines.push(row("conflicts", &format!("with {}: {}", other.id, other.files.join(", "))));
    }
    lines.extend(coach::rows(summary).iter().map(|(name, text)| row(name, text)));
    lines.extend(summary.usage.as_ref().map(|usage| row("usage", &coach::usage(usage))));
    for (n, ask) in &summary.open_requests {
        lines.push(row(&format!("request {n}"), &ask.description));
    }
    for note in view.work().into_iter().flat_map(|work| &work.notes).chain(&summary.note) {
        lines.push(row("note", note));
    }
    if let Some(words) = &summary.last_message {
        lines.push(row("last output", &first_lines(words, 8)));
    }
    lines.extend(view.suggested_commands().iter().map(|next| row("next", next)));
    printable(&lines.join("\n"))
}

/// Returns the place of a session, with its host and its job as far as they are known.
fn place(view: &SessionView) -> Option<String> {
    let name = view.record.run_mode.place.as_ref().map(ToString::to_string);
    let Some(placement) = &view.placement else { return name };
    let host = Some(&placement.host).filter(|host| !host.is_empty());
    let job = placement.job.as_ref().map(|job| job.id.as_ref().unwrap_or(&job.name));
    let host = host.map(|host| format!("host {host}"));
    let facts: Vec<String> = host.into_iter().chain(job.map(|job| format!("job {job}"))).collect();
    let name = name.unwrap_or_else(|| placement.place.clone());
    Some(if facts.is_empty() { name } else { format!("{name} ({})", facts.join(", ")) })
}

fn base(view: &SessionView) -> String {
    let base = &view.record.base;
    let commit = head(&base.commit, 12);
    base.branch.as_ref().map_or(commit.to_owned(), |branch| format!("{branch} at {commit}"))
}

fn row(name: &str, text: &str) -> String {
    format!("  {name:<11} {}", text.trim_end().replace('\n', "\n              "))
}

/// Returns the first lines of a text, with a mark if there are more.
pub(crate) fn first_lines(text: &str, max: usize) -> String {
    let truncated = head(text.trim(), 2000);
    let mut lines: Vec<&str> = truncated.lines().take(max).collect();
    if truncated.lines().count() > max || truncated.len() < text.trim().len() {
        lines.push("…");
    }
    lines.join("\n")
}

/// Formats a change of state in one line.
pub(crate) fn change(view: &SessionView) -> String {
    let id = &view.record.id;
    let name = view.state.name();
    match (&view.state, view.reason()) {
        (
            SessionState::Queued
            | SessionState::Starting
            | SessionState::Working
            | SessionState::Checking,
            _,
        )
        | (_, None) => {
            format!("{id}: {name}")
        }
        (_, Some(reason)) => format!("{id}: {name}: {}", first_lines(&reason, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let now: Timestamp = "2026-01-02T10:00:00Z".parse().unwrap();
        for (since, expected) in [
            ("2026-01-02T09:59:30Z", "30s"),
            ("2026-01-02T09:00:00Z", "1h"),
            ("2025-12-30T10:00:00Z", "3d"),
            ("2026-01-02T10:00:09Z", "0s"),
            ("nonsense", "-"),
        ] {
            assert_eq!(age(since, now), expected, "{since}");
        }
    }
}
