//! Types text on X11: with existing keys where possible, and with temporarily assigned keycodes for
//! other characters.

use std::collections::BTreeSet;

use base::failure::{OrFail, Result};
use enigo::{Direction, Key, Keyboard as _};

use crate::cancel::pause;
use crate::enigo::EnigoBackend;
use crate::input_backend::{InputBackend as _, InputEvent, PositionCheck, SPACING};
use crate::x11::{Keyboard, X11Display};

/// Maximum number of unmapped characters that share one keyboard map, if enough keycodes are free.
const TOGETHER: usize = 8;

/// How a character is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stroke {
    /// With a key of the keyboard.
    Key { code: u8, shift: bool },
    /// With a named key.
    Named(Key),
    /// With a keycode that the backend assigns.
    Lent(char),
}

/// Types the text at the keyboard focus.
pub(crate) fn type_text(text: &str, check_position: PositionCheck<'_>) -> Result<()> {
    let keyboard = X11Display::open(None)?.keyboard()?;
    let most = keyboard.free().clamp(1, TOGETHER);
    for part in parts(&keyboard, text, most) {
        // Reopened for each part, because it keeps the map that it read when opened.
        let mut library = EnigoBackend::open()?;
        for stroke in part {
            strike(&mut library, stroke)?;
            pause(SPACING)?;
            check_position(library.pointer_position()?)?;
        }
    }
    Ok(())
}

/// Splits the text into parts that each need at most `most` assigned keycodes.
fn parts(keyboard: &Keyboard, text: &str, most: usize) -> Vec<Vec<Stroke>> {
    let mut parts = vec![Vec::new()];
    let mut lent = BTreeSet::new();
    for character in text.replace("\r\n", "\n").chars() {
        let stroke = keyboard.stroke(character);
        if matches!(stroke, Stroke::Lent(_)) && lent.insert(character) && lent.len() > most {
            parts.push(Vec::new());
            lent = BTreeSet::from([character]);
        }
        parts.last_mut().expect("there is one from the start").push(stroke);
    }
    parts
}

fn strike(library: &mut EnigoBackend, stroke: Stroke) -> Result<()> {
    match stroke {
        Stroke::Named(key) => library.make(InputEvent::Key(key, Direction::Click)),
        Stroke::Lent(character) => {
            library.make(InputEvent::Key(Key::Unicode(character), Direction::Click))
        }
        Stroke::Key { code, shift } => {
            if shift {
                library.make(InputEvent::Key(Key::Shift, Direction::Press))?;
            }
            let struck = library.enigo.raw(code.into(), Direction::Click);
            if shift {
                library.make(InputEvent::Key(Key::Shift, Direction::Release))?;
            }
            struck.or_fail(|| "the text was not taken")
        }
    }
}

impl Keyboard {
    /// Returns how a character is typed.
    fn stroke(&self, character: char) -> Stroke {
        match character {
            '\n' | '\r' => return Stroke::Named(Key::Return),
            '\t' => return Stroke::Named(Key::Tab),
            _ => {}
        }
        // The keysyms of ASCII and Latin-1 are the code points.
        let symbol = u32::from(character);
        let latin = matches!(symbol, 0x20..=0x7e | 0xa0..=0xff);
        let position = latin.then(|| self.find(symbol)).flatten();
        let Some((code, level)) = position else { return Stroke::Lent(character) };
        let shift = (level == 1) != (self.caps && character.is_alphabetic());
        Stroke::Key { code, shift }
    }

    /// Returns the keycode and level (0, or 1 with shift) of a keysym.
    fn find(&self, symbol: u32) -> Option<(u8, usize)> {
        let keys = || (self.first..=u8::MAX).zip(self.symbols.chunks(self.width));
        (0..2).find_map(|level| {
            let mut keys = keys();
            let key = keys.find(|(_, symbols)| symbols.get(level) == Some(&symbol));
            key.map(|(code, _)| (code, level))
        })
    }

    /// Returns the number of unused keycodes.
    fn free(&self) -> usize {
        let keys = self.symbols.chunks(self.width);
        keys.filter(|symbols| symbols.iter().all(|symbol| *symbol == 0)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_has_a_key_with_or_without_shift_or_is_assigned_one() {
        let (a, capital, one, bang) = (0x61, 0x41, 0x31, 0x21);
        let symbols = vec![0, 0, a, capital, one, bang, 0xe9, 0xc9, 0, 0];
        let mut keyboard = Keyboard { first: 8, width: 2, symbols, caps: false };
        let key = |code, shift| Stroke::Key { code, shift };
        assert_eq!(keyboard.stroke('a'), key(9, false));
        assert_eq!(keyboard.stroke('A'), key(9, true));
        assert_eq!(keyboard.stroke('!'), key(10, true));
        assert_eq!(keyboard.stroke('é'), key(11, false));
        assert_eq!(keyboard.stroke('ż'), Stroke::Lent('ż'));
        assert_eq!(keyboard.stroke('{'), Stroke::Lent('{'));
        assert_eq!(keyboard.stroke('\n'), Stroke::Named(Key::Return));
        assert_eq!(keyboard.free(), 2);
        let of = |text| parts(&keyboard, text, 2).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(of(""), [0]);
        assert_eq!(of("aaa!\r\n"), [5]);
        assert_eq!(of("żaółżó"), [3, 2, 1], "a keycode serves as often as it is needed");
        keyboard.caps = true;
        assert_eq!(keyboard.stroke('a'), key(9, true));
        assert_eq!(keyboard.stroke('A'), key(9, false));
        assert_eq!(keyboard.stroke('1'), key(10, false));
    }
}
