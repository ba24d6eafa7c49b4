//! What has been found, in order: words without the spaces that lead to a call, and fenced calls
//! held back until it is known whether they count.

use super::forms::Call;

/// A piece of what the model said.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Words.
    Text(String),
    /// Thought, from a `<think>` at the beginning.
    Thought(String),
    /// A call.
    Call(Call),
}

/// Takes what was found, gives pieces.
#[derive(Debug, Default)]
pub struct Outlet {
    spaces: String,
    ready: Vec<Piece>,
    /// From the first fenced call on, until it is known whether such calls count.
    held: Vec<Held>,
    found_outside: bool,
    begun: bool,
}

#[derive(Debug)]
enum Held {
    Piece(Piece),
    Fenced { calls: Vec<Call>, source: String },
}

impl Outlet {
    /// Whether anything but spaces and thought came.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// The pieces that are certain.
    pub fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.ready)
    }

    /// Nothing more comes: fenced calls count now.
    pub fn finish(&mut self) -> Vec<Piece> {
        for held in std::mem::take(&mut self.held) {
            match held {
                Held::Piece(piece) => self.ready.push(piece),
                Held::Fenced { calls, .. } => self.ready.extend(calls.into_iter().map(Piece::Call)),
            }
        }
        self.take()
    }

    /// Words. Spaces wait until words follow them.
    pub fn words(&mut self, text: &str) {
        self.spaces.push_str(text);
        let words = self.spaces.trim_end().len();
        if words > 0 {
            let rest = self.spaces.split_off(words);
            let text = std::mem::replace(&mut self.spaces, rest);
            self.begun = true;
            self.give(Piece::Text(text));
        }
    }

    /// Thought; it stands before everything else.
    pub fn thought(&mut self, text: String) {
        self.begun = true;
        self.ready.push(Piece::Thought(text));
    }

    /// A call outside of fences: those inside were examples.
    pub fn call(&mut self, call: Call) {
        self.found_outside = true;
        self.begun = true;
        for held in std::mem::take(&mut self.held) {
            self.ready.push(match held {
                Held::Piece(piece) => piece,
                Held::Fenced { source, .. } => Piece::Text(source),
            });
        }
        self.spaces.clear();
        self.give(Piece::Call(call));
    }

    /// Calls in a fence.
    pub fn fenced(&mut self, calls: Vec<Call>, source: String) {
        if self.found_outside {
            return self.words(&source);
        }
        self.spaces.clear();
        self.begun = true;
        self.held.push(Held::Fenced { calls, source });
    }

    fn give(&mut self, piece: Piece) {
        if self.held.is_empty() {
            self.ready.push(piece);
        } else {
            self.held.push(Held::Piece(piece));
        }
    }
}
