//! Screenshots and windows with the `xcap` crate: on macOS, and in tests on an X server.
//!
//! Positions are in the units of the system: points on macOS, where an image may have more pixels
//! than its area has points. On macOS a program needs the permission "Screen Recording" to see the
//! windows of others; without it, it gets the desktop background.

use base::desktop_protocol::{Area, CaptureTarget, Picture, WindowInfo};
use base::failure::{Failure, OrFail, Result};
use image::imageops::{self, FilterType};
use image::{DynamicImage, RgbImage, RgbaImage};
use xcap::{Monitor, XCapResult};

use super::area::{output, part};
use crate::window_search::position;

/// The reported backend.
const BACKEND: &str = "xcap";

/// Whether a test requests this crate for screenshots and windows on Linux.
#[cfg(target_os = "linux")]
pub fn is_wanted() -> bool {
    base::test_hooks::TestHook::Xcap.value().is_some()
}

/// Takes a screenshot.
pub fn capture(wanted: &CaptureTarget) -> Result<Picture> {
    let monitors = monitors()?;
    let screen = around(monitors.iter().map(|(_, _, area)| *area))?;
    if let Some(name) = &wanted.window {
        let (window, window_info) = find(name)?;
        if window_info.minimized {
            let failure = Failure::failed(format!("`{}` is not shown", window_info.title));
            return Err(failure.because("it is minimized").hint("bring it back first"));
        }
        let shown_area = part(window_info.area, wanted.area, screen)?;
        let pixels = to_rgb(window.capture_image())?;
        return crate::picture::to_picture(
            cut(pixels, window_info.area, shown_area),
            shown_area,
            wanted,
            BACKEND,
        );
    }
    let display_name = wanted.display.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let (full_area, pixels) = match display_name {
        Some(name) => {
            let known: Vec<(String, Area)> =
                monitors.iter().map(|(name, _, area)| (name.clone(), *area)).collect();
            let full_area = output(&known, name)?;
            let index = monitors.iter().position(|(_, _, area)| *area == full_area);
            let (_, monitor, _) = &monitors[index.unwrap_or_default()];
            (full_area, to_rgb(monitor.capture_image())?)
        }
        None => (screen, of_all(&monitors, screen)?),
    };
    let shown_area = part(full_area, wanted.area, screen)?;
    crate::picture::to_picture(cut(pixels, full_area, shown_area), shown_area, wanted, BACKEND)
}

/// Returns the open windows, topmost first.
pub fn windows() -> Result<Vec<WindowInfo>> {
    Ok(open_windows()?.into_iter().map(|(_, info)| info).collect())
}

fn open_windows() -> Result<Vec<(xcap::Window, WindowInfo)>> {
    let xcap_windows = xcap::Window::all().or_fail(|| "cannot list the windows")?;
    // A window that closes during the query is skipped.
    let mut window_list: Vec<(i32, xcap::Window, WindowInfo)> = xcap_windows
        .into_iter()
        .filter_map(|window| {
            let window_info = described(&window).ok()?;
            Some((window.z().ok()?, window, window_info))
        })
        .collect();
    window_list.sort_by_key(|(z, _, _)| std::cmp::Reverse(*z));
    Ok(window_list.into_iter().map(|(_, window, window_info)| (window, window_info)).collect())
}

fn described(window: &xcap::Window) -> XCapResult<WindowInfo> {
    let area =
        Area { x: window.x()?, y: window.y()?, width: window.width()?, height: window.height()? };
    Ok(WindowInfo {
        id: window.id()?.to_string(),
        app: window.app_name()?,
        title: window.title()?,
        area,
        active: window.is_focused()?,
        maximized: window.is_maximized()?,
        minimized: window.is_minimized()?,
    })
}

fn find(wanted: &str) -> Result<(xcap::Window, WindowInfo)> {
    let mut open_list = open_windows()?;
    let index = position(open_list.iter().map(|(_, window_info)| window_info), wanted)?;
    Ok(open_list.swap_remove(index))
}

