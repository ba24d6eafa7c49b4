//! Tests of pointer and keyboard input as a real program receives it.

use base::desktop_protocol::{Button, DesktopRequest, DesktopResponse, InputStep};
use testkit::desktop::Desktop;
use testkit::env::until;

use crate::support::{Helper, click, keys, output, to, types};

/// Characters of the keyboard, of other alphabets, and outside of the basic multilingual plane.
const EVERY_KIND: &str = "Zażółć & {42} ünïcode 漢字 🙂";
/// More different characters than a keyboard has unused keycodes.
const MANY: &str = "абвгдежзийклмнопрстуфхцчшщъыьэюя αβγδεζηθικλμνξοπρστυφχψω АБВГ абв жзи аяωа";

#[test]
fn the_pointer_clicks_drags_and_scrolls_at_the_given_positions() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);

    helper.does(&[to(program.place("Press_me").middle()), click()]);
    program.saw("clicked Press me");

    let canvas = program.place("Canvas");
    let (x, y) = canvas.middle();
    helper.does(&[to((x, y)), InputStep::Click { button: Button::Right, times: 1 }]);
    program.saw(&format!("pressed 3 {x} {y}"));
    helper.does(&[InputStep::Click { button: Button::Left, times: 2 }]);
    program.saw(&format!("double 1 {x} {y}"));
    helper
        .does(&[InputStep::Scroll { down: 2, right: 0 }, InputStep::Scroll { down: -1, right: 1 }]);
    program.saw_times("scrolled down", 2);
    program.saw("scrolled up");
    program.saw("scrolled right");

    let (from, until_there) = ((canvas.x + 20, y), (canvas.x + 220, y + 10));
    helper.does(&[to(from), InputStep::Drag { x: until_there.0, y: until_there.1 }]);
    program.saw(&format!("pressed 1 {} {}", from.0, from.1));
    program.saw(&format!("released 1 {} {}", until_there.0, until_there.1));
    let moves = program.log().lines().filter(|line| line.starts_with("dragged")).count();
    assert!(moves >= 5, "a drag is a way, not a jump: {moves} moves");
}

#[test]
fn any_text_is_typed_correctly() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);

    helper.does(&[to(program.place("Name").middle()), click(), types(EVERY_KIND)]);
    program.saw(&format!("text {EVERY_KIND}"));
    helper.does(&[keys(&["ctrl", "a"]), types(MANY)]);
    program.saw(&format!("text {MANY}"));
    helper.does(&[keys(&["ctrl", "a"]), types("end\n")]);
    program.saw("entered end");

    // The keyboard map is restored.
    let mapped = output(&desktop, "xkbcomp", &["-xkb", desktop.display(), "-"]);
    assert!(!mapped.contains("Cyrillic") && !mapped.contains("U1F642"), "{mapped}");
}

#[test]
fn keys_are_found_by_name_and_released() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);

    helper.does(&[keys(&["Control", "Shift", "T"])]);
    program.saw("key ctrl+shift+T");
    program.saw("key-up ctrl+Control_L");
    // Neither is on an unshifted key.
    helper.does(&[keys(&["ctrl", "plus"]), keys(&["ctrl", "{"])]);
    program.saw("key ctrl+plus");
    program.saw("key ctrl+braceleft");
    helper.does(&[keys(&["ctrl+s"]), keys(&["PgDn"]), keys(&["F5"]), keys(&["esc"])]);
    for line in ["key ctrl+s", "key Page_Down", "key F5", "key Escape"] {
        program.saw(line);
    }
    let before = program.log();
    let ask =
        |steps: &[InputStep]| DesktopRequest::Input { steps: steps.to_vec(), fail_safe: false };
    let fault = helper.fault(ask(&[types("x"), keys(&["ctrl", "hyper"])]));
    assert!(fault.what.contains("step 2 of 2") && fault.what.contains("`hyper`"), "{fault:?}");
    assert!(fault.why.unwrap().contains("page_down"));
    // A lone letter shows that no modifier is held and that the rejected `x` was not typed.
    helper.does(&[types("q")]);
    program.saw("key q");
    let after = program.log();
    let new: Vec<&str> = after[before.len()..].lines().filter(|l| l.starts_with("key ")).collect();
    assert_eq!(new, ["key q"]);
}

