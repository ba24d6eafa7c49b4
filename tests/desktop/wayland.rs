//! Tests on Wayland: what goes through the portal, and the errors for the rest.

use base::desktop_protocol::{
    Area, Button, CaptureTarget, DesktopRequest, DesktopResponse, InputStep,
};
use image::Rgb;
use testkit::desktop::Desktop;

use crate::support::{Helper, keys, to, types};

/// Creates a session with a portal that gives this answer: 0 agreed, 1 refused.
fn session(answer: &str) -> (Desktop, testkit::desktop::DesktopProgram) {
    let mut desktop = Desktop::bare();
    desktop.start_bus();
    let picture = desktop.home().join("portal żółw.png").display().to_string();
    let portal = desktop.script("portal.py", "portal", &[&picture, answer]);
    portal.saw("ready");
    (desktop, portal)
}

#[test]
fn a_screenshot_uses_the_portal_and_leaves_no_file() {
    let (desktop, portal) = session("0");
    let mut helper = Helper::under_wayland(&desktop);
    let (told, pixels) = helper.captures(CaptureTarget::default());
    assert_eq!((told.backend.as_str(), told.width, told.height), ("portal", 640, 480));
    assert_eq!(pixels.get_pixel(319, 0), &Rgb([255, 0, 0]));
    assert_eq!(pixels.get_pixel(320, 0), &Rgb([0, 0, 255]));
    portal.saw("asked Screenshot ['handle_token', 'interactive']");
    assert!(!desktop.home().join("portal żółw.png").exists());

    let area = Area { x: 300, y: 10, width: 40, height: 20 };
    let part = CaptureTarget { area: Some(area), fit: Some((20, 20)), ..CaptureTarget::default() };
    let (told, pixels) = helper.captures(part);
    assert_eq!((told.shows, pixels.dimensions()), (area, (20, 10)));
    assert_eq!(pixels.get_pixel(0, 0), &Rgb([255, 0, 0]));
    assert_eq!(pixels.get_pixel(19, 0), &Rgb([0, 0, 255]));
    let window = CaptureTarget { window: Some("x".to_owned()), ..CaptureTarget::default() };
    assert!(helper.fault(DesktopRequest::Capture(window)).what.contains("a window alone"));
}

#[test]
fn pointer_and_keys_go_through_the_portal_in_one_session() {
    let (desktop, portal) = session("0");
    let mut helper = Helper::under_wayland(&desktop);
    let DesktopResponse::Screen(screen) = helper.ask(DesktopRequest::Screen) else {
        panic!("no screen")
    };
    let area = Area { x: 100, y: 0, width: 1000, height: 700 };
    assert_eq!(
        (screen.area, screen.pointer, screen.system.as_str()),
        (area, (600, 350), "wayland")
    );

    let before = portal.log().lines().count();
    helper.does(&[to((150, 20)), InputStep::Click { button: Button::Right, times: 1 }]);
    helper.does(&[types("aŻ\n"), keys(&["ctrl", "s"]), InputStep::Scroll { down: 2, right: -1 }]);
    let seen: Vec<String> = portal.log().lines().skip(before).map(str::to_owned).collect();
    assert_eq!(
        seen,
        [
            // Relative to the corner of the chosen monitor.
            "PointerMotionAbsolute 7 50.0 20.0",
            "PointerButton 273 1",
            "PointerButton 273 0",
            "KeyboardKeysym 97 1",
            "KeyboardKeysym 97 0",
            // The keysyms of Zabovedot, Return, Control_L, s.
            "KeyboardKeysym 431 1",
            "KeyboardKeysym 431 0",
            "KeyboardKeysym 65293 1",
            "KeyboardKeysym 65293 0",
            "KeyboardKeysym 65507 1",
            "KeyboardKeysym 115 1",
            "KeyboardKeysym 115 0",
            "KeyboardKeysym 65507 0",
            "PointerAxisDiscrete 0 2",
            "PointerAxisDiscrete 1 -1",
        ]
    );
    helper.does(&[InputStep::Drag { x: 250, y: 20 }]);
    let log = portal.log();
    assert!(log.contains("PointerMotionAbsolute 7 150.0 20.0"), "{log}");
    assert!(log.trim_end().ends_with("PointerButton 272 0"), "{log}");
    assert_eq!(log.matches("asked Start").count(), 1, "the person is asked once: {log}");

    for step in [to((50, 10)), keys(&["alt", "f4"])] {
        helper.fault(DesktopRequest::Input { steps: vec![types("x"), step], fail_safe: true });
    }
    assert_eq!(portal.log(), log, "nothing of what is refused is done");
}

#[test]
fn a_refusal_of_the_user_is_final() {
    let (desktop, _portal) = session("1");
    let mut helper = Helper::under_wayland(&desktop);
    let input = DesktopRequest::Input { steps: vec![types("x")], fail_safe: true };
    for ask in [DesktopRequest::Capture(CaptureTarget::default()), input, DesktopRequest::Screen] {
        let fault = helper.fault(ask);
        assert!(fault.what.contains("did not agree"), "{fault:?}");
    }
}

#[test]
fn unsupported_operations_are_reported() {
    let mut helper = Helper::nowhere(&[("WAYLAND_DISPLAY", "wayland-9")]);
    for ask in [DesktopRequest::Windows, DesktopRequest::Maximize] {
        let fault = helper.fault(ask);
        assert!(fault.what.contains("does not work under Wayland"), "{fault:?}");
        assert!(!fault.next.is_empty());
    }
    let mut desktop = Desktop::bare();
    desktop.start_bus();
    let mut helper = Helper::under_wayland(&desktop);
    let input = DesktopRequest::Input { steps: vec![types("x")], fail_safe: true };
    for ask in [DesktopRequest::Capture(CaptureTarget::default()), input] {
        let fault = helper.fault(ask);
        assert!(fault.what.contains("portal"), "{fault:?}");
        assert!(fault.next[0].contains("xdg-desktop-portal"));
    }
}
