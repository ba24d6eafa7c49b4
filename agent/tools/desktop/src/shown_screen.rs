//! The last screen image that the model saw, used to convert points of the image to points of the
//! screen. Stored with the session, so that calls of `tool exec` find it.

use std::path::PathBuf;

use base::desktop_protocol::{Area, Picture};
use serde::{Deserialize, Serialize};

use tools::context::ToolContext;

/// A screen image that the model saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShownScreen {
    /// Width of the image in pixels.
    pub width: u32,
    /// Height of the image in pixels.
    pub height: u32,
    /// The area of the screen that it shows.
    pub shows: Area,
    /// The elements found in it.
    #[serde(default)]
    pub elements: Vec<Element>,
}

/// An element of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Element {
    /// An id that is unique in the image.
    pub id: String,
    /// Its kind, e.g. `push button`, `text`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its text.
    pub content: String,
    /// Whether it is interactive.
    pub interactive: bool,
    /// Left, top, right, bottom as fractions of the image's sides, from 0 to 1.
    pub bbox: [f64; 4],
}

impl ShownScreen {
    /// Creates an image without elements.
    pub(crate) fn new(picture: &Picture) -> ShownScreen {
        let (width, height) = (picture.width, picture.height);
        ShownScreen { width, height, shows: picture.shows, elements: Vec::new() }
    }

    /// Converts a point of the image to a point of the screen.
    pub(crate) fn native(&self, x: i64, y: i64) -> (i32, i32) {
        let scale_axis = |start: i32, position: i64, screen: u32, picture: u32| {
            let position = i128::from(position) * i128::from(screen) / i128::from(picture.max(1));
            let target = i128::from(start) + position;
            i32::try_from(target).unwrap_or(if target < 0 { i32::MIN } else { i32::MAX })
        };
        let shows = &self.shows;
        (
            scale_axis(shows.x, x, shows.width, self.width),
            scale_axis(shows.y, y, shows.height, self.height),
        )
    }

    /// Returns the center of an element as a point of the screen.
    pub(crate) fn center_of(&self, id: &str) -> Option<(i32, i32)> {
        let element = self.elements.iter().find(|element| element.id == id)?;
        let (x, y) = element.center(1.0, 1.0);
        let scale_axis = |start: i32, fraction: f64, length: u32| {
            start.saturating_add((fraction.clamp(0.0, 1.0) * f64::from(length)) as i32)
        };
        Some((
            scale_axis(self.shows.x, x, self.shows.width),
            scale_axis(self.shows.y, y, self.shows.height),
        ))
    }

    /// Stores it as the last seen image. If that fails, only the scaling is lost.
    pub(crate) fn save(&self, context: &ToolContext) {
        let file = file(context);
        let created = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = created.and_then(|()| base::files::replace_json(&file, self)) {
            (context.on_output)(&format!("[cannot save the screen observation: {error}]\n"));
        }
    }

    /// Returns the last seen image.
    pub(crate) fn last(context: &ToolContext) -> Option<ShownScreen> {
        serde_json::from_slice(&base::files::read(&file(context)).ok()?).ok()
    }
}

impl Element {
    /// Returns its center on an image of this size.
    pub(crate) fn center(&self, width: f64, height: f64) -> (f64, f64) {
        let [left, top, right, bottom] = self.bbox;
        (f64::midpoint(left, right) * width, f64::midpoint(top, bottom) * height)
    }
}

fn file(context: &ToolContext) -> PathBuf {
    context.session_dir.join("tools/screen.json")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen((width, height): (u32, u32), shows: Area) -> ShownScreen {
        ShownScreen { width, height, shows, elements: Vec::new() }
    }

    #[test]
    fn points_are_scaled_from_the_corner_of_the_shown_area() {
        let shows = Area { x: 0, y: 0, width: 1920, height: 1080 };
        let it = seen((1280, 720), shows);
        assert_eq!(it.native(100, 101), (150, 151), "trunc(101 * 1.5)");
        assert_eq!(it.native(1280, 720), (1920, 1080));
        let window = seen((200, 100), Area { x: 30, y: -40, width: 400, height: 100 });
        assert_eq!(window.native(10, 10), (50, -30));
    }

    proptest! {
        #[test]
        fn no_point_is_outside_the_shown_area(
            size in (1u32..4000, 1u32..4000), shown in (1u32..8000, 1u32..8000),
            part in (0.0..1.0f64, 0.0..1.0f64),
        ) {
            let shows = Area { x: 5, y: 7, width: shown.0, height: shown.1 };
            let x = (part.0 * f64::from(size.0)) as i64;
            let y = (part.1 * f64::from(size.1)) as i64;
            let (x, y) = seen(size, shows).native(x, y);
            prop_assert!((5..5 + i64::from(shown.0)).contains(&i64::from(x)));
            prop_assert!((7..7 + i64::from(shown.1)).contains(&i64::from(y)));
        }
    }
}