#[test]
fn blocked_combinations_are_rejected_and_nothing_is_pressed() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);
    for names in [
        &["alt", "f4"][..],
        &["F4", "ALT"],
        &["alt+f4"],
        &["Win", "R"],
        &["r", "super"],
        &["ctrl", "alt", "del"],
        &["Control", "Delete", "Alt"],
    ] {
        let steps = vec![types("z"), keys(names)];
        let fault = helper.fault(DesktopRequest::Input { steps, fail_safe: false });
        assert!(fault.what.contains("is blocked"), "{names:?}: {fault:?}");
    }
    helper.does(&[types("q")]);
    program.saw("key q");
    let log = program.log();
    assert!(!log.contains("closed") && !log.contains("key z") && !log.contains("key F4"), "{log}");
}

#[test]
fn the_pointer_in_a_corner_stops_input_and_outside_positions_are_rejected() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);
    // Moves the pointer as a person would.
    let person = |x: &str, y: &str| output(&desktop, "xdotool", &["mousemove", x, y]);
    let press = program.place("Press_me").middle();
    for (x, y) in [("0", "0"), ("1279", "0"), ("0", "799"), ("1279", "799")] {
        person(x, y);
        let steps = vec![to(press), click()];
        let fault = helper.fault(DesktopRequest::Input { steps, fail_safe: true });
        assert!(fault.what.contains("corner"), "{fault:?}");
    }
    person("640", "780");
    let outside = vec![to(press), click(), to((1280, 10))];
    let fault = helper.fault(DesktopRequest::Input { steps: outside, fail_safe: true });
    assert!(fault.what.contains("outside of the screen"), "{fault:?}");
    assert!(output(&desktop, "xdotool", &["getmouselocation"]).starts_with("x:640 y:780"));
    assert!(!program.log().contains("clicked"), "{}", program.log());

    let told =
        helper.ask(DesktopRequest::Input { steps: vec![to(press), click()], fail_safe: true });
    assert_eq!(told, DesktopResponse::Done);
    program.saw("clicked Press me");
    // A person who moves the pointer into a corner during a text stops the typing.
    let slow = vec![types(&"a".repeat(1000)), to(press), click()];
    helper.asks(DesktopRequest::Input { steps: slow, fail_safe: true });
    program.saw_times("key a", 3);
    person("0", "0");
    assert!(
        matches!(helper.told().what, DesktopResponse::Fault(fault) if fault.what.contains("corner"))
    );
    let typed = program.log().lines().filter(|line| *line == "key a").count();
    assert!((3..900).contains(&typed), "{typed} of 1000 characters were typed");
    assert_eq!(program.log().matches("clicked").count(), 1);
}

#[test]
fn keys_are_released_when_the_client_disconnects() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let canvas = program.place("Canvas");
    let (x, y) = canvas.middle();
    let drag = vec![to((x, y)), InputStep::Drag { x: x + 100, y }];

    let mut helper = Helper::on(&desktop);
    helper.asks(DesktopRequest::Input { steps: drag.clone(), fail_safe: false });
    program.saw(&format!("pressed 1 {x} {y}"));
    drop(until_gone(helper));
    until("the button is let go", || program.log().contains("released 1").then_some(()));

    let mut helper = Helper::on(&desktop);
    let steps = [drag, vec![types(&"b".repeat(500))]].concat();
    helper.asks(DesktopRequest::Input { steps, fail_safe: false });
    program.saw_times(&format!("pressed 1 {x} {y}"), 2);
    base::process::signal_group(helper.running.id(), rustix::process::Signal::TERM);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let status = helper.running.wait_until(Some(until)).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(143));
    until_released(&program);
}

fn until_released(program: &testkit::desktop::DesktopProgram) {
    until("both drags end with a release", || {
        (program.log().matches("released 1").count() >= 2).then_some(())
    });
}

/// Disconnects and waits for the helper to exit.
fn until_gone(helper: Helper) -> base::process::Running {
    let mut running = helper.hang_up();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    assert!(running.wait_until(Some(end)).unwrap().is_some(), "it does not end with its stdin");
    running
}
