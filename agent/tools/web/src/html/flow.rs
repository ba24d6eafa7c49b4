//! Running text: white space is collapsed, as browsers do it, and blocks begin on new lines.

/// The text of an element so far.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    text: String,
    /// Whether a space at the beginning counts: it does within a line, not at the start of a block.
    is_inline: bool,
}

impl Flow {
    /// An empty text within a line.
    pub(crate) fn inline() -> Flow {
        Flow { text: String::new(), is_inline: true }
    }

    /// Appends text with its white space collapsed.
    pub(crate) fn words(&mut self, text: &str) {
        for c in text.chars() {
            if !c.is_ascii_whitespace() {
                self.text.push(c);
            } else if self.takes_space() {
                self.text.push(' ');
            }
        }
    }

    fn takes_space(&self) -> bool {
        match self.text.chars().next_back() {
            None => self.is_inline,
            Some(last) => !last.is_whitespace(),
        }
    }

    /// Appends text unchanged.
    pub(crate) fn verbatim(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends text between two marks, with its leading and trailing space outside of them.
    pub(crate) fn marked(&mut self, text: &str, before: &str, after: &str) {
        let inner = text.trim();
        if text.starts_with(char::is_whitespace) {
            self.words(" ");
        }
        if !inner.is_empty() {
            self.text.extend([before, inner, after]);
        }
        if text.ends_with(char::is_whitespace) {
            self.words(" ");
        }
    }

    /// Ends the line, with at least `count` newlines before the following text.
    pub(crate) fn breaks(&mut self, count: usize) {
        self.text.truncate(self.text.trim_end_matches(' ').len());
        let newlines = self.text.len() - self.text.trim_end_matches('\n').len();
        if !self.text.is_empty() {
            (newlines..count).for_each(|_| self.text.push('\n'));
        }
    }

    /// Appends a block with at least `breaks` newlines before and after it.
    pub(crate) fn block(&mut self, text: &str, breaks: usize) {
        if !text.is_empty() {
            self.breaks(breaks);
            self.text.push_str(text);
            self.breaks(breaks);
        }
    }

    /// Whether the text ends at the start of a line.
    pub(crate) fn is_at_line_start(&self) -> bool {
        self.text.is_empty() || self.text.ends_with('\n')
    }

    /// The whole text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
