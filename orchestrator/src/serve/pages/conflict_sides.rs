//! The conflicts of a session with other sessions and with its branch: the lines of both sides.

use axum::extract::{Path, State};
use base::text::printable;
use maud::{Markup, html};

use crate::commands::conflicts;
use crate::report::conflicts::ShownConflict;
use crate::serve::error_answer::PageResult;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::server::{PageServer, session_id};

/// Maximum number of lines of a file that are shown.
const MAX_LINES: usize = 2000;

/// Shows the conflicts.
pub(crate) async fn show(State(server): State<PageServer>, path: Path<String>) -> PageResult {
    let id = session_id(path)?;
    let stream = server.feed().stream_path();
    let session = id.clone();
    let shown = server
        .read(move |_, context| {
            context.view(&session)?;
            conflicts::of_session(context, &session)
        })
        .await?;
    let title = format!("Conflicts of {id}");
    let content = html! {
        h1 { "Conflicts of " a href=(layout::session_path(&id)) { (id) } }
        @if shown.is_empty() { p.empty { "It conflicts with no other session, and not with its branch." } }
        @for conflict in &shown { (of_pair(conflict)) }
    };
    Ok(layout::page(&server, NavigationItem::Session, &title, Some(&stream), &content))
}

fn of_pair(conflict: &ShownConflict) -> Markup {
    let title = format!("{} and {}", conflict.id, printable(&conflict.other));
    html! {
        section.conflict aria-label=(title) {
            h2 { (title) }
            @for (path, hunks) in &conflict.files {
                h3 { code { (printable(path)) } }
                @if let Some(hunks) = hunks {
                    @if hunks.merges_by_syntax { p { "Can be merged by syntax: both sides only added." } }
                    (lines(&hunks.hunks, &[conflict.id.as_str(), &conflict.other]))
                }
            }
        }
    }
}

/// Returns the lines of hunks with conflict markers, those of each side marked.
fn lines(hunks: &str, names: &[&str; 2]) -> Markup {
    let count = hunks.lines().count();
    html! {
        pre.sides tabindex="0" {
            @for (class, line) in with_sides(hunks, names).into_iter().take(MAX_LINES) {
                span.(class) { (printable(line)) "\n" }
            }
        }
        @if count > MAX_LINES { p { "The rest: " code { "studio conflicts --patch" } } }
    }
}

/// Returns each line with the side that it belongs to; `names` are those of the sides.
fn with_sides<'a>(hunks: &'a str, names: &[&str; 2]) -> Vec<(&'static str, &'a str)> {
    let is_marker = |line: &str, marker: &str| {
        line.strip_prefix(marker).is_some_and(|name| names.contains(&name))
    };
    let mut side = "both";
    let mut lines = Vec::new();
    for line in hunks.lines() {
        let after = match () {
            () if is_marker(line, "<<<<<<< ") => "ours",
            () if line == "=======" && side == "ours" => "theirs",
            () if is_marker(line, ">>>>>>> ") => "both",
            () => {
                lines.push((side, line));
                continue;
            }
        };
        lines.push(("marker", line));
        side = after;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_belongs_to_its_side() {
        let hunks =
            "@@ 1\n=======\n<<<<<<< a\nmine\n=======\n=======\n>>>>>>> c\n>>>>>>> b\nafter\n";
        let sides: Vec<&str> =
            with_sides(hunks, &["a", "b"]).into_iter().map(|(side, _)| side).collect();
        let expected =
            ["both", "both", "marker", "ours", "marker", "theirs", "theirs", "marker", "both"];
        assert_eq!(sides, expected);
    }
}
