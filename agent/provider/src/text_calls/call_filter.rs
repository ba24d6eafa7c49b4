//! Filters what the parser found, in order: drops whitespace before calls and holds fenced calls
//! back until it is known whether they are real.
//!
//! A model also shows calls when it quotes a file or explains something. Fenced calls are therefore
//! accepted only at the very end of a reply without other calls, and only if they are not
//! quotations.

use super::forms::FoundCall;

/// A piece of the model's output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextPiece {
    /// Text.
    Text(String),
    /// Reasoning, from a `<think>` block at the start.
    Thought(String),
    /// A call.
    Call(FoundCall),
}

/// Collects what was found and returns pieces.
#[derive(Debug, Default)]
pub(crate) struct CallFilter {
    spaces: String,
    ready: Vec<TextPiece>,
    /// Fenced calls that nothing has followed so far.
    pending: Vec<Fenced>,
    has_plain_call: bool,
    has_started: bool,
}

/// A code fence that contains only calls.
#[derive(Debug)]
struct Fenced {
    /// The whitespace between the preceding text and the fence.
    spaces: String,
    calls: Vec<FoundCall>,
    source: String,
}

impl CallFilter {
    /// Whether anything other than whitespace and reasoning was found.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Returns the pieces that are certain.
    pub(crate) fn take(&mut self) -> Vec<TextPiece> {
        std::mem::take(&mut self.ready)
    }

    /// Ends the input. Fenced calls are accepted now, unless they are quotations.
    pub(crate) fn finish(&mut self, is_quotation: &dyn Fn(&FoundCall) -> bool) -> Vec<TextPiece> {
        for fenced in std::mem::take(&mut self.pending) {
            if fenced.calls.iter().any(is_quotation) {
                self.ready.push(fenced.into_text());
            } else {
                self.ready.extend(fenced.calls.into_iter().map(TextPiece::Call));
            }
        }
        self.take()
    }

    /// Adds text. Trailing whitespace is held back until more text follows.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.spaces.push_str(text);
        let push_text = self.spaces.trim_end().len();
        if push_text > 0 {
            let rest = self.spaces.split_off(push_text);
            let text = std::mem::replace(&mut self.spaces, rest);
            self.has_started = true;
            self.flush_pending();
            self.ready.push(TextPiece::Text(text));
        }
    }

    /// Adds reasoning, which precedes everything else.
    pub(crate) fn reasoning(&mut self, text: String) {
        self.has_started = true;
        self.ready.push(TextPiece::Thought(text));
    }

    /// Adds a call outside of fences. Fenced calls become examples.
    pub(crate) fn call(&mut self, call: FoundCall) {
        self.has_plain_call = true;
        self.has_started = true;
        self.flush_pending();
        self.spaces.clear();
        self.ready.push(TextPiece::Call(call));
    }

    /// Adds fenced calls.
    pub(crate) fn fenced(&mut self, calls: Vec<FoundCall>, source: String) {
        if self.has_plain_call {
            return self.push_text(&source);
        }
        self.has_started = true;
        let spaces = std::mem::take(&mut self.spaces);
        self.pending.push(Fenced { spaces, calls, source });
    }

    /// Turns the held calls into text because something follows them.
    fn flush_pending(&mut self) {
        self.ready.extend(std::mem::take(&mut self.pending).into_iter().map(Fenced::into_text));
    }
}

impl Fenced {
    fn into_text(self) -> TextPiece {
        TextPiece::Text(format!("{}{}", self.spaces, self.source))
    }
}
