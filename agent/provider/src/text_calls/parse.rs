//! Parses calls from a model's streamed text: `<tool_call>` blocks (Qwen), g3's `{"tool": …,
//! "args": …}` on a line of its own, `to=functions.NAME {…}`, and either JSON form in a code fence.
//! Only the model's own text is parsed, never a tool's result.
//!
//! Text that may still become a call is held back; all other text is passed on immediately. Fenced
//! calls are accepted only at the end of a reply without other calls, because models also show
//! calls as examples.

use super::call_filter::{CallFilter, TextPiece};
use super::forms::{
    FENCE, FenceContent, FoundCall, begins_like_a_call, fenced_calls, known_call, named_call,
};
use super::lenient::{self, ObjectEnd};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FUNCTION: &str = "to=functions.";
const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";
/// Template tokens that servers sometimes let through.
const NOISE: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|call|>"];
/// Tokens that may appear between a function's name and its arguments.
const FILLER: [&str; 6] =
    ["<|constrain|>", "<|message|>", "<|channel|>", "commentary", "json", "code"];
const MOST_FILLER: usize = 80;

/// Parses text into pieces.
#[derive(Debug)]
pub(crate) struct TextCallParser {
    tools: Vec<String>,
    buffer: String,
    place: ParseState,
    out: CallFilter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseState {
    LineStart,
    InLine,
    Fence,
    Thought,
    AfterThought,
}

/// The result of a parsing step.
enum Look {
    /// More input is needed.
    Wait,
    /// Input was consumed.
    Done,
    /// The input is plain text here.
    Plain,
}

impl TextCallParser {
    /// Creates a parser for a reply. The JSON forms are accepted only for these tools.
    pub(crate) fn new(tools: impl IntoIterator<Item = String>) -> TextCallParser {
        TextCallParser {
            tools: tools.into_iter().collect(),
            buffer: String::new(),
            place: ParseState::LineStart,
            out: CallFilter::default(),
        }
    }

    /// Parses the next text and returns the pieces that are certain.
    pub(crate) fn push(&mut self, more: &str) -> Vec<TextPiece> {
        self.buffer.push_str(more);
        while self.step(false) {}
        self.out.take()
    }

    /// Ends the reply and returns the remaining pieces. Whitespace before a call and at the end is
    /// dropped. Fenced calls that are quotations stay text.
    pub(crate) fn end(&mut self, is_quotation: &dyn Fn(&FoundCall) -> bool) -> Vec<TextPiece> {
        while self.step(true) {}
        self.out.finish(is_quotation)
    }

    /// Advances by one decision. Returns false if more input is needed.
    fn step(&mut self, ended: bool) -> bool {
        if self.buffer.is_empty() {
            return false;
        }
        let look = match self.place {
            ParseState::Thought => self.thought(ended),
            ParseState::AfterThought => {
                let blank = self.buffer.len() - self.buffer.trim_start().len();
                self.drop_front(blank);
                if !self.buffer.is_empty() {
                    self.place = ParseState::LineStart;
                }
                Look::Done
            }
            ParseState::Fence => self.fence_line(ended),
            ParseState::LineStart => match self.line_start(ended) {
                Look::Plain => self.in_line(ended),
                look => look,
            },
            ParseState::InLine => self.in_line(ended),
        };
        !matches!(look, Look::Wait)
    }

    fn line_start(&mut self, ended: bool) -> Look {
        let indent = self.buffer.len() - self.buffer.trim_start_matches([' ', '\t']).len();
        let rest = &self.buffer[indent..];
        if !self.out.has_begun() && rest.starts_with(THINK) {
            self.drop_front(indent + THINK.len());
            self.place = ParseState::Thought;
            return Look::Done;
        }
        if rest.starts_with('{') {
            return self.bare_object(indent, ended);
        }
        if rest.starts_with(FUNCTION) {
            return self.function(indent, ended);
        }
        if rest.starts_with(FENCE) {
            return self.fence(indent, ended);
        }
        let may_become = |opener: &str| opener.starts_with(rest);
        let open = [FUNCTION, FENCE].iter().any(|opener| may_become(opener));
        if !ended && (open || (!self.out.has_begun() && may_become(THINK))) {
            return Look::Wait;
        }
        Look::Plain
    }

