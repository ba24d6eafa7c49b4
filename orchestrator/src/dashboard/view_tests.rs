//! Snapshots of the dashboard, and what holds for every screen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use base::id::Id;
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use studio_core::overview::{Overview, OverviewRow, RowKey, SessionGroup};
use studio_core::radar::SessionConflict;
use studio_core::session::journal::{CheckResult, JournalEntry, JournalLine, SessionOutcome};
use studio_core::session::state::SessionState;

use crate::dashboard::keys::{Action, Key};
use crate::dashboard::preview::{PreviewTab, RequestText};
use crate::dashboard::state::{Dashboard, DashboardEffect, DashboardMode};
use crate::dashboard::view::{Canvas, Drawn, Hit, draw, state_name};

fn now() -> Timestamp {
    "2026-01-02T10:00:00Z".parse().unwrap()
}

fn row(id: &str, group: SessionGroup, state: SessionState, text: &str) -> OverviewRow {
    OverviewRow {
        key: RowKey { id: Id::parse(id).unwrap(), request: None },
        prefix: id[..4].to_owned(),
        group,
        state,
        is_new: false,
        task: format!("the task of {id}"),
        agent: "g3".to_owned(),
        text: text.to_owned(),
        last_message: None,
        conflicts: Vec::new(),
        conflicts_with: Vec::new(),
        warning: None,
        changes: None,
        cost_usd: None,
        since: "2026-01-02T09:57:00Z".to_owned(),
        next: Some(format!("studio diff {}", &id[..4])),
        undo_operation: None,
    }
}

fn rows() -> Vec<OverviewRow> {
    use SessionGroup as Group;
    let waiting = || SessionState::Waiting { reason: "permission 2".to_owned() };
    let request = |id: &str, number: u32, text: &str| OverviewRow {
        key: RowKey { id: Id::parse(id).unwrap(), request: Some(number) },
        ..row(id, Group::NeedsYou, waiting(), text)
    };
    let failed = SessionState::Failed { why: "w".to_owned() };
    vec![
        request(
            "drop-the-table-aaaa",
            2,
            "psql -c 'drop table users' && rm -rf /srv/数据库/backup",
        ),
        OverviewRow {
            is_new: true,
            cost_usd: Some(1.5),
            changes: Some((120, 7, true)),
            ..row(
                "fix-the-test-bbbb",
                Group::NeedsYou,
                failed,
                "check `make test` failed with exit code 2",
            )
        },
        OverviewRow {
            cost_usd: Some(0.25),
            ..row(
                "port-it-cccc",
                Group::Working,
                SessionState::Working,
                "I read src/parser.rs \u{1b}[31mred",
            )
        },
        OverviewRow {
            changes: Some((3, 0, false)),
            conflicts: vec!["src/lib.rs".to_owned(), "docs/a.md".to_owned()],
            ..row(
                "add-a-log-dddd",
                Group::Ready,
                SessionState::Ready,
                "conflicts with main in src/lib.rs and 1 more",
            )
        },
        OverviewRow {
            undo_operation: Some("op3".to_owned()),
            ..row("old-work-eeee", Group::Done, SessionState::Accepted, "landed as 1234567890ab")
        },
    ]
}

