//! Parses calls from a model's streamed text: `<tool_call>` blocks (Qwen), `<function=NAME>`
//! (Qwen3-Coder), g3's `{"tool": …, "args": …}` on a line of its own, `to=functions.NAME {…}`, and
//! either JSON form in a code fence. Only the model's own text is parsed, never a tool's result.
//!
//! Text that may still become a call is held back; all other text is passed on immediately. Fenced
//! calls are accepted only at the end of a reply without other calls, because models also show
//! calls as examples.

use super::call_filter::{CallFilter, TextPiece};
use super::forms::{
    BLOCK_END, FENCE, FenceContent, FoundCall, begins_like_a_call, fenced_calls, known_call,
    named_call,
};
use super::lenient::{self, ObjectEnd};
use super::tagged::{self, TaggedCall};

const OPEN: &str = "<tool_call>";
const FUNCTION: &str = "to=functions.";
const THINK_START: &str = "<think>";
const THINK_END: &str = "</think>";
/// Template tokens that servers sometimes let through.
const SPECIAL_TOKENS: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|call|>"];
/// Tokens that may appear between a function's name and its arguments.
const FILLER: [&str; 6] =
    ["<|constrain|>", "<|message|>", "<|channel|>", "commentary", "json", "code"];
const MAX_FILLER: usize = 80;

