//! Tests of screenshots, windows and maximizing, compared with the state of the X server.

use base::desktop_protocol::{Area, CaptureTarget, DesktopRequest, DesktopResponse, WindowInfo};
use image::Rgb;
use testkit::desktop::Desktop;
use testkit::env::until;

use crate::support::{Helper, output};

const RED: Rgb<u8> = Rgb([255, 0, 0]);

fn windows(helper: &mut Helper) -> Vec<WindowInfo> {
    match helper.ask(DesktopRequest::Windows) {
        DesktopResponse::Windows { windows } => windows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn screenshots_show_exactly_the_requested_area() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);
    let canvas = program.place("Canvas");
    let (x, y) = canvas.middle();
    let all = Area { x: 0, y: 0, width: 1280, height: 800 };

    let (told, pixels) = helper.captures(CaptureTarget::default());
    assert_eq!((told.shows, told.width, told.height), (all, 1280, 800));
    assert_eq!((told.mime.as_str(), told.backend.as_str()), ("image/png", "x11"));
    assert_eq!(pixels.get_pixel(x.unsigned_abs(), y.unsigned_abs()), &RED);

    // A part at the edge of the red area: its corner is red, the pixel above is not.
    let (width, height) = (canvas.width.unsigned_abs(), canvas.height.unsigned_abs());
    let area = Area { x: canvas.x, y: canvas.y - 1, width, height };
    let part = CaptureTarget { area: Some(area), ..CaptureTarget::default() };
    let (told, pixels) = helper.captures(part.clone());
    assert_eq!((told.shows, told.width, told.height), (area, width, height));
    assert_ne!(pixels.get_pixel(0, 0), &RED);
    assert_eq!(pixels.get_pixel(0, 1), &RED);
    assert_eq!(pixels.get_pixel(width - 1, height - 1), &RED);

    let fit = CaptureTarget { fit: Some((640, 640)), jpeg: Some(70), ..CaptureTarget::default() };
    let (told, pixels) = helper.captures(fit);
    assert_eq!((told.mime.as_str(), pixels.dimensions()), ("image/jpeg", (640, 400)));
    assert_eq!((told.shows, told.width, told.height), (all, 640, 400));
    let [red, green, blue] = pixels.get_pixel(x.unsigned_abs() / 2, y.unsigned_abs() / 2).0;
    assert!(red > 240 && green < 20 && blue < 20, "{red} {green} {blue}");
    let (told, _) = helper.captures(CaptureTarget { fit: Some((9999, 9999)), ..part });
    assert_eq!((told.width, told.height), (width, height));

    // A window by its title, its program and its id; and a part relative to its own corner.
    let window = windows(&mut helper).remove(0);
    for name in ["fixt", "PROGRAM.PY", &window.id] {
        let wanted = CaptureTarget { window: Some(name.to_owned()), ..CaptureTarget::default() };
        assert_eq!(helper.captures(wanted).0.shows, window.area, "{name}");
    }
    let corner = Area { x: x - window.area.x, y: y - window.area.y, width: 4, height: 4 };
    let wanted = CaptureTarget {
        window: Some("Fixture".to_owned()),
        area: Some(corner),
        ..CaptureTarget::default()
    };
    let (told, pixels) = helper.captures(wanted);
    assert_eq!(told.shows, Area { x, y, width: 4, height: 4 });
    assert!(pixels.pixels().all(|pixel| *pixel == RED));
}

#[test]
fn a_covered_window_is_captured_completely() {
    let desktop = Desktop::start();
    let below = desktop.program("Below");
    let _above = desktop.program("Above");
    let mut helper = Helper::on(&desktop);
    let [above, covered] = &windows(&mut helper)[..] else { panic!("two windows") };
    // The upper window is moved so that it hides half of the red area of the other.
    let canvas = below.place("Canvas");
    let left = (canvas.x + canvas.width / 2).to_string();
    output(&desktop, "xdotool", &["windowmove", "--sync", &above.id, &left, "100"]);
    let (x, y) = (canvas.x + canvas.width * 3 / 4, canvas.y + 20);
    let at = |pixels: &image::RgbImage, x: i32, y: i32| {
        *pixels.get_pixel(x.unsigned_abs(), y.unsigned_abs())
    };
    let screen = helper.captures(CaptureTarget::default()).1;
    assert_ne!(at(&screen, x, y), RED, "the upper window hides it");
    let wanted = CaptureTarget { window: Some(covered.id.clone()), ..CaptureTarget::default() };
    let (told, pixels) = helper.captures(wanted);
    assert_eq!(told.shows, covered.area);
    for x in [canvas.x + 5, x, canvas.x + canvas.width - 5] {
        assert_eq!(at(&pixels, x - told.shows.x, y - told.shows.y), RED, "{x}");
    }
    // The screen has not changed.
    assert_eq!(helper.captures(CaptureTarget::default()).1, screen);
}