/// Returns the dashboard with the first row selected.
fn scene() -> Dashboard {
    let mut state = Dashboard::new("shop".to_owned(), true);
    state.set_overview(Overview { rows: rows() });
    state.preview.request = Some(RequestText {
        always_text: "always allow this in this session",
        never_hint: None,
        head: "drop-the-table-aaaa asks for permission 2:".to_owned(),
        place: "in /home/you/shop.worktrees/drop-the-table-aaaa".to_owned(),
        description: "psql -c 'drop table users' &&\nrm -rf /srv/数据库/backup \u{202e}".to_owned(),
    });
    let line = |entry| JournalLine { time: "2026-01-02T09:58:01.5Z".to_owned(), entry };
    let event = |text: &str| JournalEntry::Event { event: serde_json::from_str(text).unwrap() };
    let stamp = r#""seq":1,"time":"2026-01-02T09:58:01Z""#;
    let failed = CheckResult {
        command: "make test".to_owned(),
        ok: false,
        exit: 2,
        ms: 900,
        tail: "test login ... FAILED\n".to_owned(),
        hint: None,
        limit: None,
        fails_on: None,
        flaky: false,
    };
    let lines = [
        JournalEntry::Turn { n: 1, text: "Fix the flaky test".to_owned(), log_bytes: None },
        event(&format!(
            r#"{{{stamp},"type":"tool_start","id":"1","name":"shell","args":{{"command":"make test"}}}}"#
        )),
        event(&format!(
            r#"{{{stamp},"type":"tool_end","id":"1","name":"shell","ok":true,"text":"","ms":2300}}"#
        )),
        event(&format!(r#"{{{stamp},"type":"text","text":"The test depends on the time."}}"#)),
        JournalEntry::TurnEnd { n: 1, why: None },
        JournalEntry::Checked { results: vec![failed] },
        JournalEntry::Exit {
            outcome: SessionOutcome::Failed { why: "a check failed".to_owned() },
            ms: None,
        },
    ];
    let lines: Vec<JournalLine> = lines.into_iter().map(line).collect();
    state.preview.timeline.add_lines(&lines);
    state.preview.log = vec!["10:00:00  queued".to_owned()];
    state.preview.diff = Some(Ok(
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\tline\n".to_owned(),
    ));
    state
}

fn drawn(state: &Dashboard, width: u16, height: u16) -> (Buffer, Drawn) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let drawn = draw(state, now(), &mut buffer);
    (buffer, drawn)
}

fn text(state: &Dashboard, width: u16, height: u16) -> String {
    let (buffer, _) = drawn(state, width, height);
    let line = |y| {
        let mut skip = 0;
        let mut line = String::new();
        for x in 0..width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = base::text::columns(symbol).max(1);
            }
            skip -= 1;
        }
        line.trim_end().to_owned()
    };
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_dashboard_at_80x24_and_200x60() {
    let mut state = scene();
    insta::assert_snapshot!("request_80x24", text(&state, 80, 24));
    insta::assert_snapshot!("request_200x60", text(&state, 200, 60));
    state.move_selection(1);
    state.preview.request = None;
    insta::assert_snapshot!("failed_80x24", text(&state, 80, 24));
    state.move_selection(2);
    state.tab = PreviewTab::Diff;
    insta::assert_snapshot!("diff_80x24", text(&state, 80, 24));
    state.tab = PreviewTab::Log;
    state.is_enlarged = true;
    insta::assert_snapshot!("log_enlarged_80x24", text(&state, 80, 24));
}

#[test]
fn questions_lines_of_text_help_and_errors() {
    let mut state = scene();
    state.handle_key(Key::Char('s'));
    state.handle_paste("use the\nother database");
    insta::assert_snapshot!("message_80x24", text(&state, 80, 24));
    state.handle_key(Key::Esc);
    state.handle_key(Key::Char('X'));
    insta::assert_snapshot!("discard_40x10", text(&state, 40, 10));
    state.handle_key(Key::Esc);
    state.handle_key(Key::Char('?'));
    insta::assert_snapshot!("help_80x40", text(&state, 80, 40));
    state.handle_key(Key::Esc);
    state.show_failure("error: cannot land\n  why: it is in use\n  try: studio stop x".to_owned());
    insta::assert_snapshot!("failure_80x24", text(&state, 80, 24));
    let mut empty = Dashboard::new("shop".to_owned(), true);
    empty.set_overview(Overview::default());
    insta::assert_snapshot!("empty_80x10", text(&empty, 80, 10));
}

#[test]
fn every_size_is_drawn_in_every_mode() {
    let modes: [&dyn Fn(&mut Dashboard); 7] = [
        &|_| {},
        &|state| state.is_enlarged = true,
        &|state| state.mode = DashboardMode::Help(3),
        &|state| state.show_failure("error: x\n".repeat(9)),
        &|state| drop(state.handle_key(Key::Char('s'))),
        &|state| drop(state.handle_key(Key::Char('X'))),
        &|state| state.move_selection(3),
    ];
    for set_mode in modes {
        let mut state = scene();
        set_mode(&mut state);
        for width in (0..60).chain([79, 80, 119, 120, 121, 300]) {
            for height in (0..30).chain([100]) {
                drawn(&state, width, height);
            }
        }
    }
}

#[test]
fn colours_are_ansi_colours_and_can_be_off() {
    let colours = |state: &Dashboard| {
        let (buffer, _) = drawn(state, 200, 60);
        let cells: Vec<Color> = buffer.content.iter().flat_map(|cell| [cell.fg, cell.bg]).collect();
        cells.into_iter().filter(|color| *color != Color::Reset).collect::<Vec<_>>()
    };
    let mut state = scene();
    let used = colours(&state);
    assert!(!used.is_empty());
    assert!(used.iter().all(|color| !matches!(color, Color::Rgb(..) | Color::Indexed(_))));
    state.colours = false;
    assert_eq!(colours(&state), []);
}

#[test]
fn a_request_counts_as_shown_only_with_its_end() {
    let mut state = scene();
    assert_eq!(drawn(&state, 80, 24).1.request, state.selected);
    let description = (0..80).map(|n| format!("echo {n}\n")).collect::<String>();
    state.preview.request.as_mut().unwrap().description = description;
    let (_, first) = drawn(&state, 80, 24);
    assert_eq!(first.request, None);
    state.scroll = first.max_scroll;
    assert_eq!(drawn(&state, 80, 24).1.request, state.selected);
    // A screen without the request, or behind a text that the user types.
    assert_eq!(drawn(&scene(), 40, 10).1.request, None);
    let mut typing = scene();
    typing.handle_key(Key::Char('s'));
    assert_eq!(drawn(&typing, 80, 24).1.request, None);
}

