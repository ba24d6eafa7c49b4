//! Under Wayland: what goes through the portal, and what is said of the rest.

use base::desktop::{Area, Ask, Capture};
use image::Rgb;
use testkit::desktop::Desktop;

use crate::support::{Helper, types};

/// A session with a portal that gives this answer: 0 agreed, 1 refused.
fn session(answer: &str) -> (Desktop, testkit::desktop::Program) {
    let mut desktop = Desktop::bare();
    desktop.start_bus();
    let picture = desktop.home().join("portal żółw.png").display().to_string();
    let portal = desktop.script("portal.py", "portal", &[&picture, answer]);
    portal.saw("ready");
    (desktop, portal)
}

#[test]
fn a_picture_comes_through_the_portal_and_is_not_left_behind() {
    let (desktop, portal) = session("0");
    let mut helper = Helper::under_wayland(&desktop);
    let (told, pixels) = helper.captures(Capture::default());
    assert_eq!((told.backend.as_str(), told.width, told.height), ("portal", 640, 480));
    assert_eq!(pixels.get_pixel(319, 0), &Rgb([255, 0, 0]));
    assert_eq!(pixels.get_pixel(320, 0), &Rgb([0, 0, 255]));
    portal.saw("asked Screenshot ['handle_token', 'interactive']");
    assert!(!desktop.home().join("portal żółw.png").exists());

    let area = Area { x: 300, y: 10, width: 40, height: 20 };
    let part = Capture { area: Some(area), fit: Some((20, 20)), ..Capture::default() };
    let (told, pixels) = helper.captures(part);
    assert_eq!((told.shows, pixels.dimensions()), (area, (20, 10)));
    assert_eq!(pixels.get_pixel(0, 0), &Rgb([255, 0, 0]));
    assert_eq!(pixels.get_pixel(19, 0), &Rgb([0, 0, 255]));
    let window = Capture { window: Some("x".to_owned()), ..Capture::default() };
    assert!(helper.fault(Ask::Capture(window)).what.contains("a window alone"));
}

#[test]
fn a_person_who_does_not_agree_is_not_asked_around() {
    let (desktop, _portal) = session("1");
    let mut helper = Helper::under_wayland(&desktop);
    let fault = helper.fault(Ask::Capture(Capture::default()));
    assert!(fault.what.contains("did not agree"), "{fault:?}");
}

#[test]
fn what_does_not_work_is_said() {
    let mut helper = Helper::nowhere(&[("WAYLAND_DISPLAY", "wayland-9")]);
    let input = Ask::Input { steps: vec![types("x")], fail_safe: true };
    for ask in [input, Ask::Windows, Ask::Maximize, Ask::Screen] {
        let fault = helper.fault(ask);
        assert!(fault.what.contains("does not work under Wayland"), "{fault:?}");
        assert!(!fault.next.is_empty());
    }
    let mut desktop = Desktop::bare();
    desktop.start_bus();
    let mut helper = Helper::under_wayland(&desktop);
    let fault = helper.fault(Ask::Capture(Capture::default()));
    assert!(fault.what.contains("portal"), "{fault:?}");
    assert!(fault.next[0].contains("xdg-desktop-portal"));
}
