//! Makes room by moving large old tool results into files.

use base::failure::{OrFail, Result};
use serde_json::{Value, json};

use super::window::estimate_text;
use super::{Conversation, Entry};
use crate::message::{Message, Part};

/// Percentages at which results are moved away, once each.
const MARKS: [u64; 4] = [50, 60, 70, 80];
/// Smaller results stay.
const LARGE: usize = 1_000;
/// The last messages stay: the model is working with them.
const FRESH: usize = 4;

impl Conversation {
    /// Thins when a mark was crossed since the last time; gives the detail of the event.
    ///
    /// Everything behind the first changed message must be sent anew, so the walk goes backwards
    /// from the newest result that may go, and ends as soon as a sixth of the window is free.
    pub fn thin(&mut self) -> Result<Option<Value>> {
        let before = self.window.percent();
        let floor = self.window.policy().thin_from;
        let passed = |mark: &u64| *mark >= floor && before >= *mark;
        let Some(mark) = MARKS.iter().rev().copied().find(passed) else { return Ok(None) };
        if mark <= self.thinned_at {
            return Ok(None);
        }
        self.thinned_at = mark;
        let old = self.messages.len().saturating_sub(FRESH);
        let results = self.moved_aside(old, self.window.limit() / 6)?;
        if results.is_empty() {
            return Ok(None);
        }
        let count = results.len();
        self.note(Entry::Thinned { results })?;
        let after = self.window.percent();
        Ok(Some(json!({"mark": mark, "before": before, "after": after, "results": count})))
    }

    /// Thins at once, whatever the window: the first part of so many, or all but the last
    /// messages. Gives how many results went.
    pub fn thin_now(&mut self, part: usize) -> Result<usize> {
        let upto = (self.messages.len() / part).min(self.messages.len().saturating_sub(FRESH));
        let results = self.moved_aside(upto, u64::MAX)?;
        let count = results.len();
        if count > 0 {
            self.note(Entry::Thinned { results })?;
        }
        Ok(count)
    }

    fn moved_aside(&mut self, old: usize, wanted: u64) -> Result<Vec<(String, String)>> {
        let (mut moved, mut freed) = (Vec::new(), 0);
        for message in self.messages[..old].iter().rev() {
            for part in message.parts.iter().rev() {
                let Part::Result(result) = part else { continue };
                if result.text.len() < LARGE {
                    continue;
                }
                let file = self
                    .record
                    .set_aside("thinned", &format!("{}.txt", result.call_id), &result.text)
                    .or_fail(|| "cannot move an old tool result into a file")?;
                let bytes = result.text.len();
                let text = format!(
                    "[{bytes} bytes of this result were moved to {}; read that file if you need it]",
                    file.display()
                );
                freed += estimate_text(&result.text).saturating_sub(estimate_text(&text));
                moved.push((result.call_id.clone(), text));
            }
            if freed >= wanted {
                break;
            }
        }
        Ok(moved)
    }
}

/// Puts the new texts in the place of the old; gives the estimated tokens that are free now.
pub(super) fn apply(messages: &mut [Message], results: &[(String, String)]) -> u64 {
    let mut freed = 0;
    for part in messages.iter_mut().flat_map(|message| message.parts.iter_mut()) {
        let Part::Result(result) = part else { continue };
        if let Some((_, text)) = results.iter().find(|(id, _)| *id == result.call_id) {
            freed += estimate_text(&result.text).saturating_sub(estimate_text(text));
            result.text.clone_from(text);
            result.images.clear();
        }
    }
    freed
}
