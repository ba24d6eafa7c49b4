//! Local observers: the accessibility interfaces of programs, and text recognition.

use base::desktop_protocol::{Area, ControlQuery, OcrWord, Picture};

use super::{Observation, ScreenReport};
use crate::find::bounding_area;
use crate::shown_screen::Element;
use crate::{host, screen_text};
use tools::context::ToolContext;
use tools::output::ToolError;

/// Maximum depth and number of controls.
const MAX_DEPTH: u32 = 40;
const MAX_CONTROLS: u32 = 300;
/// Minimum confidence of a word; others are noise.
const MIN_CONFIDENCE: u8 = 40;

/// Returns the controls that the program of the active window reports.
pub(crate) async fn accessibility(
    context: &ToolContext,
    picture: &Picture,
) -> Result<Option<Observation>, ToolError> {
    let query = ControlQuery {
        window: None,
        everywhere: false,
        depth: MAX_DEPTH,
        limit: MAX_CONTROLS,
        interactive: true,
    };
    let controls = host::controls(context, query).await?;
    let visible = controls.controls.iter().filter(|control| control.visible);
    let with_area = visible.filter_map(|control| Some((control, control.area?)));
    let on_picture = with_area.filter(|(_, area)| overlap(*area, picture.shows));
    let element =
        |(index, (control, area)): (usize, (&base::desktop_protocol::Control, Area))| Element {
            id: index.to_string(),
            kind: control.role.clone(),
            content: control.name.clone(),
            interactive: control.enabled,
            bbox: as_fractions(area, picture.shows),
        };
    let elements: Vec<Element> = on_picture.enumerate().map(element).collect();
    match (elements.is_empty(), controls.note) {
        (false, _) => Ok(Some((ScreenReport::Elements(elements), "accessibility", None))),
        (true, Some(note)) => Err(ToolError::failed(note)),
        (true, None) => Ok(None),
    }
}

/// Returns the recognized words, line by line, from images at full resolution.
pub(crate) async fn ocr(context: &ToolContext) -> Result<Option<Observation>, ToolError> {
    let (words, screen_area) = screen_text::read_screen(context).await?;
    let lines = join_lines(&words).into_iter().enumerate().map(|(index, (text, area))| Element {
        id: index.to_string(),
        kind: "text".to_owned(),
        content: text,
        interactive: false,
        bbox: as_fractions(area, screen_area),
    });
    let elements: Vec<Element> = lines.collect();
    let is_empty = elements.is_empty();
    Ok((!is_empty).then_some((ScreenReport::Elements(elements), "ocr", None)))
}

/// Joins adjacent words on a line.
fn join_lines(words: &[OcrWord]) -> Vec<(String, Area)> {
    let mut lines: Vec<(String, Area)> = Vec::new();
    for word in
        words.iter().filter(|word| word.sure >= MIN_CONFIDENCE && !word.text.trim().is_empty())
    {
        match lines.last_mut() {
            Some((text, area)) if continues_line(*area, word.area) => {
                *text = format!("{text} {}", word.text);
                *area = bounding_area(*area, word.area);
            }
            Some(_) | None => lines.push((word.text.clone(), word.area)),
        }
    }
    lines
}

fn continues_line(line: Area, word: Area) -> bool {
    let word_center = i64::from(word.y) + i64::from(word.height / 2);
    let on_line =
        (i64::from(line.y)..=i64::from(line.y) + i64::from(line.height)).contains(&word_center);
    let gap = i64::from(word.x) - (i64::from(line.x) + i64::from(line.width));
    let max_gap = i64::from(line.height.max(word.height)) * 3 / 2;
    on_line && (-max_gap..=max_gap).contains(&gap)
}

fn overlap(area: Area, screen: Area) -> bool {
    let overlaps_axis = |start: i32, length: u32, first: i32, total: u32| {
        i64::from(start) < i64::from(first) + i64::from(total)
            && i64::from(start) + i64::from(length) > i64::from(first)
            && length > 0
    };
    overlaps_axis(area.x, area.width, screen.x, screen.width)
        && overlaps_axis(area.y, area.height, screen.y, screen.height)
}

/// Converts an area to fractions of the shown area.
fn as_fractions(area: Area, screen: Area) -> [f64; 4] {
    let fraction = |position: f64, start: i32, total: u32| {
        ((position - f64::from(start)) / f64::from(total.max(1))).clamp(0.0, 1.0)
    };
    let (x, y) = (f64::from(area.x), f64::from(area.y));
    [
        fraction(x, screen.x, screen.width),
        fraction(y, screen.y, screen.height),
        fraction(x + f64::from(area.width), screen.x, screen.width),
        fraction(y + f64::from(area.height), screen.y, screen.height),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_line_are_joined() {
        let word = |text: &str, x: i32, y: i32, sure: u8| OcrWord {
            text: text.into(),
            area: Area { x, y, width: 30, height: 10 },
            sure,
        };
        let words = [
            word("Save", 0, 0, 90),
            word("all", 35, 1, 90),
            word("~", 68, 1, 10),
            word("Far", 200, 1, 90),
            word("Below", 0, 40, 90),
        ];
        let found = join_lines(&words);
        let texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["Save all", "Far", "Below"]);
        assert_eq!(found[0].1, Area { x: 0, y: 0, width: 65, height: 11 });
    }

    #[test]
    fn areas_outside_the_image_are_dropped() {
        let shown = Area { x: 100, y: 100, width: 200, height: 100 };
        let area = |x, y| Area { x, y, width: 50, height: 50 };
        assert!(overlap(area(60, 60), shown) && overlap(area(299, 199), shown));
        assert!(!overlap(area(50, 100), shown) && !overlap(area(300, 100), shown));
        assert_eq!(as_fractions(area(150, 150), shown), [0.25, 0.5, 0.5, 1.0]);
        assert_eq!(as_fractions(area(60, 60), shown), [0.0, 0.0, 0.05, 0.1]);
    }
}