    /// Consumes text up to the end of the line or to an angle bracket.
    fn in_line(&mut self, ended: bool) -> Look {
        match self.buffer.find(['\n', '<']) {
            None => self.say(self.buffer.len()),
            Some(at) if self.buffer.as_bytes()[at] == b'\n' => {
                self.say(at + 1);
                self.place = ParseState::LineStart;
                return Look::Done;
            }
            Some(0) => return self.angle(ended),
            Some(at) => self.say(at),
        }
        self.place = ParseState::InLine;
        Look::Done
    }

    fn angle(&mut self, ended: bool) -> Look {
        if self.buffer.starts_with(OPEN) {
            return self.block(ended);
        }
        if let Some(noise) = NOISE.iter().find(|noise| self.buffer.starts_with(*noise)) {
            self.drop_front(noise.len());
            return Look::Done;
        }
        let mut openers = NOISE.iter().chain([&OPEN]);
        if !ended && openers.any(|opener| opener.starts_with(&self.buffer)) {
            return Look::Wait;
        }
        self.say(1);
        self.place = ParseState::InLine;
        Look::Done
    }

    /// Parses `<tool_call>` and what follows it.
    fn block(&mut self, ended: bool) -> Look {
        let inside = self.buffer[OPEN.len()..].trim_start();
        let start = self.buffer.len() - inside.len();
        if inside.is_empty() && !ended {
            return Look::Wait;
        }
        if !inside.starts_with('{') {
            self.say(OPEN.len());
            self.place = ParseState::InLine;
            return Look::Done;
        }
        let (end, after) = match lenient::scan(inside, Some(CLOSE)) {
            ObjectEnd::Complete(end) => {
                let rest = inside[end..].trim_start();
                if !ended && rest.len() < CLOSE.len() && CLOSE.starts_with(rest) {
                    return Look::Wait;
                }
                let spaces = inside.len() - end - rest.len();
                let closed = rest.starts_with(CLOSE);
                (end, if closed { end + spaces + CLOSE.len() } else { end })
            }
            ObjectEnd::Tag(at) => (at, at + CLOSE.len()),
            ObjectEnd::Open { .. } if !ended => return Look::Wait,
            // A tag inside a string ends the block only if the string is unterminated.
            ObjectEnd::Open { .. } => match inside.find(CLOSE) {
                Some(at) => (at, at + CLOSE.len()),
                None => (inside.len(), inside.len()),
            },
        };
        let text = inside[..end].to_owned();
        match named_call(&text) {
            Some(call) => self.found(call, start + after),
            None => self.say(start + after),
        }
        self.place = ParseState::InLine;
        Look::Done
    }

    /// Parses an object at the start of a line. It is a call if it has the form of one, names a
    /// tool, and is followed only by other objects on its line.
    fn bare_object(&mut self, indent: usize, ended: bool) -> Look {
        let rest = &self.buffer[indent..];
        match begins_like_a_call(rest) {
            None if !ended => return Look::Wait,
            None | Some(false) => return Look::Plain,
            Some(true) => {}
        }
        let end = match lenient::scan(rest, None) {
            ObjectEnd::Complete(end) => end,
            ObjectEnd::Tag(_) | ObjectEnd::Open { .. } if !ended => return Look::Wait,
            ObjectEnd::Tag(_) | ObjectEnd::Open { .. } => {
                let known = lenient::name_in(rest).filter(|name| self.knows(name));
                let Some(name) = known.map(str::to_owned) else { return Look::Plain };
                let call = FoundCall { name, args: None, source: rest.to_owned() };
                self.found(call, self.buffer.len());
                return Look::Done;
            }
        };
        let after = rest[end..].trim_start_matches([' ', '\t']);
        if after.is_empty() && !ended {
            return Look::Wait;
        }
        let alone = after.is_empty() || after.starts_with(['\n', '\r', '{']);
        let source = rest[..end].to_owned();
        match known_call(&source, &self.tools).filter(|_| alone) {
            Some(call) => {
                self.found(call, indent + end);
                Look::Done
            }
            None => Look::Plain,
        }
    }

