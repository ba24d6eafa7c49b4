//! Tables: rows of cells, or paragraphs if the table is used for layout only.

use super::Form;
use super::frame::in_line;

/// A table with its rows so far.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Begins a new row.
    pub(crate) fn begin_row(&mut self) {
        if self.rows.last().is_none_or(|row| !row.is_empty()) {
            self.rows.push(Vec::new());
        }
    }

    /// Adds a cell.
    pub(crate) fn add(&mut self, cell: &str) {
        if self.rows.is_empty() {
            self.begin_row();
        }
        if let Some(row) = self.rows.last_mut() {
            row.push(cell.to_owned());
        }
    }

    fn rows(&self) -> impl Iterator<Item = &Vec<String>> {
        self.rows.iter().filter(|row| row.iter().any(|cell| !cell.is_empty()))
    }

    /// The whole table on one line.
    pub(crate) fn in_line(&self) -> String {
        self.rows().flatten().map(|cell| in_line(cell)).collect::<Vec<_>>().join(" ")
    }

    /// The table in the given form.
    pub(crate) fn render(&self, form: Form) -> String {
        let is_layout = self.rows().all(|row| row.len() < 2)
            || self.rows().flatten().any(|cell| cell.contains("\n\n"));
        if is_layout {
            let cells = self.rows().flatten().filter(|cell| !cell.is_empty());
            return cells.cloned().collect::<Vec<_>>().join("\n\n");
        }
        let mut lines: Vec<String> = self.rows().map(|row| line(row, form)).collect();
        if form == Form::Markdown
            && let Some(first) = self.rows().next()
        {
            lines.insert(1, format!("|{}", " --- |".repeat(first.len())));
        }
        lines.join("\n")
    }
}

fn line(row: &[String], form: Form) -> String {
    let cells = row.iter().map(|cell| in_line(cell));
    match form {
        Form::Text => cells.collect::<Vec<_>>().join("\t"),
        Form::Markdown => {
            let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |", cells.join(" | "))
        }
    }
}
