//! Tests of screenshots, monitors and windows with xcap, as on macOS, compared with our own X11
//! code on a real X server.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../desktop/support.rs"]
#[expect(dead_code, reason = "the tests of input need the rest")]
mod support;

use base::desktop_protocol::{Area, CaptureTarget, DesktopRequest, DesktopResponse, WindowInfo};
use testkit::desktop::Desktop;
use testkit::env::built;

use support::Helper;

/// Starts a helper with our own code and one with xcap on the same desktop.
fn helpers(desktop: &Desktop) -> (Helper, Helper) {
    let by_xcap = desktop.job(built("g3-desktop")).env("G3_TEST_XCAP", "1");
    (Helper::on(desktop), Helper::start(by_xcap))
}

fn windows(helper: &mut Helper) -> Vec<WindowInfo> {
    match helper.ask(DesktopRequest::Windows) {
        DesktopResponse::Windows { windows } => windows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_desktop_a_monitor_and_a_part_look_the_same() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let (mut own, mut xcap) = helpers(&desktop);
    let (x, y) = program.place("Canvas").middle();
    let part = Area { x: x - 30, y: y - 20, width: 50, height: 40 };
    let edge = Area { x: 1200, y: 700, width: 500, height: 500 };
    for wanted in [
        CaptureTarget::default(),
        CaptureTarget { display: Some("Screen".to_owned()), ..CaptureTarget::default() },
        CaptureTarget { area: Some(part), ..CaptureTarget::default() },
        CaptureTarget { area: Some(edge), ..CaptureTarget::default() },
        CaptureTarget { fit: Some((640, 640)), ..CaptureTarget::default() },
    ] {
        let (ours, pixels) = own.captures(wanted.clone());
        let (told, same) = xcap.captures(wanted.clone());
        assert_eq!((ours.backend.as_str(), told.backend.as_str()), ("x11", "xcap"));
        assert_eq!((told.shows, told.width, told.height), (ours.shows, ours.width, ours.height));
        assert!(pixels == same, "{wanted:?}: another picture");
    }
    let unknown = CaptureTarget { display: Some("HDMI-7".to_owned()), ..CaptureTarget::default() };
    let fault = xcap.fault(DesktopRequest::Capture(unknown));
    assert!(fault.what.contains("HDMI-7") && fault.why.unwrap().contains("screen"));
}

#[test]
fn windows_are_listed_and_captured() {
    let desktop = Desktop::start();
    let first = desktop.program("First");
    let second = desktop.program("Zażółć 二");
    let (mut own, mut xcap) = helpers(&desktop);
    let (ours, theirs) = (windows(&mut own), windows(&mut xcap));
    let titles = |all: &[WindowInfo]| all.iter().map(|it| it.title.clone()).collect::<Vec<_>>();
    assert_eq!(titles(&theirs), titles(&ours), "topmost first");
    let state = |all: &[WindowInfo]| {
        let state = |it: &WindowInfo| (it.id.clone(), it.active, it.maximized, it.minimized);
        all.iter().map(state).collect::<Vec<_>>()
    };
    assert_eq!(state(&theirs), state(&ours));

    // By title, by program and by id: the red area is where the program reports it.
    let top = &theirs[0];
    let canvas = second.place("Canvas");
    for name in ["Zażółć", &top.id] {
        let wanted = CaptureTarget { window: Some(name.to_owned()), ..CaptureTarget::default() };
        let (told, pixels) = xcap.captures(wanted);
        assert_eq!(told.shows, top.area, "{name}");
        let (x, y) = canvas.middle();
        let (x, y) = ((x - told.shows.x).unsigned_abs(), (y - told.shows.y).unsigned_abs());
        assert_eq!(pixels.get_pixel(x, y).0, [255, 0, 0], "{name}");
    }
    let nobody = CaptureTarget { window: Some("Nobody".to_owned()), ..CaptureTarget::default() };
    assert!(xcap.fault(DesktopRequest::Capture(nobody)).why.unwrap().contains("First"));
    drop((first, second));
}