    /// Parses `to=functions.NAME`, optional template tokens, and an object.
    fn function(&mut self, indent: usize, ended: bool) -> Look {
        let rest = &self.buffer[indent + FUNCTION.len()..];
        let start = self.buffer.len() - rest.len();
        let Some(brace) = rest.find('{').filter(|at| *at <= MOST_FILLER) else {
            return if ended || rest.len() > MOST_FILLER { Look::Plain } else { Look::Wait };
        };
        let head = &rest[..brace];
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name_end = head.find(|c| !plain(c)).unwrap_or(head.len());
        let (name, filler) = head.split_at(name_end);
        let name = name.to_owned();
        let filler = FILLER.iter().fold(filler.to_owned(), |text, word| text.replace(word, ""));
        if !filler.trim().is_empty() || !self.knows(&name) {
            return Look::Plain;
        }
        let object = &rest[brace..];
        let (end, args) = match lenient::scan(object, None) {
            ObjectEnd::Complete(end) => (end, lenient::parse(&object[..end])),
            ObjectEnd::Tag(_) | ObjectEnd::Open { .. } if !ended => return Look::Wait,
            ObjectEnd::Tag(_) | ObjectEnd::Open { .. } => (object.len(), None),
        };
        let source = object[..end].to_owned();
        let args = args.and_then(|value| value.as_object().cloned());
        self.found(FoundCall { name, args, source }, start + brace + end);
        Look::Done
    }

    /// Parses a code fence: calls if it contains nothing else, otherwise text up to its end.
    fn fence(&mut self, indent: usize, ended: bool) -> Look {
        let Some(line) = self.buffer.find('\n') else {
            return if ended { Look::Plain } else { Look::Wait };
        };
        let inline = self.buffer[indent + FENCE.len()..line].contains(FENCE);
        if inline {
            return Look::Plain;
        }
        match fenced_calls(&self.buffer, line + 1, &self.tools, ended) {
            FenceContent::Wait => return Look::Wait,
            FenceContent::Calls(calls, end) => {
                let source = self.buffer[..end].to_owned();
                self.drop_front(end);
                self.out.fenced(calls, source);
                self.place = ParseState::InLine;
            }
            FenceContent::Other => {
                self.say(line + 1);
                self.place = ParseState::Fence;
            }
        }
        Look::Done
    }

    /// Consumes a line inside a fence.
    fn fence_line(&mut self, ended: bool) -> Look {
        let end = match self.buffer.find('\n') {
            Some(at) => at + 1,
            None if ended => self.buffer.len(),
            None => return Look::Wait,
        };
        let line = self.buffer[..end].trim();
        if line.starts_with(FENCE) && line.chars().all(|c| c == '`') {
            self.place = ParseState::LineStart;
        }
        self.say(end);
        Look::Done
    }

    fn thought(&mut self, ended: bool) -> Look {
        if let Some(at) = self.buffer.find(THOUGHT) {
            self.think(at);
            self.drop_front(THOUGHT.len());
            self.place = ParseState::AfterThought;
            return Look::Done;
        }
        let kept = (1..THOUGHT.len()).rev().find(|n| self.buffer.ends_with(&THOUGHT[..*n]));
        let certain = self.buffer.len() - kept.filter(|_| !ended).unwrap_or(0);
        if certain == 0 {
            return Look::Wait;
        }
        self.think(certain);
        Look::Done
    }

    fn think(&mut self, bytes: usize) {
        if bytes > 0 {
            let text = self.drop_front(bytes);
            self.out.thought(text);
        }
    }

    fn drop_front(&mut self, bytes: usize) -> String {
        let rest = self.buffer.split_off(bytes);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Passes on the first bytes as text.
    fn say(&mut self, bytes: usize) {
        let text = self.drop_front(bytes);
        self.out.words(&text);
    }

    fn found(&mut self, call: FoundCall, bytes: usize) {
        self.drop_front(bytes);
        self.out.call(call);
        self.place = ParseState::LineStart;
    }

    fn knows(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool == name)
    }
}
