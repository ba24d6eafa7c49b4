//! Pointer and keyboard input, step by step. All steps are checked before the first is executed.

use std::time::Duration;

use base::desktop_protocol::{Area, Button, InputStep};
use base::failure::{Failure, Result};
use enigo::{Direction, Key};

use crate::cancel::pause;
use crate::enigo::EnigoBackend;
use crate::input_backend::{InputBackend, InputEvent, PointerPosition, PositionCheck};
use crate::keys::combination;
use crate::window_system;

/// Delay between two steps, so that programs can react.
const STEP_PAUSE: Duration = Duration::from_millis(100);
/// Duration of a drag, and its number of moves.
const DRAG_TIME: Duration = Duration::from_millis(500);
const DRAG_MOVES: i32 = 25;
/// Maximum number of characters, clicks and notches of a step.
const MAX_TEXT: usize = 10_000;
const MAX_CLICKS: u32 = 3;
const MAX_NOTCHES: u32 = 100;
/// Distance from a corner, in pixels, within which the pointer is in it.
const CORNER_SIZE: i64 = 2;

/// Executes the steps in order. No key or button is held afterwards, even after an error.
pub(crate) fn run(steps: &[InputStep], fail_safe: bool) -> Result<()> {
    #[cfg(target_os = "linux")]
    if window_system::current()? == window_system::WindowSystem::Wayland {
        let area = crate::portal::remote::with(|remote| Ok(remote.area))?;
        check_all(steps, area)?;
        // The pointer position is unknown there; to stop an agent, the user ends the session, which
        // the compositor shows.
        return crate::portal::remote::with(|remote| do_all(remote, steps, None));
    }
    let screen = window_system::screen()?.area;
    check_all(steps, screen)?;
    do_all(&mut EnigoBackend::open()?, steps, fail_safe.then_some(screen))
}

fn check_all(steps: &[InputStep], screen: Area) -> Result<()> {
    let checked =
        |(index, step)| check(step, screen).map_err(|failure| of_step(failure, index, steps));
    steps.iter().enumerate().try_for_each(checked)
}

/// Executes the steps, unless the pointer is in a corner of the guarded screen.
fn do_all(
    backend: &mut impl InputBackend,
    steps: &[InputStep],
    guarded_screen: Option<Area>,
) -> Result<()> {
    let mut last_position = None;
    for (index, step) in steps.iter().enumerate() {
        let check_position = |position: PointerPosition| {
            // A position set by one of our own steps is not a request to stop.
            let position = position.filter(|position| Some(*position) != last_position);
            match position.zip(guarded_screen) {
                Some((position, screen)) if in_corner(position, screen) => Err(stopped(position)),
                Some(_) | None => Ok(()),
            }
        };
        check_position(backend.pointer_position()?)
            .map_err(|failure| of_step(failure, index, steps))?;
        if index > 0 {
            pause(STEP_PAUSE)?;
        }
        do_step(backend, step, &check_position)
            .map_err(|failure| of_step(failure, index, steps))?;
        if let InputStep::Move { x, y } | InputStep::Drag { x, y } = step {
            last_position = Some((*x, *y));
        }
    }
    Ok(())
}

/// Adds the number of the step to a failure.
fn of_step(failure: Failure, index: usize, steps: &[InputStep]) -> Failure {
    let count = steps.len();
    if count < 2 {
        return failure;
    }
    Failure { what: format!("step {} of {count}: {}", index + 1, failure.what), ..failure }
}

fn stopped((x, y): (i32, i32)) -> Failure {
    Failure::refused("aborted: the pointer is in a corner of the screen")
        .because(format!("it is at {x},{y}; moving the pointer into a corner stops the agent"))
        .hint("move the pointer away from the corner")
}

fn in_corner((x, y): (i32, i32), screen: Area) -> bool {
    let is_near = |coordinate: i32, start: i32, length: u32| {
        let coordinate = i64::from(coordinate) - i64::from(start);
        coordinate < CORNER_SIZE || coordinate >= i64::from(length) - CORNER_SIZE
    };
    is_near(x, screen.x, screen.width) && is_near(y, screen.y, screen.height)
}

/// Checks whether a step can be executed.
fn check(step: &InputStep, screen: Area) -> Result<()> {
    match step {
        InputStep::Move { x, y } | InputStep::Drag { x, y } => on_screen(*x, *y, screen),
        InputStep::Click { times, .. } if *times == 0 || *times > MAX_CLICKS => {
            Err(Failure::usage(format!("1 to {MAX_CLICKS} clicks, not {times}")))
        }
        InputStep::Scroll { down, right }
            if down.unsigned_abs().max(right.unsigned_abs()) > MAX_NOTCHES =>
        {
            Err(Failure::usage(format!("at most {MAX_NOTCHES} notches at once")))
        }
        InputStep::Type { text } => typable(text),
        InputStep::Keys { keys } => combination(keys).map(drop),
        InputStep::Click { .. } | InputStep::Scroll { .. } => Ok(()),
    }
}

