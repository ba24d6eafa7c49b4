//! Describes the screen in text: the elements from top to bottom, by zones.

use std::fmt::Write;

use base::desktop_protocol::Picture;

use crate::shown_screen::{Element, ShownScreen};

/// Zones by the center of an element: up to this fraction of the image height.
const ZONES: [(f64, &str); 3] =
    [(0.12, "toolbar (top)"), (0.94, "page"), (1.0, "taskbar (bottom)")];
/// Maximum number of elements, and of characters of each.
const MAX_ELEMENTS: usize = 300;
const MAX_CONTENT: usize = 120;

/// Formats the elements of an image, one per line, with pixel coordinates.
pub(crate) fn describe(shown_screen: &ShownScreen) -> String {
    let (width, height) = (shown_screen.width, shown_screen.height);
    let mut text = format!("Screen as a picture of {width}x{height} points.\n");
    let elements = &shown_screen.elements[..shown_screen.elements.len().min(MAX_ELEMENTS)];
    for (index, (end, zone)) in ZONES.iter().enumerate() {
        let start = index.checked_sub(1).map_or(f64::NEG_INFINITY, |previous| ZONES[previous].0);
        let last = index + 1 == ZONES.len();
        let is_in = |element: &&Element| {
            let y = element.center(1.0, 1.0).1;
            y >= start && (y < *end || last)
        };
        let zone_elements: Vec<&Element> = elements.iter().filter(is_in).collect();
        if !zone_elements.is_empty() {
            let _ = writeln!(text, "{zone}:");
            zone_elements.into_iter().for_each(|element| line(&mut text, element, shown_screen));
        }
    }
    if shown_screen.elements.len() > MAX_ELEMENTS {
        let _ = writeln!(text, "[{} more elements]", shown_screen.elements.len() - MAX_ELEMENTS);
    }
    text
}

fn line(text: &mut String, element: &Element, shown_screen: &ShownScreen) {
    let Element { id, kind, content, interactive, .. } = element;
    let (x, y) = element.center(f64::from(shown_screen.width), f64::from(shown_screen.height));
    let content: String = content.chars().take(MAX_CONTENT).collect();
    let interactivity = if *interactive { "interactive" } else { "static" };
    let _ = writeln!(
        text,
        "  [{id}] {kind} {content:?} at {},{} ({interactivity})",
        x as i64, y as i64
    );
}

/// Returns the text if no observer could describe the screen.
pub(crate) fn describe_picture(picture: &Picture, notes: &[String]) -> String {
    let (width, height) = (picture.width, picture.height);
    let mut text = format!(
        "Look at the picture: {width}x{height} points; nothing else could say what there is."
    );
    for note in notes {
        let _ = write!(text, "\n[{note}]");
    }
    text
}

#[cfg(test)]
mod tests {
    use base::desktop_protocol::Area;

    use super::*;

    #[test]
    fn elements_are_listed_by_zones_with_pixel_coordinates() {
        let element = |id: &str, top: f64| Element {
            id: id.into(),
            kind: "push button".into(),
            content: format!("B{id}"),
            interactive: id != "2",
            bbox: [0.5, top, 0.5, top],
        };
        let elements = vec![element("0", 0.05), element("1", 0.5), element("2", 0.97)];
        let shows = Area { x: 0, y: 0, width: 1000, height: 500 };
        let told = describe(&ShownScreen { width: 1000, height: 500, shows, elements });
        let expected = "Screen as a picture of 1000x500 points.\n\
            toolbar (top):\n  [0] push button \"B0\" at 500,25 (interactive)\n\
            page:\n  [1] push button \"B1\" at 500,250 (interactive)\n\
            taskbar (bottom):\n  [2] push button \"B2\" at 500,485 (static)\n";
        assert_eq!(told, expected);
    }
}