/// Returns the monitors with their names and areas.
fn monitors() -> Result<Vec<(String, Monitor, Area)>> {
    let what = || "cannot list the monitors";
    let described = |monitor: Monitor| -> XCapResult<(String, Monitor, Area)> {
        let (x, y) = (monitor.x()?, monitor.y()?);
        let area = Area { x, y, width: monitor.width()?, height: monitor.height()? };
        Ok((monitor.name()?, monitor, area))
    };
    let all = Monitor::all().or_fail(what)?;
    all.into_iter().map(described).collect::<XCapResult<_>>().or_fail(what)
}

/// Returns the bounding area of several areas.
fn around(areas: impl Iterator<Item = Area>) -> Result<Area> {
    let end = |start: i32, length: u32| start.saturating_add_unsigned(length);
    let union = |a: Area, b: Area| {
        let (x, y) = (a.x.min(b.x), a.y.min(b.y));
        let right = end(a.x, a.width).max(end(b.x, b.width));
        let bottom = end(a.y, a.height).max(end(b.y, b.height));
        Area { x, y, width: right.abs_diff(x), height: bottom.abs_diff(y) }
    };
    areas.reduce(union).ok_or_else(|| {
        Failure::failed("no monitor is active").hint("wake the screen, or attach a monitor")
    })
}

/// Captures all monitors in one image; a single one keeps its full resolution.
fn of_all(monitors: &[(String, Monitor, Area)], screen: Area) -> Result<RgbImage> {
    if let [(_, monitor, _)] = monitors {
        return to_rgb(monitor.capture_image());
    }
    let mut canvas = RgbImage::new(screen.width, screen.height);
    for (_, monitor, area) in monitors {
        let pixels = to_rgb(monitor.capture_image())?;
        let pixels = imageops::resize(&pixels, area.width, area.height, FilterType::Triangle);
        let (x, y) = (area.x.abs_diff(screen.x), area.y.abs_diff(screen.y));
        imageops::replace(&mut canvas, &pixels, x.into(), y.into());
    }
    Ok(canvas)
}

/// Crops an image of `full_area` to the area `shown_area`.
fn cut(pixels: RgbImage, full_area: Area, shown_area: Area) -> RgbImage {
    if full_area == shown_area {
        return pixels;
    }
    let scaled = |length: u32, pixels: u32, total: u32| {
        let scaled = u64::from(length) * u64::from(pixels) / u64::from(total.max(1));
        u32::try_from(scaled).unwrap_or(u32::MAX)
    };
    let to_pixels_x = |length: u32| scaled(length, pixels.width(), full_area.width);
    let to_pixels_y = |length: u32| scaled(length, pixels.height(), full_area.height);
    let (x, y) = (
        to_pixels_x(shown_area.x.abs_diff(full_area.x)),
        to_pixels_y(shown_area.y.abs_diff(full_area.y)),
    );
    let (width, height) =
        (to_pixels_x(shown_area.width).max(1), to_pixels_y(shown_area.height).max(1));
    imageops::crop_imm(&pixels, x, y, width, height).to_image()
}

fn to_rgb(pixels: XCapResult<RgbaImage>) -> Result<RgbImage> {
    let pixels = pixels.or_fail(|| "cannot take the picture").map_err(|failure| {
        match cfg!(target_os = "macos") {
            true => failure.hint(
                "allow it in System Settings > Privacy & Security > Screen & System Audio Recording",
            ),
            false => failure,
        }
    })?;
    Ok(DynamicImage::from(pixels).into_rgb8())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(x: i32, y: i32, width: u32, height: u32) -> Area {
        Area { x, y, width, height }
    }

    #[test]
    fn the_screen_is_the_area_around_all_monitors() {
        let monitors = [area(0, 0, 100, 50), area(-80, 10, 80, 60)];
        assert_eq!(around(monitors.into_iter()).unwrap(), area(-80, 0, 180, 70));
        assert!(around(std::iter::empty()).is_err());
    }

    #[test]
    fn a_part_is_cropped_in_pixels_of_the_image() {
        let pixels = RgbImage::from_fn(200, 100, |x, y| image::Rgb([x as u8, y as u8, 0]));
        let whole = area(10, 10, 100, 50);
        let part = cut(pixels.clone(), whole, area(20, 15, 30, 20));
        assert_eq!((part.dimensions(), part.get_pixel(0, 0).0), ((60, 40), [20, 10, 0]));
        assert_eq!(cut(pixels, whole, whole).dimensions(), (200, 100));
    }
}