fn on_screen(x: i32, y: i32, screen: Area) -> Result<()> {
    let is_inside = |coordinate: i32, start: i32, length: u32| {
        (0..i64::from(length)).contains(&(i64::from(coordinate) - i64::from(start)))
    };
    if is_inside(x, screen.x, screen.width) && is_inside(y, screen.y, screen.height) {
        return Ok(());
    }
    let Area { width, height, .. } = screen;
    Err(Failure::usage(format!("{x},{y} is outside of the screen"))
        .because(format!("the screen is {width}x{height}")))
}

fn typable(text: &str) -> Result<()> {
    let count = text.chars().count();
    if count > MAX_TEXT {
        let failure = Failure::usage(format!("{count} characters are too many to type at once"));
        return Err(failure.because(format!("at most {MAX_TEXT}")));
    }
    match text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        Some(control_char) => {
            Err(Failure::usage(format!("the control character {control_char:?} cannot be typed"))
                .hint("press keys instead, e.g. `esc`"))
        }
        None => Ok(()),
    }
}

fn do_step(
    backend: &mut impl InputBackend,
    step: &InputStep,
    check_position: PositionCheck<'_>,
) -> Result<()> {
    match step {
        InputStep::Move { x, y } => backend.make(InputEvent::Go(*x, *y)),
        InputStep::Click { button, times } => {
            let click = InputEvent::Button(*button, Direction::Click);
            (0..*times).try_for_each(|_| backend.make(click))
        }
        InputStep::Drag { x, y } => drag(backend, (*x, *y)),
        InputStep::Scroll { down, right } => backend.make(InputEvent::Wheel(*down, *right)),
        InputStep::Type { text } => backend.type_text(text, check_position),
        InputStep::Keys { keys } => press(backend, &combination(keys)?),
    }
}

/// Drags with the left button, which is released in any case.
fn drag(backend: &mut impl InputBackend, to: (i32, i32)) -> Result<()> {
    let Some(from) = backend.pointer_position()? else {
        let failure = Failure::failed("cannot drag: the pointer position is unknown");
        return Err(failure.hint("move the pointer first"));
    };
    backend.make(InputEvent::Button(Button::Left, Direction::Press))?;
    let interpolate = |from: i32, to: i32, part: i32| from + (to - from) * part / DRAG_MOVES;
    let move_result = (1..=DRAG_MOVES).try_for_each(|part| {
        pause(DRAG_TIME / DRAG_MOVES.unsigned_abs())?;
        backend
            .make(InputEvent::Go(interpolate(from.0, to.0, part), interpolate(from.1, to.1, part)))
    });
    let release_result = backend.make(InputEvent::Button(Button::Left, Direction::Release));
    move_result.and(release_result)
}

/// Presses the keys together. All pressed keys are released in any case.
fn press(backend: &mut impl InputBackend, keys: &[Key]) -> Result<()> {
    let mut pressed_keys = Vec::new();
    let press_result = keys.iter().try_for_each(|key| {
        pressed_keys.push(*key);
        backend.make(InputEvent::Key(*key, Direction::Press))
    });
    let release = |key: Key| backend.make(InputEvent::Key(key, Direction::Release));
    let release_results: Vec<Result<()>> = pressed_keys.into_iter().rev().map(release).collect();
    press_result.and(release_results.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: Area = Area { x: 0, y: 0, width: 800, height: 600 };

    #[test]
    fn there_are_four_small_corners() {
        for place in [(0, 0), (799, 0), (1, 598), (799, 599)] {
            assert!(in_corner(place, SCREEN), "{place:?}");
        }
        for place in [(400, 0), (0, 300), (2, 2), (797, 1)] {
            assert!(!in_corner(place, SCREEN), "{place:?}");
        }
    }

    #[test]
    fn an_impossible_step_is_rejected() {
        let refused = |step: InputStep| check(&step, SCREEN).unwrap_err().sentence();
        assert!(refused(InputStep::Move { x: 800, y: 10 }).contains("800x600"));
        assert!(refused(InputStep::Drag { x: 5, y: -1 }).contains("outside"));
        let (left, i) = (Button::Left, i32::MIN);
        assert!(refused(InputStep::Click { button: left, times: 0 }).contains("1 to 3"));
        assert!(refused(InputStep::Scroll { down: i, right: 0 }).contains("notches"));
        assert!(
            refused(InputStep::Type { text: "\u{1b}[A".to_owned() }).contains("control character")
        );
        assert!(refused(InputStep::Type { text: "x".repeat(10_001) }).contains("10001"));
        assert!(refused(InputStep::Keys { keys: vec!["alt+f4".to_owned()] }).contains("Alt+F4"));
    }
}
