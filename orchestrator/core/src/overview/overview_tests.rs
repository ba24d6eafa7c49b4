//! Rows, their order, their notices and their filter, from journals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::radar::SessionConflict;
use crate::session::collect::BranchStanding;
use crate::session::journal::{JournalEntry, JournalLine, SessionOutcome};
use crate::session::record::SessionRecord;
use crate::session::summary::{JournalSummary, SessionFacts};

/// Returns a session with these entries, one each second.
fn view(id: &str, second: u32, entries: &[JournalEntry]) -> SessionView {
    let record: SessionRecord = serde_json::from_value(serde_json::json!({
        "schema": 1, "id": id, "task": format!("do {id}"), "agent": "g3",
        "base": {"branch": "main", "commit": "0".repeat(40)},
        "place": {
            "id": id, "worktree": "/w", "branch": format!("studio/{id}"), "git_dir": "/g",
            "base": "0".repeat(40),
        },
        "templates": {"branch": "studio/{id}", "worktree": "/w/{id}"},
        "checks": [], "limits": {}, "manner": {}, "attempt": 1,
        "created_at": "2026-01-02T10:00:00Z",
    }))
    .unwrap();
    let time = |second: u32| format!("2026-01-02T10:00:{second:02}Z");
    let lines: Vec<JournalLine> = (second..)
        .zip(entries)
        .map(|(second, entry)| JournalLine { time: time(second), entry: entry.clone() })
        .collect();
    let facts = SessionFacts {
        locked: true,
        summary: JournalSummary::of(&lines),
        disposition: Disposition::Open,
        dependencies: Vec::new(),
        queue_reason: None,
    };
    SessionView::new(record, facts)
}

fn asked(n: u32, what: &str) -> JournalEntry {
    JournalEntry::Asked { n, what: what.to_owned(), rule: None, host: None }
}

fn turn() -> JournalEntry {
    JournalEntry::Turn { n: 1, text: "do".to_owned(), log_bytes: None }
}

fn exit(outcome: SessionOutcome) -> JournalEntry {
    JournalEntry::Exit { outcome, ms: None }
}

#[test]
fn requests_come_first_then_groups_each_with_the_oldest_first() {
    let failed = || exit(SessionOutcome::Failed { why: "no".to_owned() });
    let views = [
        view("late-asks", 20, &[turn(), asked(1, "rm -rf\n  late")]),
        view("early-asks", 5, &[turn(), asked(1, "one"), asked(2, "two")]),
        view("ready-it", 1, &[turn(), exit(SessionOutcome::Ready)]),
        view("failed-late", 9, &[turn(), failed()]),
        view("failed-early", 3, &[turn(), failed()]),
        view("working", 2, &[turn()]),
    ];
    let sessions: Vec<(&SessionView, bool)> = views.iter().map(|view| (view, false)).collect();
    let overview = Overview::of(&sessions);
    let shown: Vec<(&str, &str, Option<u32>)> = overview
        .rows
        .iter()
        .map(|row| (row.group.title(), row.key.id.as_str(), row.key.request))
        .collect();
    assert_eq!(
        shown,
        [
            ("needs you", "early-asks", Some(1)),
            ("needs you", "early-asks", Some(2)),
            ("needs you", "late-asks", Some(1)),
            ("needs you", "failed-early", None),
            ("needs you", "failed-late", None),
            ("working", "working", None),
            ("ready", "ready-it", None),
        ]
    );
    assert_eq!(overview.rows[2].text, "rm -rf late");
    // Requests and new settled sessions are told about, once: working ones are not.
    assert_eq!(overview.notices().len(), 6);
    let seen: Vec<(&SessionView, bool)> = views.iter().map(|view| (view, true)).collect();
    assert_eq!(Overview::of(&seen).notices().len(), 3);
}

#[test]
fn a_conflict_is_the_text_of_a_ready_session() {
    let mut ready = view("ready-it", 1, &[turn(), exit(SessionOutcome::Ready)]);
    let conflicts = vec!["a".to_owned(), "b".to_owned()];
    ready.standing = Some(BranchStanding { ahead: 1, behind: 1, conflicts, landed: None });
    let overview = Overview::of(&[(&ready, false)]);
    assert_eq!(overview.rows[0].text, "conflicts with main in a and 1 more");
    ready.standing = None;
    let other = Id::parse("other-it").unwrap();
    ready.conflicts_with = Some(vec![SessionConflict { id: other, files: vec!["c".to_owned()] }]);
    let overview = Overview::of(&[(&ready, false)]);
    assert_eq!(overview.rows[0].text, "conflicts with other-it in c");
}

#[test]
fn a_filter_keeps_rows_with_all_of_its_words() {
    let first = view("fix-parser", 1, &[turn(), exit(SessionOutcome::Ready)]);
    let second = view("fix-lexer", 1, &[turn()]);
    let overview = Overview::of(&[(&first, false), (&second, false)]);
    let kept = |filter: &str| overview.filtered(&RowFilter::parse(filter)).count();
    assert_eq!(["", "FIX", "fix ready", "lexer ready", "g3"].map(kept), [2, 2, 1, 0, 2]);
}