#[test]
fn a_request_is_answered_only_after_it_was_shown() {
    let mut state = scene();
    assert_eq!(state.handle_key(Key::Char('y')), None);
    state.answerable.clone_from(&state.selected);
    let effect = state.handle_key(Key::Char('y'));
    let Some(DashboardEffect::Run(command)) = effect else { panic!("{effect:?}") };
    assert_eq!(command.words, ["answer", "drop-the-table-aaaa", "2", "allow"]);
    // A second key does not answer again.
    assert_eq!(state.handle_key(Key::Char('n')), None);
    // Another row needs to be shown first.
    state.move_selection(1);
    state.move_selection(-1);
    assert_eq!(state.answerable, None);
}

#[test]
fn the_selection_stays_on_its_row_or_follows_its_session() {
    let mut state = scene();
    state.move_selection(1);
    let mut changed = rows();
    changed.swap(1, 4);
    state.set_overview(Overview { rows: changed });
    assert_eq!(state.selected.as_ref().unwrap().id.as_str(), "fix-the-test-bbbb");
    // The request was answered: the session's own row is selected.
    state.move_selection(isize::MIN);
    let mut changed = rows();
    changed[0].key.request = None;
    changed.rotate_left(1);
    state.set_overview(Overview { rows: changed });
    assert_eq!(state.selected.as_ref().unwrap().id.as_str(), "drop-the-table-aaaa");
    state.set_overview(Overview::default());
    assert_eq!(state.selected, None);
}

#[test]
fn the_mouse_finds_rows_previews_and_keys() {
    let state = scene();
    let (_, screen) = drawn(&state, 80, 24);
    let second = &state.overview.rows[1].key;
    assert_eq!(screen.at(10, 3), Some(&Hit::Row(second.clone())));
    let line = text(&state, 80, 24).lines().last().unwrap().to_owned();
    let column = u16::try_from(line.find("deny").unwrap()).unwrap();
    assert_eq!(screen.at(column, 23), Some(&Hit::Button(Action::Deny)));
    assert_eq!(screen.at(79, 0), None);
}

#[test]
fn rows_out_of_sight_are_counted_and_ids_differ_where_they_are_cut() {
    let named = |n: u32| OverviewRow {
        prefix: format!("bump-the-version-{n}"),
        ..row(
            &format!("bump-the-version-{n}-aaaa"),
            SessionGroup::NeedsYou,
            SessionState::Crashed,
            "it exited",
        )
    };
    let working = row("port-it-cccc", SessionGroup::Working, SessionState::Working, "I read");
    let mut state = Dashboard::new("shop".to_owned(), true);
    state.set_overview(Overview { rows: (0..12).map(named).chain([working]).collect() });
    let shown = text(&state, 80, 24);
    assert!(shown.contains("↓ 3 needs you") && !shown.contains('↑'), "{shown}");
    assert!(shown.contains("bump-t…rsion-1"), "{shown}");
    assert!(text(&state, 50, 24).contains(" ↓3"));
    state.selected = state.overview.rows.last().map(|row| row.key.clone());
    let shown = text(&state, 80, 24);
    assert!(shown.contains("↑ 4 needs you") && !shown.contains('↓'), "{shown}");
}

#[test]
fn a_session_that_changes_the_lines_of_another_one_is_marked() {
    let mut row = row("port-it-cccc", SessionGroup::Working, SessionState::Working, "x");
    assert_eq!(state_name(&row).0, "working");
    let id = Id::parse("fix-it-dddd").unwrap();
    row.conflicts_with = vec![SessionConflict { id, files: vec!["src/lib.rs".to_owned()] }];
    assert_eq!(state_name(&row).0, "working (!)");
    let mut state = Dashboard::new("shop".to_owned(), true);
    state.set_overview(Overview { rows: vec![row] });
    let shown = text(&state, 100, 30);
    assert!(shown.contains("conflicts  with fix-it-dddd: src/lib.rs"), "{shown}");
}

#[test]
fn a_list_without_height_draws_nothing() {
    let mut buf = Buffer::empty(Rect::new(0, 0, 80, 4));
    let before = buf.clone();
    let mut canvas = Canvas { buf: &mut buf, colours: true, drawn: Drawn::default() };
    for y in [0, 2] {
        canvas.list(&scene(), now(), Rect::new(0, y, 80, 0));
    }
    assert_eq!(buf, before);
}
