//! Recognizes the text on the screen. Each window is captured separately, because the recognition
//! misses small text next to large dark areas or other windows.

use base::desktop_protocol::{
    Area, CaptureTarget, DesktopRequest, DesktopResponse, OcrWord, Picture, WindowInfo,
};

use super::host;
use tools::context::ToolContext;
use tools::output::ToolError;

/// Maximum number of windows that are read separately, topmost first; each takes about a second.
const MAX_WINDOWS: usize = 8;
/// Minimum width in pixels of a window with text.
const MIN_WIDTH: u32 = 16;

/// Returns the words in the windows and outside of them, with their areas on the screen, and the
/// area of the screen.
pub(crate) async fn read_screen(context: &ToolContext) -> Result<(Vec<OcrWord>, Area), ToolError> {
    let screen = host::capture(context, CaptureTarget::default()).await?;
    let screen_area = screen.shows;
    let screen_words = read_picture(context, screen).await?;
    let mut words = Vec::new();
    let mut read_areas: Vec<Area> = Vec::new();
    // If windows cannot be listed, the image of the whole screen is used.
    for window in windows(context).await.unwrap_or_default() {
        let Some(area) = intersection(window.area, screen_area).filter(|area| *area != screen_area)
        else {
            continue;
        };
        let target = CaptureTarget { area: Some(area), ..CaptureTarget::default() };
        let Ok(picture) = host::capture(context, target).await else { continue };
        let window_words = read_picture(context, picture).await?;
        words.extend(
            window_words
                .into_iter()
                .filter(|word| !read_areas.iter().any(|it| contains(*it, word.area))),
        );
        read_areas.push(area);
    }
    // Words found in both images are returned once.
    let is_new =
        |word: &OcrWord| !words.iter().any(|window_words: &OcrWord| is_same(window_words, word));
    let additional: Vec<OcrWord> = screen_words.into_iter().filter(is_new).collect();
    words.extend(additional);
    Ok((words, screen_area))
}

/// Returns the visible windows, topmost first.
async fn windows(context: &ToolContext) -> Result<Vec<WindowInfo>, ToolError> {
    let DesktopResponse::Windows { windows } = host::ask(context, DesktopRequest::Windows).await?
    else {
        return Err(host::unexpected_response());
    };
    let is_readable = |window: &WindowInfo| {
        !window.minimized && window.area.width >= MIN_WIDTH && window.area.height >= MIN_WIDTH
    };
    Ok(windows.into_iter().filter(is_readable).take(MAX_WINDOWS).collect())
}

/// Returns the words in an image, with their positions on the screen.
async fn read_picture(context: &ToolContext, picture: Picture) -> Result<Vec<OcrWord>, ToolError> {
    let (width, height, shows) = (picture.width, picture.height, picture.shows);
    let response = host::ask(context, DesktopRequest::Read { picture: picture.data }).await?;
    let DesktopResponse::Words { words } = response else {
        return Err(host::unexpected_response());
    };
    let scale = |part: u32, size: u32, total: u32| {
        (u64::from(part) * u64::from(total) / u64::from(size.max(1))) as u32
    };
    let on_screen = |area: Area| Area {
        x: shows.x + scale(area.x.max(0).unsigned_abs(), width, shows.width) as i32,
        y: shows.y + scale(area.y.max(0).unsigned_abs(), height, shows.height) as i32,
        width: scale(area.width, width, shows.width),
        height: scale(area.height, height, shows.height),
    };
    Ok(words.into_iter().map(|word| OcrWord { area: on_screen(word.area), ..word }).collect())
}

/// Returns the intersection of two areas.
fn intersection(a: Area, b: Area) -> Option<Area> {
    let end = |from: i32, length: u32| i64::from(from) + i64::from(length);
    let (x, y) = (a.x.max(b.x), a.y.max(b.y));
    let right = end(a.x, a.width).min(end(b.x, b.width));
    let bottom = end(a.y, a.height).min(end(b.y, b.height));
    let length = |end: i64, from: i32| u32::try_from(end - i64::from(from)).ok();
    let (width, height) = (length(right, x)?, length(bottom, y)?);
    (width > 0 && height > 0).then_some(Area { x, y, width, height })
}

/// Whether the center of an area is in another.
fn contains(outer: Area, inner: Area) -> bool {
    let (x, y) = center(inner);
    let contains_axis = |position: i64, start: i32, length: u32| {
        (i64::from(start)..i64::from(start) + i64::from(length)).contains(&position)
    };
    contains_axis(x, outer.x, outer.width) && contains_axis(y, outer.y, outer.height)
}

fn center(area: Area) -> (i64, i64) {
    (i64::from(area.x) + i64::from(area.width / 2), i64::from(area.y) + i64::from(area.height / 2))
}

/// Whether two words are at the same position.
fn is_same(word: &OcrWord, other: &OcrWord) -> bool {
    contains(word.area, other.area) || contains(other.area, word.area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_as_far_as_it_is_visible() {
        let area = |x, y, width, height| Area { x, y, width, height };
        let screen = area(0, 0, 1600, 900);
        assert_eq!(intersection(area(-10, 20, 100, 50), screen), Some(area(0, 20, 90, 50)));
        assert_eq!(intersection(area(1600, 0, 10, 10), screen), None);
        assert!(contains(area(0, 0, 100, 100), area(40, 40, 10, 10)));
        assert!(!contains(area(0, 0, 100, 100), area(96, 40, 10, 10)));
    }
}