#[test]
fn divergence_15_a_display_is_an_output_or_another_server() {
    let desktop = Desktop::bare();
    let other = Desktop::bare();
    let mut helper = Helper::on(&desktop);
    let display =
        |name: &str| CaptureTarget { display: Some(name.to_owned()), ..CaptureTarget::default() };
    // The only output of this X server.
    assert_eq!(helper.captures(display("screen")).0.width, 1280);
    let program = other.program("Elsewhere");
    let (x, y) = program.place("Canvas").middle();
    let here = helper.captures(CaptureTarget::default()).1;
    assert_ne!(here.get_pixel(x.unsigned_abs(), y.unsigned_abs()), &RED);
    let there = helper.captures(display(other.display())).1;
    assert_eq!(there.get_pixel(x.unsigned_abs(), y.unsigned_abs()), &RED);
    let fault = helper.fault(DesktopRequest::Capture(display("HDMI-7")));
    assert!(fault.what.contains("HDMI-7") && fault.why.unwrap().contains("screen"));
    let fault = helper.fault(DesktopRequest::Capture(display(":4242")));
    assert!(fault.what.contains(":4242"), "{fault:?}");
}

#[test]
fn windows_are_listed_topmost_first_as_reported_by_x() {
    let desktop = Desktop::start();
    let first = desktop.program("First");
    let second = desktop.program("Zażółć 二");
    let mut helper = Helper::on(&desktop);
    let listed = windows(&mut helper);
    let titles: Vec<&str> = listed.iter().map(|window| window.title.as_str()).collect();
    assert_eq!(titles, ["Zażółć 二", "First"]);
    assert_eq!(listed.iter().map(|window| window.active).collect::<Vec<_>>(), [true, false]);
    assert!(listed.iter().all(|window| !window.maximized && !window.minimized));
    for window in &listed {
        // The window manager's frame is the parent of the program's window.
        let tree = output(&desktop, "xwininfo", &["-tree", "-id", &window.id]);
        let parent = tree.split("Parent window id: ").nth(1).unwrap();
        let parent = parent.split(' ').next().unwrap();
        let said = output(&desktop, "xwininfo", &["-id", parent]);
        let number = |name: &str| -> i64 {
            let line = said.lines().find(|line| line.trim().starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let Area { x, y, width, height } = window.area;
        assert_eq!(i64::from(x), number("Absolute upper-left X"), "{said}");
        assert_eq!(i64::from(y), number("Absolute upper-left Y"), "{said}");
        assert_eq!(i64::from(width), number("Width"), "{said}");
        assert_eq!(i64::from(height), number("Height"), "{said}");
    }
    output(&desktop, "xdotool", &["windowminimize", "--sync", &listed[0].id]);
    until("the window to be minimized", || {
        let after = windows(&mut helper);
        after.iter().find(|window| window.id == listed[0].id)?.minimized.then_some(())
    });
    let wanted = CaptureTarget { window: Some(listed[0].id.clone()), ..CaptureTarget::default() };
    assert!(helper.fault(DesktopRequest::Capture(wanted)).why.unwrap().contains("minimized"));
    let wanted = CaptureTarget { window: Some("Nobody".to_owned()), ..CaptureTarget::default() };
    let fault = helper.fault(DesktopRequest::Capture(wanted));
    assert!(fault.why.unwrap().contains("First"), "the open windows are named");
    drop((first, second));
}

#[test]
fn maximizing_waits_for_the_effect_and_acts_once() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);
    let told = helper.ask(DesktopRequest::Maximize);
    assert_eq!(told, DesktopResponse::Maximized { title: "Fixture".to_owned(), already: false });
    let id = windows(&mut helper)[0].id.clone();
    let state = output(&desktop, "xprop", &["-id", &id, "_NET_WM_STATE"]);
    assert!(state.contains("MAXIMIZED_HORZ") && state.contains("MAXIMIZED_VERT"), "{state}");
    program.saw("maximized on");
    let told = helper.ask(DesktopRequest::Maximize);
    assert_eq!(told, DesktopResponse::Maximized { title: "Fixture".to_owned(), already: true });
    assert!(windows(&mut helper)[0].maximized);
    assert_eq!(program.log().matches("maximized").count(), 1);
}

#[test]
fn without_a_window_manager_screenshots_work_and_maximizing_fails() {
    let desktop = Desktop::bare();
    let mut helper = Helper::on(&desktop);
    assert_eq!(windows(&mut helper), []);
    let program = desktop.program("Alone");
    program.place("Canvas");
    let listed = windows(&mut helper);
    assert_eq!(listed.iter().map(|w| w.title.as_str()).collect::<Vec<_>>(), ["Alone"]);
    let fault = helper.fault(DesktopRequest::Maximize);
    assert!(fault.what.contains("no window manager"), "{fault:?}");
    let DesktopResponse::Screen(screen) = helper.ask(DesktopRequest::Screen) else {
        panic!("no screen")
    };
    assert_eq!((screen.area.width, screen.area.height), (1280, 800));
    let said = output(&desktop, "xdotool", &["getmouselocation"]);
    assert!(said.starts_with(&format!("x:{} y:{} ", screen.pointer.0, screen.pointer.1)), "{said}");
    assert_eq!(screen.system, "x11");
}
