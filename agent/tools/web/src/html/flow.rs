//! Running text: blanks are one, lines break where they must.

/// Text that grows.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    text: String,
    /// Within a line a blank at the beginning counts; at the beginning of a block it does not.
    is_inline: bool,
}

impl Flow {
    /// A flow that begins within a line.
    pub(crate) fn inline() -> Flow {
        Flow { text: String::new(), is_inline: true }
    }

    /// Appends words; any number of blanks between them is one.
    pub(crate) fn words(&mut self, text: &str) {
        for c in text.chars() {
            if !c.is_ascii_whitespace() {
                self.text.push(c);
            } else if self.takes_blank() {
                self.text.push(' ');
            }
        }
    }

    fn takes_blank(&self) -> bool {
        match self.text.chars().next_back() {
            None => self.is_inline,
            Some(last) => !last.is_whitespace(),
        }
    }

    /// Appends a text as it is.
    pub(crate) fn verbatim(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends what belongs into the line, its outer blanks outside of the marks.
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

    /// Ends the line, so that at least so many newlines stand before what comes.
    pub(crate) fn breaks(&mut self, count: usize) {
        self.text.truncate(self.text.trim_end_matches(' ').len());
        let there = self.text.len() - self.text.trim_end_matches('\n').len();
        if !self.text.is_empty() {
            (there..count).for_each(|_| self.text.push('\n'));
        }
    }

    /// Appends a block with so many newlines around it.
    pub(crate) fn block(&mut self, text: &str, breaks: usize) {
        if !text.is_empty() {
            self.breaks(breaks);
            self.text.push_str(text);
            self.breaks(breaks);
        }
    }

    /// Whether the last line is empty.
    pub(crate) fn is_at_line_start(&self) -> bool {
        self.text.is_empty() || self.text.ends_with('\n')
    }

    /// What was gathered.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
