//! Frees context by moving large arguments and results of old calls into files.

use std::collections::HashSet;

use base::failure::{OrFail, Result};
use serde_json::{Value, json};

use super::window::estimate_text;
use super::{Conversation, ConversationEntry, ConversationLog};
use provider::message::{ContentPart, Message, ToolCall};

/// Percentages of the window at which texts are moved, once each.
const THRESHOLDS: [u64; 4] = [50, 60, 70, 80];
/// Minimum size in bytes of a text that is moved.
const MIN_MOVED: usize = 1_000;
/// Number of recent messages that are kept, since the model is working with them.
const RECENT_MESSAGES: usize = 4;

impl Conversation {
    /// Thins the conversation if a threshold was crossed since the last time. Returns the detail of
    /// the event.
    ///
    /// Everything after the first changed message must be sent again, so the walk goes backwards
    /// from the newest result that may be moved, and ends as soon as a sixth of the window is free.
    pub(crate) fn thin(&mut self) -> Result<Option<Value>> {
        let before = self.window.percent();
        let floor = self.window.policy().thin_from;
        let is_crossed = |threshold: &u64| *threshold >= floor && before >= *threshold;
        let Some(threshold) = THRESHOLDS.iter().rev().copied().find(is_crossed) else {
            return Ok(None);
        };
        if threshold <= self.thinned_at {
            return Ok(None);
        }
        self.thinned_at = threshold;
        let old = self.messages.len().saturating_sub(RECENT_MESSAGES);
        let count = self.move_to_files(old, self.window.limit() / 6)?;
        if count == 0 {
            return Ok(None);
        }
        let after = self.window.percent();
        Ok(Some(json!({"mark": threshold, "before": before, "after": after, "results": count})))
    }

    /// Thins immediately, regardless of the window: the first of `part` equal parts, without the
    /// most recent messages. Returns the number of calls that were thinned.
    pub fn thin_now(&mut self, part: usize) -> Result<usize> {
        let end =
            (self.messages.len() / part).min(self.messages.len().saturating_sub(RECENT_MESSAGES));
        self.move_to_files(end, u64::MAX)
    }

    /// Moves large texts of the first `old` messages into files, newest first, until the wanted
    /// number of tokens is free. Returns the number of calls that were thinned.
    fn move_to_files(&mut self, old: usize, target: u64) -> Result<usize> {
        let (mut results, mut args, mut freed) = (Vec::new(), Vec::new(), 0);
        for message in self.messages[..old].iter().rev() {
            for part in message.parts.iter().rev() {
                match part {
                    ContentPart::Result(result) if result.text.len() >= MIN_MOVED => {
                        let name = format!("{}.txt", result.call_id);
                        let text =
                            write_reference(self.log.as_mut(), &name, "result", &result.text)?;
                        freed += saved_tokens(&result.text, &text);
                        results.push((result.call_id.clone(), text));
                    }
                    ContentPart::Call(call) => {
                        let Some(thinned_args) = thin_args(self.log.as_mut(), call)? else {
                            continue;
                        };
                        freed += saved_tokens(&call.args.to_string(), &thinned_args.to_string());
                        args.push((call.id.clone(), thinned_args));
                    }
                    ContentPart::Result(_)
                    | ContentPart::Text { .. }
                    | ContentPart::Note(_)
                    | ContentPart::Reasoning { .. }
                    | ContentPart::Image(_) => {}
                }
            }
            if freed >= target {
                break;
            }
        }
        let calls: HashSet<&String> =
            results.iter().map(|(id, _)| id).chain(args.iter().map(|(id, _)| id)).collect();
        let count = calls.len();
        if count > 0 {
            self.append(ConversationEntry::Thinned { results, args })?;
        }
        Ok(count)
    }
}

/// Returns the arguments of a call with large texts replaced by references, or `None` if there are
/// none.
fn thin_args(log: &mut dyn ConversationLog, call: &ToolCall) -> Result<Option<Value>> {
    let mut args = call.args.clone();
    let mut changed = false;
    for (key, value) in args.as_object_mut().into_iter().flatten() {
        let Value::String(text) = value else { continue };
        if text.len() >= MIN_MOVED {
            *text = write_reference(log, &format!("{}-{key}.txt", call.id), "argument", text)?;
            changed = true;
        }
    }
    Ok(changed.then_some(args))
}

/// Writes a text to a file and returns the reference that replaces it.
fn write_reference(
    log: &mut dyn ConversationLog,
    name: &str,
    what: &str,
    text: &str,
) -> Result<String> {
    let file = log.write_file("thinned", name, text);
    let file = file.or_fail(|| format!("cannot move an old {what} into a file"))?;
    let (bytes, file) = (text.len(), file.display());
    Ok(format!(
        "[{bytes} bytes of this {what} were moved to {file}; read that file if you need it]"
    ))
}

fn saved_tokens(before: &str, after: &str) -> u64 {
    estimate_text(before).saturating_sub(estimate_text(after))
}

/// Replaces the old texts by the new ones. Returns the estimated number of freed tokens.
pub(super) fn apply(
    messages: &mut [Message],
    results: &[(String, String)],
    args: &[(String, Value)],
) -> u64 {
    let mut freed = 0;
    for part in messages.iter_mut().flat_map(|message| message.parts.iter_mut()) {
        match part {
            ContentPart::Result(result) => {
                let new = results.iter().find(|(id, _)| *id == result.call_id);
                let Some((_, text)) = new else { continue };
                freed += saved_tokens(&result.text, text);
                result.text.clone_from(text);
                result.images.clear();
            }
            ContentPart::Call(call) => {
                let Some((_, thinned_args)) = args.iter().find(|(id, _)| *id == call.id) else {
                    continue;
                };
                freed += saved_tokens(&call.args.to_string(), &thinned_args.to_string());
                call.args = thinned_args.clone();
            }
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Image(_) => {}
        }
    }
    freed
}
