//! Calculates the area of the screen to capture.

use base::desktop_protocol::Area;
use base::failure::{Failure, Result};

/// Returns the area of an output by its name.
pub(crate) fn output(known: &[(String, Area)], name: &str) -> Result<Area> {
    let matching = known.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    matching.map(|(_, area)| *area).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        Failure::not_found(format!("no such output: `{name}`"))
            .because(format!("the outputs are: {}", names.join(", ")))
            .hint("leave `display` out for the whole desktop")
    })
}

/// Returns the area to capture. A part is relative to the corner of the whole, and is clipped to
/// the screen.
pub(crate) fn part(full_area: Area, part: Option<Area>, screen: Area) -> Result<Area> {
    let wanted = part.map_or(full_area, |part| Area {
        x: full_area.x.saturating_add(part.x),
        y: full_area.y.saturating_add(part.y),
        ..part
    });
    let wanted = if part.is_some() { within(wanted, full_area) } else { Some(wanted) };
    wanted.and_then(|wanted| within(wanted, screen)).ok_or_else(|| {
        let Area { x, y, width, height } = part.unwrap_or(full_area);
        Failure::usage(format!("{width}x{height} at {x},{y} shows nothing"))
            .because(format!("the screen is {}x{}", screen.width, screen.height))
    })
}

/// Returns the intersection of two areas.
fn within(a: Area, b: Area) -> Option<Area> {
    let clip_axis = |start: i32, length: u32, from: i32, other_length: u32| {
        let low = i64::from(start.max(from));
        let high =
            (i64::from(start) + i64::from(length)).min(i64::from(from) + i64::from(other_length));
        let length = u32::try_from(high - low).ok().filter(|length| *length > 0)?;
        Some((i32::try_from(low).ok()?, length))
    };
    let (x, width) = clip_axis(a.x, a.width, b.x, b.width)?;
    let (y, height) = clip_axis(a.y, a.height, b.y, b.height)?;
    Some(Area { x, y, width, height })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(x: i32, y: i32, width: u32, height: u32) -> Area {
        Area { x, y, width, height }
    }

    #[test]
    fn a_part_is_clipped_to_the_screen_and_an_empty_one_is_rejected() {
        let screen = area(0, 0, 800, 600);
        let of = |whole, wanted| part(whole, wanted, screen).ok();
        assert_eq!(of(screen, None), Some(screen));
        assert_eq!(of(screen, Some(area(700, 500, 300, 300))), Some(area(700, 500, 100, 100)));
        let window = area(-50, 100, 200, 100);
        assert_eq!(of(window, None), Some(area(0, 100, 150, 100)));
        assert_eq!(of(window, Some(area(60, 10, 20, 500))), Some(area(10, 110, 20, 90)));
        assert_eq!(of(screen, Some(area(800, 0, 10, 10))), None);
        assert_eq!(of(screen, Some(area(0, 0, 0, 10))), None);
        assert_eq!(of(screen, Some(area(i32::MAX, i32::MIN, u32::MAX, u32::MAX))), None);
    }

    #[test]
    fn an_unknown_output_is_answered_with_the_known_ones() {
        let known = [("HDMI-1".to_owned(), area(0, 0, 10, 10))];
        assert_eq!(output(&known, "hdmi-1").unwrap(), area(0, 0, 10, 10));
        let failure = output(&known, "DP-3").unwrap_err();
        assert!(failure.sentence().contains("HDMI-1"), "{failure}");
    }
}