/// Parses text into pieces.
#[derive(Debug)]
pub(crate) struct TextCallParser {
    tools: Vec<String>,
    buffer: String,
    state: ParseState,
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
            state: ParseState::LineStart,
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
        let look = match self.state {
            ParseState::Thought => self.reasoning(ended),
            ParseState::AfterThought => {
                let blank = self.buffer.len() - self.buffer.trim_start().len();
                self.drop_front(blank);
                if !self.buffer.is_empty() {
                    self.state = ParseState::LineStart;
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
        if !self.out.has_started() && rest.starts_with(THINK_START) {
            self.drop_front(indent + THINK_START.len());
            self.state = ParseState::Thought;
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
        if !ended && (open || (!self.out.has_started() && may_become(THINK_START))) {
            return Look::Wait;
        }
        Look::Plain
    }

    /// Consumes text up to the end of the line or to an angle bracket.
    fn in_line(&mut self, ended: bool) -> Look {
        match self.buffer.find(['\n', '<']) {
            None => self.take_text(self.buffer.len()),
            Some(index) if self.buffer.as_bytes()[index] == b'\n' => {
                self.take_text(index + 1);
                self.state = ParseState::LineStart;
                return Look::Done;
            }
            Some(0) => return self.angle_bracket(ended),
            Some(index) => self.take_text(index),
        }
        self.state = ParseState::InLine;
        Look::Done
    }

    fn angle_bracket(&mut self, ended: bool) -> Look {
        if self.buffer.starts_with(OPEN) {
            return self.block(ended);
        }
        if self.buffer.starts_with(tagged::FUNCTION) {
            return self.tagged(0, ended);
        }
        if let Some(noise) = SPECIAL_TOKENS.iter().find(|noise| self.buffer.starts_with(*noise)) {
            self.drop_front(noise.len());
            return Look::Done;
        }
        let mut openers = SPECIAL_TOKENS.iter().chain([&OPEN, &tagged::FUNCTION]);
        if !ended && openers.any(|opener| opener.starts_with(&self.buffer)) {
            return Look::Wait;
        }
        self.take_text(1);
        self.state = ParseState::InLine;
        Look::Done
    }

    /// Parses `<tool_call>` and what follows it.
    fn block(&mut self, ended: bool) -> Look {
        let content = self.buffer[OPEN.len()..].trim_start();
        let start = self.buffer.len() - content.len();
        if tagged::FUNCTION.starts_with(content) && !ended {
            return Look::Wait;
        }
        if content.starts_with(tagged::FUNCTION) {
            return self.tagged(start, ended);
        }
        if !content.starts_with('{') {
            self.take_text(OPEN.len());
            self.state = ParseState::InLine;
            return Look::Done;
        }
        let (end, consumed) = match lenient::scan(content, Some(BLOCK_END)) {
            ObjectEnd::Complete(end) => {
                let rest = content[end..].trim_start();
                if !ended && rest.len() < BLOCK_END.len() && BLOCK_END.starts_with(rest) {
                    return Look::Wait;
                }
                let spaces = content.len() - end - rest.len();
                let is_closed = rest.starts_with(BLOCK_END);
                (end, if is_closed { end + spaces + BLOCK_END.len() } else { end })
            }
            ObjectEnd::Tag(index) => (index, index + BLOCK_END.len()),
            ObjectEnd::Open { .. } if !ended => return Look::Wait,
            // A tag inside a string ends the block only if the string is unterminated.
            ObjectEnd::Open { .. } => match content.find(BLOCK_END) {
                Some(index) => (index, index + BLOCK_END.len()),
                None => (content.len(), content.len()),
            },
        };
        let text = content[..end].to_owned();
        match named_call(&text) {
            Some(call) => self.take_call(call, start + consumed),
            None => self.take_text(start + consumed),
        }
        self.state = ParseState::InLine;
        Look::Done
    }

    /// Parses the call that begins with `<function=` at `start`, and the end of the block around it.
    fn tagged(&mut self, start: usize, ended: bool) -> Look {
        let (call, length) = match tagged::read(&self.buffer[start..], ended) {
            TaggedCall::Wait => return Look::Wait,
            TaggedCall::Call(call, length) => (call, start + length),
            TaggedCall::Other => {
                self.take_text(start + 1);
                self.state = ParseState::InLine;
                return Look::Done;
            }
        };
        let rest = self.buffer[length..].trim_start();
        if !ended && rest.len() < BLOCK_END.len() && BLOCK_END.starts_with(rest) {
            return Look::Wait;
        }
        let is_closed = rest.starts_with(BLOCK_END);
        let end = if is_closed { self.buffer.len() - rest.len() + BLOCK_END.len() } else { length };
        self.take_call(call, end);
        self.state = ParseState::InLine;
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
                let known_name = lenient::name_in(rest).filter(|name| self.is_tool(name));
                let Some(name) = known_name.map(str::to_owned) else { return Look::Plain };
                let call = FoundCall { name, args: None, source: rest.to_owned() };
                self.take_call(call, self.buffer.len());
                return Look::Done;
            }
        };
        let rest_of_line = rest[end..].trim_start_matches([' ', '\t']);
        if rest_of_line.is_empty() && !ended {
            return Look::Wait;
        }
        let is_alone = rest_of_line.is_empty() || rest_of_line.starts_with(['\n', '\r', '{']);
        let source = rest[..end].to_owned();
        match known_call(&source, &self.tools).filter(|_| is_alone) {
            Some(call) => {
                self.take_call(call, indent + end);
                Look::Done
            }
            None => Look::Plain,
        }
    }

    /// Parses `to=functions.NAME`, optional template tokens, and an object.
    fn function(&mut self, indent: usize, ended: bool) -> Look {
        let rest = &self.buffer[indent + FUNCTION.len()..];
        let start = self.buffer.len() - rest.len();
        let Some(brace) = rest.find('{').filter(|index| *index <= MAX_FILLER) else {
            return if ended || rest.len() > MAX_FILLER { Look::Plain } else { Look::Wait };
        };
        let head = &rest[..brace];
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name_end = head.find(|c| !is_name_char(c)).unwrap_or(head.len());
        let (name, filler) = head.split_at(name_end);
        let name = name.to_owned();
        let filler = FILLER.iter().fold(filler.to_owned(), |text, word| text.replace(word, ""));
        if !filler.trim().is_empty() || !self.is_tool(&name) {
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
        self.take_call(FoundCall { name, args, source }, start + brace + end);
        Look::Done
    }

    /// Parses a code fence: calls if it contains nothing else, otherwise text up to its end.
    fn fence(&mut self, indent: usize, ended: bool) -> Look {
        let Some(line) = self.buffer.find('\n') else {
            return if ended { Look::Plain } else { Look::Wait };
        };
        let is_inline = self.buffer[indent + FENCE.len()..line].contains(FENCE);
        if is_inline {
            return Look::Plain;
        }
        match fenced_calls(&self.buffer, line + 1, &self.tools, ended) {
            FenceContent::Wait => return Look::Wait,
            FenceContent::Calls(calls, end) => {
                let source = self.buffer[..end].to_owned();
                self.drop_front(end);
                self.out.fenced(calls, source);
                self.state = ParseState::InLine;
            }
            FenceContent::Other => {
                self.take_text(line + 1);
                self.state = ParseState::Fence;
            }
        }
        Look::Done
    }

    /// Consumes a line inside a fence.
    fn fence_line(&mut self, ended: bool) -> Look {
        let end = match self.buffer.find('\n') {
            Some(index) => index + 1,
            None if ended => self.buffer.len(),
            None => return Look::Wait,
        };
        let line = self.buffer[..end].trim();
        if line.starts_with(FENCE) && line.chars().all(|c| c == '`') {
            self.state = ParseState::LineStart;
        }
        self.take_text(end);
        Look::Done
    }

    fn reasoning(&mut self, ended: bool) -> Look {
        if let Some(index) = self.buffer.find(THINK_END) {
            self.take_reasoning(index);
            self.drop_front(THINK_END.len());
            self.state = ParseState::AfterThought;
            return Look::Done;
        }
        let kept = (1..THINK_END.len()).rev().find(|n| self.buffer.ends_with(&THINK_END[..*n]));
        let certain = self.buffer.len() - kept.filter(|_| !ended).unwrap_or(0);
        if certain == 0 {
            return Look::Wait;
        }
        self.take_reasoning(certain);
        Look::Done
    }

    fn take_reasoning(&mut self, bytes: usize) {
        if bytes > 0 {
            let text = self.drop_front(bytes);
            self.out.reasoning(text);
        }
    }

    fn drop_front(&mut self, bytes: usize) -> String {
        let rest = self.buffer.split_off(bytes);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Passes on the first bytes as text.
    fn take_text(&mut self, bytes: usize) {
        let text = self.drop_front(bytes);
        self.out.push_text(&text);
    }

    fn take_call(&mut self, call: FoundCall, bytes: usize) {
        self.drop_front(bytes);
        self.out.call(call);
        self.state = ParseState::LineStart;
    }

    fn is_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool == name)
    }
}
