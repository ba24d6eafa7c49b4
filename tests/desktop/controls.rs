//! Tests of the controls of a real program through the accessibility bus; effects are read from the
//! program.

use base::desktop_protocol::{
    Control, ControlAction, ControlQuery, ControlResult, ControlVerb, Controls, DesktopFault,
    DesktopRequest, DesktopResponse,
};
use testkit::desktop::Desktop;

use crate::support::{Helper, click, to, types};

fn look() -> ControlQuery {
    ControlQuery { interactive: true, limit: 200, depth: 12, ..ControlQuery::default() }
}

fn controls(helper: &mut Helper, look: ControlQuery) -> Controls {
    match helper.ask(DesktopRequest::Controls(look)) {
        DesktopResponse::Controls(controls) => controls,
        other => panic!("{other:?}"),
    }
}

fn act(name: &str, action: ControlVerb, value: Option<&str>) -> ControlAction {
    let (name, value) = (Some(name.to_owned()), value.map(str::to_owned));
    ControlAction { look: look(), name, automation_id: None, role: None, action, value }
}

#[track_caller]
fn acts(helper: &mut Helper, act: ControlAction) -> Control {
    match helper.ask(DesktopRequest::Act(act)) {
        DesktopResponse::Acted(ControlResult { control: Some(control), .. }) => control,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(helper: &mut Helper, act: ControlAction) -> DesktopFault {
    helper.fault(DesktopRequest::Act(act))
}

#[test]
fn the_controls_of_the_active_window_are_listed_with_their_state() {
    let desktop = Desktop::start();
    let _behind = desktop.program("Behind");
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);
    helper.does(&[to(program.place("Name").middle()), click(), types("Ada")]);
    program.saw("text Ada");

    let told = controls(&mut helper, look());
    assert_eq!((told.active.as_str(), &told.note, told.cut), ("Fixture", &None, false));
    let short: Vec<String> = told
        .controls
        .iter()
        .map(|c| format!("{} {} {:?}", c.role, c.name, c.value.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!(
        short,
        [
            "push button Press me \"-\"",
            "push button Off \"-\"",
            "check box Remember \"off\"",
            "toggle button Bold \"off\"",
            "push button Hang \"-\"",
            "text Name \"Ada\"",
            "password text Secret \"-\"",
            "spin button Count \"0\"",
            "slider Volume \"0\"",
            "radio button Red \"on\"",
            "radio button Blue \"off\"",
            "combo box Size \"-\"",
            "menu  \"-\"",
            "menu item small \"-\"",
            "menu item medium \"-\"",
            "menu item large \"-\"",
            "toggle button More \"off\"",
            "list item alpha \"-\"",
            "list item beta \"-\"",
            "page tab First \"-\"",
            "page tab Second \"-\"",
        ]
    );
    let named = |name: &str| told.controls.iter().find(|control| control.name == name).unwrap();
    let press = named("Press me");
    let (place, area) = (program.place("Press_me"), press.area.unwrap());
    assert_eq!((area.x, area.y), (place.x, place.y));
    assert_eq!(
        (press.automation_id.as_str(), &press.actions[..]),
        ("press-me", &["Click".to_owned()][..])
    );
    assert!(press.enabled && press.visible && press.app == "program.py");
    assert!(!named("Off").enabled && !named("small").visible);
    let focused = told.focused.unwrap();
    assert_eq!((focused.name.as_str(), focused.value.as_deref()), ("Name", Some("Ada")));

    // Labels too; other windows; fewer; less deep.
    let all = controls(&mut helper, ControlQuery { interactive: false, ..look() });
    assert!(all.controls.iter().any(|c| c.role == "label" && c.name == "A quiet label"));
    let other = ControlQuery { window: Some("behi".to_owned()), ..look() };
    assert_eq!(controls(&mut helper, other).controls[5].value.as_deref(), Some(""));
    let both = controls(&mut helper, ControlQuery { everywhere: true, ..look() });
    assert_eq!(both.controls.len(), 2 * short.len());
    let few = controls(&mut helper, ControlQuery { limit: 3, ..look() });
    assert_eq!((few.controls.len(), few.cut), (3, true));
    let flat = controls(&mut helper, ControlQuery { depth: 2, ..look() });
    assert_eq!(flat.controls, [], "the window holds a box, and that holds rows");
    let none = controls(&mut helper, ControlQuery { window: Some("Nobody".to_owned()), ..look() });
    assert!(none.controls.is_empty() && none.note.unwrap().contains("Fixture"));
}

#[test]
fn controls_are_acted_on_by_name_and_the_program_notices() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);

    acts(&mut helper, act("press", ControlVerb::Click, None));
    program.saw("clicked Press me");
    let name = acts(&mut helper, act("Name", ControlVerb::SetValue, Some("Zażółć 漢字 🙂")));
    program.saw("text Zażółć 漢字 🙂");
    assert_eq!(name.value.as_deref(), Some("Zażółć 漢字 🙂"));
    let count = acts(&mut helper, act("count", ControlVerb::SetValue, Some("42")));
    program.saw("count 42");
    assert_eq!(count.value.as_deref(), Some("42"));
    acts(&mut helper, act("volume", ControlVerb::SetValue, Some("7")));
    program.saw("volume 7");
    let remember = acts(&mut helper, act("remember", ControlVerb::Toggle, None));
    program.saw("toggled Remember on");
    assert_eq!(remember.value.as_deref(), Some("on"));
    let secret = acts(&mut helper, act("Secret", ControlVerb::SetValue, Some("swordfish")));
    assert_eq!(secret.value, None);
    acts(&mut helper, act("Blue", ControlVerb::Select, None));
    program.saw("chosen Blue");
    let size = acts(&mut helper, act("Size", ControlVerb::Select, Some("Medium")));
    program.saw("size medium");
    assert_eq!(size.value.as_deref(), Some("medium"));
    acts(&mut helper, act("Letters", ControlVerb::Select, Some("beta")));
    program.saw("row beta");
    acts(&mut helper, act("alpha", ControlVerb::Click, None));
    program.saw("row alpha");
    acts(&mut helper, act("Second", ControlVerb::Select, None));
    program.saw("page 1");
    acts(&mut helper, act("More", ControlVerb::Expand, None));
    program.saw("expanded on");
    acts(&mut helper, act("More", ControlVerb::Expand, None));
    acts(&mut helper, act("More", ControlVerb::Collapse, None));
    program.saw("expanded off");
    assert_eq!(program.log().matches("expanded on").count(), 1, "what is open stays open");
    acts(&mut helper, act("Name", ControlVerb::Focus, None));
    assert_eq!(controls(&mut helper, look()).focused.unwrap().name, "Name");
    helper.does(&[types("!")]);
    program.saw("text !");

    let by_id = ControlAction {
        name: None,
        automation_id: Some("bold".to_owned()),
        role: Some("toggle button".to_owned()),
        ..act("", ControlVerb::Click, None)
    };
    acts(&mut helper, by_id);
    program.saw("toggled Bold on");
}

#[test]
fn an_unsupported_action_lists_the_supported_ones() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);
    let before = program.log();

    let fault = refused(&mut helper, act("Press me", ControlVerb::SetValue, Some("x")));
    assert!(
        fault.what.contains("`Press me` (push button) does not support set_value"),
        "{fault:?}"
    );
    assert_eq!(fault.why.unwrap(), "it supports: click, focus");
    let fault = refused(&mut helper, act("Name", ControlVerb::Expand, None));
    assert!(fault.why.unwrap().contains("set_value"));
    let fault = refused(&mut helper, act("Off", ControlVerb::Click, None));
    assert!(fault.what.contains("is disabled"), "{fault:?}");
    let fault = refused(&mut helper, act("Count", ControlVerb::SetValue, Some("101")));
    assert!(fault.why.unwrap().contains("0 to 100"));
    let fault = refused(&mut helper, act("Volume", ControlVerb::SetValue, Some("loud")));
    assert!(fault.what.contains("`loud` is no number"));
    let fault = refused(&mut helper, act("Size", ControlVerb::Select, Some("huge")));
    assert!(fault.why.unwrap().contains("small; medium; large"));
    let fault =
        refused(&mut helper, ControlAction { name: None, ..act("", ControlVerb::Click, None) });
    assert!(fault.what.contains("which control"), "{fault:?}");

    let told = helper.ask(DesktopRequest::Act(act("Nothing like it", ControlVerb::Click, None)));
    let DesktopResponse::Acted(ControlResult { control: None, available }) = told else {
        panic!("{told:?}")
    };
    assert_eq!(available.len(), 15);
    assert_eq!(available[..2], ["Press me (push button)", "Off (push button, disabled)"]);
    assert!(available.contains(&"small (menu item, hidden)".to_owned()), "{available:?}");
    assert_eq!(program.log(), before, "nothing was done");
}

