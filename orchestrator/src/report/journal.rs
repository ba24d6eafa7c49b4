//! Lines of a journal as people read them.

use base::event::{Event, What};

use crate::report::table::{count, first_lines};
use crate::session::journal::{CheckResult, Entry, Line, Outcome};

/// One line for people; none for what they need not see.
pub fn text(line: &Line) -> Option<String> {
    let what = match &line.entry {
        Entry::Queued { prompt: None } => "queued".to_owned(),
        Entry::Queued { prompt: Some(text) } | Entry::Sent { text } => {
            format!("you: {}", first_lines(text, 5))
        }
        Entry::Spawned { .. } => "starting".to_owned(),
        Entry::Worktree => "the worktree stands".to_owned(),
        Entry::Agent { .. } => "the agent runs".to_owned(),
        Entry::Turn { n, .. } => format!("turn {n}"),
        Entry::Event { event } => of_event(event)?,
        Entry::Asked { n, what } => format!("asks {n}: {what}"),
        Entry::Answered { n, allow, by } => {
            format!("answer {n}: {} by {by}", if *allow { "allowed" } else { "denied" })
        }
        Entry::TurnEnd { n, why: None } => format!("turn {n} ended"),
        Entry::TurnEnd { n, why: Some(why) } => format!("turn {n} failed: {why}"),
        Entry::Work(work) => format!(
            "{}, {}, +{} -{}",
            count(work.commits, "commit"),
            count(work.files_changed, "changed file"),
            work.insertions,
            work.deletions
        ),
        Entry::Checking => "the checks run".to_owned(),
        Entry::Checked { results } if results.is_empty() => return None,
        Entry::Checked { results } => results.iter().map(check).collect::<Vec<_>>().join("\n"),
        Entry::Checks { commands } if commands.is_empty() => "you: no checks".to_owned(),
        Entry::Checks { commands } => {
            let all: Vec<String> = commands.iter().map(|line| format!("`{line}`")).collect();
            format!("you: the checks are {}", all.join(", "))
        }
        Entry::StopRequested => "asked to stop".to_owned(),
        Entry::Limit { what } => format!("limit reached: {what}"),
        Entry::Note { text } => format!("note: {text}"),
        Entry::Exit { outcome: Outcome::Failed { why } } => format!("failed: {why}"),
        Entry::Exit { outcome: Outcome::Ready } => "ready".to_owned(),
        Entry::Exit { outcome: Outcome::Empty } => "empty".to_owned(),
        Entry::Exit { outcome: Outcome::Stopped } => "stopped".to_owned(),
    };
    let clock = line.time.get(11..19).unwrap_or(&line.time);
    Some(base::text::printable(&format!("{clock}  {}", what.replace('\n', "\n          "))))
}

/// How a check went, with the end of what it wrote when it failed.
pub fn check(result: &CheckResult) -> String {
    if result.ok {
        return format!("check `{}` passed in {} ms", result.command, result.ms);
    }
    let tail = base::text::tail(result.tail.trim_end(), 1500);
    let tail = base::text::printable_output(tail);
    let also = result.fails_on.as_ref().map(|it| format!("; it fails on `{it}` as well"));
    let also = also.unwrap_or_default();
    let head = format!("check `{}` failed with exit code {}{also}", result.command, result.exit);
    if tail.is_empty() { head } else { format!("{head}\n{tail}") }
}

fn of_event(event: &serde_json::Value) -> Option<String> {
    match serde_json::from_value::<Event>(event.clone()).ok()?.what {
        What::Text { text } => Some(text.trim().to_owned()),
        What::ToolStart { name, args, .. } => {
            Some(format!("> {name} {}", base::text::head(&args.to_string(), 200)))
        }
        What::ToolEnd { name, ok: false, text, .. } => {
            Some(format!("  {name} failed: {}", first_lines(&text, 3)))
        }
        What::Error { text, .. } => Some(format!("error: {text}")),
        What::Notice { text, .. } => Some(format!("notice: {text}")),
        What::Retry { why, after_ms, .. } => Some(format!("tries again in {after_ms} ms: {why}")),
        What::Start { .. }
        | What::Turn { .. }
        | What::Reasoning { .. }
        | What::ToolOutput { .. }
        | What::ToolEnd { .. }
        | What::Usage { .. }
        | What::Context { .. }
        | What::Todo { .. }
        | What::Plan { .. }
        | What::Thinned { .. }
        | What::Compacted { .. }
        | What::Ask { .. }
        | What::End { .. } => None,
    }
}
