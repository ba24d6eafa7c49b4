//! The screen of `studio review`: what it draws, and what keys do to it.

use std::sync::OnceLock;

use base::config::Config;
use base::id::Id;
use orchestrator::review::screen::{ReviewMode, ReviewRequest, ReviewScreen};
use orchestrator::review::view;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use studio_core::project::Project;
use studio_core::review;
use studio_core::review::syntax::SyntaxHighlighter;
use studio_git::repo::Repository;

use crate::fixtures::Scene;

/// Creates a session with hunks of all kinds.
fn scene() -> (Scene, String) {
    let scene = Scene::new();
    scene.repo.commit_file("Cargo.lock", "a\n");
    let lines: String = (1..=30).map(|n| format!("    let line_{n} = {n}\n")).collect();
    scene.repo.commit_file("src/long.rs", lines);
    let id = scene.ready(
        "sh sed -i 's/line_4 = 4/line_4 = 44 \\/\\/ four/' src/long.rs && echo b >> Cargo.lock; \
         sh printf '\\033[8mhidden\\033[0m\\tab\\r\\nwide \\347\\225\\214\\n' > odd.txt; \
         write src/login.rs pub fn check() {}",
    );
    scene.await_free(&id);
    (scene, id)
}

fn open(scene: &Scene, id: &str, size: (u16, u16)) -> ReviewScreen {
    let repository = Repository::discover(scene.repo.path()).expect("a repository");
    let project = Project::new(repository, Config::default());
    let session = project.view(&Id::parse(id).expect("an id")).expect("a session");
    let review = review::open(&project, &session, &[], None).expect("a review");
    ReviewScreen::new(review, (2, 12), size, true)
}

fn draw(screen: &mut ReviewScreen, size: (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, size.0, size.1);
    let mut buffer = Buffer::empty(area);
    static HIGHLIGHTER: OnceLock<SyntaxHighlighter> = OnceLock::new();
    screen.mark_visible(Some(HIGHLIGHTER.get_or_init(SyntaxHighlighter::load)));
    view::draw(screen, area, &mut buffer);
    buffer
}

fn text(buffer: &Buffer) -> String {
    let rows = buffer.content.chunks(usize::from(buffer.area.width));
    let row = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    };
    rows.map(row).collect::<Vec<_>>().join("\n")
}

fn press(screen: &mut ReviewScreen, keys: &str) -> Option<ReviewRequest> {
    let mut last = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '↓' => KeyCode::Down,
            key => KeyCode::Char(key),
        };
        last = screen.press(KeyEvent::new(code, KeyModifiers::NONE)).expect("it works in a test");
    }
    last
}

#[test]
fn the_screen_at_80_by_24() {
    let (scene, id) = scene();
    let size = (80, 24);
    let mut screen = open(&scene, &id, size);
    let show = |screen: &mut ReviewScreen| text(&draw(screen, size)).replace(&id, "ID");
    insta::assert_snapshot!("first", show(&mut screen));
    // Decide, comment in place, unfold the lock file at the end.
    press(&mut screen, "aj↓↓↓↓↓cWhy four?\n");
    insta::assert_snapshot!("commented", show(&mut screen));
    press(&mut screen, "jjjf");
    insta::assert_snapshot!("unfolded", show(&mut screen));
    press(&mut screen, "?");
    insta::assert_snapshot!("help", show(&mut screen));
}

#[test]
fn every_size_is_drawn_and_nothing_reaches_the_terminal_unescaped() {
    let (scene, id) = scene();
    let mut screen = open(&scene, &id, (80, 24));
    press(
        &mut screen,
        "cA long comment that is wrapped on a narrow terminal, without losing a word\n",
    );
    for size in [(1, 1), (20, 5), (40, 10), (80, 24), (300, 80)] {
        screen.resize(size);
        for keys in ["", "j", "v↓", "s", "?", "?", "c", "x\n", "k"] {
            press(&mut screen, keys);
            let buffer = draw(&mut screen, size);
            assert!(!text(&buffer).replace('\n', "").chars().any(char::is_control), "{size:?}");
        }
    }
    screen.resize((120, 60));
    let shown = text(&draw(&mut screen, (120, 60)));
    assert!(shown.contains("^[[8mhidden^[[0m") && shown.contains("^M"), "{shown}");
}