#[test]
fn without_a_bus_the_list_is_empty_with_a_reason() {
    let desktop = Desktop::bare();
    let mut helper = Helper::on(&desktop);
    let told = controls(&mut helper, look());
    assert!(told.controls.is_empty());
    assert!(told.note.unwrap().contains("at-spi2-core"));
    let fault = refused(&mut helper, act("Press me", ControlVerb::Click, None));
    assert!(fault.what.contains("no accessibility bus"), "{fault:?}");
    // Even without a screen.
    let nobody = ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    let told = controls(&mut Helper::nowhere(&[nobody]), look());
    assert!(told.controls.is_empty() && told.note.is_some());
}

#[test]
fn a_control_that_closes_its_window_was_acted_on() {
    let desktop = Desktop::start();
    let dialog = desktop.script("dialog.py", "dialog", &[]);
    dialog.saw("ready");
    let mut helper = Helper::on(&desktop);
    let control = acts(&mut helper, act("done", ControlVerb::Click, None));
    assert_eq!((control.name.as_str(), control.role.as_str()), ("Done", "push button"));
    dialog.saw("done");
}

#[test]
fn a_program_that_hangs_does_not_hang_the_helper() {
    let desktop = Desktop::start();
    let well = desktop.program("Well");
    let stuck = desktop.program("Stuck");
    let mut helper = Helper::on(&desktop);
    helper.does(&[to(stuck.place("Hang").middle()), click()]);
    stuck.saw("hanging");

    let told = controls(&mut helper, ControlQuery { everywhere: true, ..look() });
    assert!(told.note.unwrap().contains("does not answer"));
    assert!(told.controls.iter().any(|control| control.name == "Press me"), "the other one");
    let at_well = ControlQuery { window: Some("Well".to_owned()), ..look() };
    acts(&mut helper, ControlAction { look: at_well, ..act("Press me", ControlVerb::Click, None) });
    well.saw("clicked Press me");
}
