//! The open elements. Pages close them in any order, or not at all.

use super::Form;
use super::frame::{Frame, Kind};
use super::table::Table;

/// The largest number of open elements; of deeper ones only the text is kept.
const MAX_DEPTH: usize = 60;

/// The open elements, outermost first.
pub(crate) struct Stack {
    form: Form,
    root: Frame,
    frames: Vec<Frame>,
}

impl Stack {
    /// An empty page.
    pub(crate) fn new(form: Form) -> Stack {
        Stack { form, root: Frame::block("", Kind::Root), frames: Vec::new() }
    }

    fn top(&mut self) -> &mut Frame {
        self.frames.last_mut().unwrap_or(&mut self.root)
    }

    /// Whether text is preformatted.
    pub(crate) fn in_pre(&self) -> bool {
        self.frames.last().is_some_and(|frame| matches!(frame.kind, Kind::Pre(_)))
    }

    /// Appends text.
    pub(crate) fn text(&mut self, text: &str) {
        if self.in_pre() {
            self.top().flow.verbatim(text);
        } else {
            self.top().flow.words(text);
        }
    }

    /// Handles a tag within preformatted text.
    pub(crate) fn start_in_pre(&mut self, name: &str, language: Option<String>) {
        let top = self.top();
        match name {
            "br" => top.flow.verbatim("\n"),
            "div" | "p" | "li" | "tr" if !top.flow.is_at_line_start() => top.flow.verbatim("\n"),
            "code" => {
                if let Kind::Pre(known) = &mut top.kind
                    && known.is_none()
                {
                    *known = language;
                }
            }
            _ => {}
        }
    }

    /// Opens an element.
    pub(crate) fn push(&mut self, frame: Frame) {
        if self.frames.len() < MAX_DEPTH {
            self.frames.push(frame);
        }
    }

    /// Opens a block element.
    pub(crate) fn push_block(&mut self, frame: Frame) {
        self.breaks(2);
        self.push(frame);
    }

    /// Opens a list.
    pub(crate) fn push_list(&mut self, tag: &'static str, first: Option<u64>) {
        self.push(Frame::block(tag, Kind::List(first)));
    }

    /// Opens an item of the nearest list, and closes the item before it.
    pub(crate) fn push_item(&mut self) {
        self.close("li");
        let marker = match self.frames.last_mut().map(|frame| &mut frame.kind) {
            Some(Kind::List(Some(number))) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            Some(_) | None => "- ".to_owned(),
        };
        self.push(Frame::block("li", Kind::Item(marker)));
    }

    /// Opens a table.
    pub(crate) fn push_table(&mut self) {
        self.push(Frame::block("table", Kind::Table(Table::default())));
    }

    /// Begins a row of the nearest table, and closes the cell before it.
    pub(crate) fn row(&mut self) {
        self.close("td");
        match &mut self.top().kind {
            Kind::Table(table) => table.begin_row(),
            _ => self.breaks(1),
        }
    }

    /// Opens a cell of the nearest table, and closes the cell before it.
    pub(crate) fn cell(&mut self) {
        self.close("td");
        if matches!(self.top().kind, Kind::Table(_)) {
            self.push(Frame::block("td", Kind::Cell));
        } else {
            self.text(" ");
        }
    }

    /// Appends an image.
    pub(crate) fn image(&mut self, alt: &str, source: Option<&str>) {
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        match (self.form, source) {
            (Form::Markdown, Some(source)) => {
                self.top().flow.verbatim(&format!("![{alt}]({source})"));
            }
            (Form::Markdown | Form::Text, _) => self.top().flow.words(&alt),
        }
    }

    /// Appends a line break.
    pub(crate) fn line(&mut self) {
        if self.top().holds_one_line() {
            self.text(" ");
        } else {
            let flow = &mut self.top().flow;
            flow.breaks(1);
        }
    }

    /// Appends a thematic break.
    pub(crate) fn rule(&mut self) {
        match self.form {
            Form::Markdown => self.top().flow.block("---", 2),
            Form::Text => self.breaks(2),
        }
    }

    /// Ends the line, with at least `count` newlines before the following text.
    pub(crate) fn breaks(&mut self, count: usize) {
        self.top().flow.breaks(count);
    }

    /// Closes the nearest open element with this name and all elements in it, unless a boundary such
    /// as a table cell is between.
    pub(crate) fn close(&mut self, tag: &str) {
        let is_inline = matches!(tag, "a" | "b" | "i" | "del" | "code");
        let stops = |frame: &Frame| match frame.kind {
            Kind::Table(_) => true,
            Kind::Cell => tag != "table",
            Kind::List(_) => is_inline || tag == "li",
            Kind::Item(_) | Kind::Quote | Kind::Pre(_) => is_inline,
            Kind::Root | Kind::Marked(_) | Kind::Code | Kind::Link(_) | Kind::Heading(_) => false,
        };
        let open = self.frames.iter().rposition(|frame| frame.tag == tag || stops(frame));
        if let Some(open) = open.filter(|index| self.frames[*index].tag == tag) {
            while self.frames.len() > open {
                self.pop();
            }
        }
    }

    fn pop(&mut self) {
        if let Some(frame) = self.frames.pop() {
            let form = self.form;
            frame.close_into(self.top(), form);
        }
    }

    /// The text of the page; closes the elements that are still open.
    pub(crate) fn finish(mut self) -> String {
        while !self.frames.is_empty() {
            self.pop();
        }
        self.root.flow.into_text().trim().to_owned()
    }
}