#[test]
fn both_sides_are_beside_each_other_where_the_width_allows() {
    let (scene, id) = scene();
    let mut screen = open(&scene, &id, (80, 24));
    press(&mut screen, "s");
    assert_eq!(screen.message, "side by side needs 100 columns");
    screen.resize((120, 40));
    press(&mut screen, "s");
    let shown = text(&draw(&mut screen, (120, 40)));
    let line = shown.lines().find(|line| line.contains("line_4 = 4 ")).expect("the line");
    assert!(
        line.contains("4 -    let line_4 = 4") && line.contains("4 +    let line_4 = 44"),
        "{line}"
    );
    screen.resize((80, 24));
    assert!(!screen.side_by_side);
}

#[test]
fn colours_show_syntax_and_changed_words() {
    let (scene, id) = scene();
    let mut screen = open(&scene, &id, (80, 40));
    let buffer = draw(&mut screen, (80, 40));
    let find = |words: &str| {
        let text = text(&buffer);
        let (row, line) =
            text.lines().enumerate().find(|(_, line)| line.contains(words)).expect(words);
        let column = line[..line.find(words).expect("it is there")].chars().count();
        buffer[(u16::try_from(column).unwrap(), u16::try_from(row).unwrap())].style()
    };
    assert_eq!(find("let line_3").fg, Some(Color::Magenta), "a keyword");
    let changed = find("4 // four");
    assert!(find("44 // four").add_modifier.contains(Modifier::UNDERLINED));
    assert_eq!(changed.fg, Some(Color::Green));
    screen.colours = false;
    let plain = draw(&mut screen, (80, 40));
    let is_coloured =
        |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
    assert!(!plain.content.iter().any(is_coloured));
}

#[test]
fn keys_decide_comment_and_ask_before_they_override() {
    let (scene, id) = scene();
    let mut screen = open(&scene, &id, (80, 24));
    assert_eq!(press(&mut screen, "S"), None);
    assert!(screen.message.starts_with("nothing to send"), "{}", screen.message);
    assert_eq!(press(&mut screen, "L"), None);
    assert_eq!(press(&mut screen, "A"), Some(ReviewRequest::LandSession));
    press(&mut screen, "r");
    assert_eq!(press(&mut screen, "S"), Some(ReviewRequest::Send));
    assert_eq!(press(&mut screen, "A"), None, "it asks");
    assert_eq!(press(&mut screen, "n"), None);
    assert_eq!(press(&mut screen, "Ay"), Some(ReviewRequest::LandSession));
    assert_eq!(press(&mut screen, "n"), Some(ReviewRequest::Session(1)));
    assert_eq!(press(&mut screen, "p"), Some(ReviewRequest::Session(-1)));
    // A comment on selected lines; another process removes it.
    press(&mut screen, "kj↓↓↓v↓↓cTwo words\n");
    let comment = screen.review.comments[0].clone();
    assert_eq!((comment.anchor.snippet.len(), comment.text.as_str()), (3, "Two words"));
    press(&mut screen, "e!\n");
    assert_eq!(screen.review.comments[0].text, "Two words!");
    let mut other = open(&scene, &id, (80, 24));
    assert_eq!(other.review.comments.len(), 1);
    press(&mut other, "c1\n");
    assert!(screen.review.reload_changed().expect("it works"));
    assert_eq!(screen.review.comments.len(), 2);
    screen.rebuild();
    press(&mut screen, "d");
    assert_eq!(screen.mode, ReviewMode::Browse);
    assert_eq!(press(&mut screen, "q"), Some(ReviewRequest::Quit));
    // What was decided is there at the next time, and the first open hunk is shown.
    let again = open(&scene, &id, (80, 24));
    assert_eq!(again.current_hunk(), Some(1));
}
