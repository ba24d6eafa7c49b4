//! Recognizes the text on the screen. Each window is captured separately, because the recognition
//! misses small text next to large dark areas or other windows.

use base::desktop_protocol::{
    Area, CaptureTarget, DesktopRequest, DesktopResponse, OcrWord, Picture, WindowInfo,
};

use super::host;
use tools::context::ToolContext;
use tools::output::ToolError;

/// Maximum number of windows that are read separately, topmost first; each takes about a second.
const WINDOWS: usize = 8;
/// Minimum width in pixels of a window with text.
const NARROWEST: u32 = 16;

/// Returns the words in the windows and outside of them, with their areas on the screen, and the
/// area of the screen.
pub(crate) async fn on_screen(at: &ToolContext) -> Result<(Vec<OcrWord>, Area), ToolError> {
    let whole = host::capture(at, CaptureTarget::default()).await?;
    let shows = whole.shows;
    let all = read(at, whole).await?;
    let mut words = Vec::new();
    let mut done: Vec<Area> = Vec::new();
    // If windows cannot be listed, the image of the whole screen is used.
    for window in windows(at).await.unwrap_or_default() {
        let Some(area) = shared(window.area, shows).filter(|area| *area != shows) else { continue };
        let wish = CaptureTarget { area: Some(area), ..CaptureTarget::default() };
        let Ok(picture) = host::capture(at, wish).await else { continue };
        let own = read(at, picture).await?;
        words.extend(own.into_iter().filter(|word| !done.iter().any(|it| holds(*it, word.area))));
        done.push(area);
    }
    // Words found in both images are returned once.
    let beside = |word: &OcrWord| !words.iter().any(|own: &OcrWord| is_same(own, word));
    let more: Vec<OcrWord> = all.into_iter().filter(beside).collect();
    words.extend(more);
    Ok((words, shows))
}

/// Returns the visible windows, topmost first.
async fn windows(at: &ToolContext) -> Result<Vec<WindowInfo>, ToolError> {
    let DesktopResponse::Windows { windows } = host::ask(at, DesktopRequest::Windows).await? else {
        return Err(host::strange());
    };
    let shows = |it: &WindowInfo| {
        !it.minimized && it.area.width >= NARROWEST && it.area.height >= NARROWEST
    };
    Ok(windows.into_iter().filter(shows).take(WINDOWS).collect())
}

/// Returns the words in an image, with their positions on the screen.
async fn read(at: &ToolContext, picture: Picture) -> Result<Vec<OcrWord>, ToolError> {
    let (width, height, shows) = (picture.width, picture.height, picture.shows);
    let told = host::ask(at, DesktopRequest::Read { picture: picture.data }).await?;
    let DesktopResponse::Words { words } = told else { return Err(host::strange()) };
    let scale = |part: u32, of: u32, all: u32| {
        (u64::from(part) * u64::from(all) / u64::from(of.max(1))) as u32
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
fn shared(one: Area, other: Area) -> Option<Area> {
    let end = |from: i32, length: u32| i64::from(from) + i64::from(length);
    let (x, y) = (one.x.max(other.x), one.y.max(other.y));
    let right = end(one.x, one.width).min(end(other.x, other.width));
    let bottom = end(one.y, one.height).min(end(other.y, other.height));
    let length = |end: i64, from: i32| u32::try_from(end - i64::from(from)).ok();
    let (width, height) = (length(right, x)?, length(bottom, y)?);
    (width > 0 && height > 0).then_some(Area { x, y, width, height })
}

/// Whether the center of an area is in another.
fn holds(outer: Area, inner: Area) -> bool {
    let (x, y) = middle(inner);
    let along = |at: i64, from: i32, length: u32| {
        (i64::from(from)..i64::from(from) + i64::from(length)).contains(&at)
    };
    along(x, outer.x, outer.width) && along(y, outer.y, outer.height)
}

fn middle(area: Area) -> (i64, i64) {
    (i64::from(area.x) + i64::from(area.width / 2), i64::from(area.y) + i64::from(area.height / 2))
}

/// Whether two words are at the same position.
fn is_same(own: &OcrWord, other: &OcrWord) -> bool {
    holds(own.area, other.area) || holds(other.area, own.area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_as_far_as_it_is_visible() {
        let area = |x, y, width, height| Area { x, y, width, height };
        let screen = area(0, 0, 1600, 900);
        assert_eq!(shared(area(-10, 20, 100, 50), screen), Some(area(0, 20, 90, 50)));
        assert_eq!(shared(area(1600, 0, 10, 10), screen), None);
        assert!(holds(area(0, 0, 100, 100), area(40, 40, 10, 10)));
        assert!(!holds(area(0, 0, 100, 100), area(96, 40, 10, 10)));
    }
}
