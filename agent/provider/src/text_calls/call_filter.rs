//! What has been found, in order: words without the spaces that lead to a call, and fenced calls
//! held back until it is known whether they count.
//!
//! A model also shows calls: it quotes a file, or explains. So fenced calls count only at the very
//! end of a reply that has no others, and only where they are no quotation.

use super::forms::FoundCall;

/// A piece of what the model said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextPiece {
    /// Words.
    Text(String),
    /// Thought, from a `<think>` at the beginning.
    Thought(String),
    /// A call.
    Call(FoundCall),
}

/// Takes what was found, gives pieces.
#[derive(Debug, Default)]
pub(crate) struct CallFilter {
    spaces: String,
    ready: Vec<TextPiece>,
    /// Fenced calls that nothing has followed so far.
    held: Vec<Fenced>,
    found_outside: bool,
    begun: bool,
}

/// A code fence with nothing but calls in it.
#[derive(Debug)]
struct Fenced {
    /// What stood between the words before it and the fence.
    spaces: String,
    calls: Vec<FoundCall>,
    source: String,
}

impl CallFilter {
    /// Whether anything but spaces and thought came.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// The pieces that are certain.
    pub(crate) fn take(&mut self) -> Vec<TextPiece> {
        std::mem::take(&mut self.ready)
    }

    /// Nothing more comes: fenced calls count now, unless they are quotations.
    pub(crate) fn finish(&mut self, is_quotation: &dyn Fn(&FoundCall) -> bool) -> Vec<TextPiece> {
        for fenced in std::mem::take(&mut self.held) {
            if fenced.calls.iter().any(is_quotation) {
                self.ready.push(fenced.shown());
            } else {
                self.ready.extend(fenced.calls.into_iter().map(TextPiece::Call));
            }
        }
        self.take()
    }

    /// Words. Spaces wait until words follow them.
    pub(crate) fn words(&mut self, text: &str) {
        self.spaces.push_str(text);
        let words = self.spaces.trim_end().len();
        if words > 0 {
            let rest = self.spaces.split_off(words);
            let text = std::mem::replace(&mut self.spaces, rest);
            self.begun = true;
            self.show_held();
            self.ready.push(TextPiece::Text(text));
        }
    }

    /// Thought; it stands before everything else.
    pub(crate) fn thought(&mut self, text: String) {
        self.begun = true;
        self.ready.push(TextPiece::Thought(text));
    }

    /// A call outside of fences: those inside were examples.
    pub(crate) fn call(&mut self, call: FoundCall) {
        self.found_outside = true;
        self.begun = true;
        self.show_held();
        self.spaces.clear();
        self.ready.push(TextPiece::Call(call));
    }

    /// Calls in a fence.
    pub(crate) fn fenced(&mut self, calls: Vec<FoundCall>, source: String) {
        if self.found_outside {
            return self.words(&source);
        }
        self.begun = true;
        let spaces = std::mem::take(&mut self.spaces);
        self.held.push(Fenced { spaces, calls, source });
    }

    /// Something follows the fenced calls, so they are words.
    fn show_held(&mut self) {
        self.ready.extend(std::mem::take(&mut self.held).into_iter().map(Fenced::shown));
    }
}

impl Fenced {
    fn shown(self) -> TextPiece {
        TextPiece::Text(format!("{}{}", self.spaces, self.source))
    }
}
