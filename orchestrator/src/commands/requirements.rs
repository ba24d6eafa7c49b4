//! `--requirements FILE`: the requirements that sessions must meet, read before anything is
//! started.

use std::path::Path;

use base::failure::{Failure, Result};
use planner::document;
use planner::requirement::{self, AmbiguousRequirements, Requirement};

use studio_core::session::spec::SessionSpec;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The requirements of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requirements {
    /// The first heading, else the first requirement.
    pub title: String,
    /// The text of all requirements with ids.
    pub contract: String,
    /// The ids.
    pub ids: Vec<String>,
}

impl Requirements {
    /// Adds the requirements to a session.
    pub(crate) fn apply_to(&self, spec: &mut SessionSpec) {
        spec.plan_ref.contract = Some(self.contract.clone());
        spec.plan_ref.requirements.clone_from(&self.ids);
    }
}

/// Reads a file: the section below its mark, else the whole text.
pub(crate) fn read(path: &Path) -> Result<Requirements> {
    let invalid = |what: String| {
        Failure::usage(format!("cannot read the requirements in {}", path.display()))
            .because(what)
            .hint("write one list item per requirement: `- R1: what must hold`")
    };
    let bytes = base::files::read_bounded(path, MAX_BYTES).map_err(|e| invalid(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        invalid(format!("{}:{line}: it is not UTF-8", path.display()))
    })?;
    parse(&text).map_err(|mistake| match mistake {
        Mistake { line: Some(line), what } => invalid(format!("{}:{line}: {what}", path.display())),
        Mistake { line: None, what } => invalid(what),
    })
}

/// Describes the error in requirements.
pub(crate) fn mistake(error: &AmbiguousRequirements) -> String {
    match error {
        AmbiguousRequirements::Empty => "there are none".to_owned(),
        AmbiguousRequirements::Twice(id) => format!("the id {id} is used twice"),
    }
}

/// An error in a text, and its line.
#[derive(Debug, PartialEq, Eq)]
struct Mistake {
    line: Option<usize>,
    what: String,
}

fn parse(text: &str) -> std::result::Result<Requirements, Mistake> {
    let text = text.trim_start_matches('\u{feff}');
    let file_error = |what: &str| Mistake { line: None, what: what.to_owned() };
    let (offset, section) = match document::current(text) {
        Some(section) => (text.find(section).unwrap_or(0), section),
        None if document::original(text).is_some() => {
            return Err(file_error("there is nothing below {{CURRENT REQUIREMENTS}}"));
        }
        None => (0, text),
    };
    let (contract, all) = document::add_ids(section).map_err(|error| match error {
        AmbiguousRequirements::Empty => file_error("it is empty"),
        AmbiguousRequirements::Twice(id) => {
            let mut lines = (1..).zip(section.lines()).filter(|(_, line)| defines(line, &id));
            let line = lines.nth(1).map(|(n, _)| n + text[..offset].matches('\n').count());
            Mistake { line, what: format!("the id {id} is used twice") }
        }
    })?;
    let title = heading(section).or_else(|| all.first().map(|it| it.text.clone()));
    let ids = all.into_iter().map(|Requirement { id, .. }| id).collect();
    let contract = contract.trim_matches(['\n', '\r']).trim_end().to_owned();
    Ok(Requirements { title: title.unwrap_or_default(), contract, ids })
}

/// Returns whether a line is an item with this id.
fn defines(line: &str, id: &str) -> bool {
    let is_it = |all: Vec<Requirement>| all.first().is_some_and(|it| it.id == id);
    requirement::read(line).is_ok_and(is_it)
        && requirement::missing_ids(line).is_ok_and(|items| items.is_empty())
}

fn heading(text: &str) -> Option<String> {
    let mut lines = text.lines().take_while(|line| !line.starts_with("```"));
    let title = lines.find_map(|line| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len() && text.starts_with(' ')).then(|| text.trim())
    });
    title.filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marked_section_is_used_and_every_requirement_gets_an_id() {
        let text = "# Wish\n{{CURRENT REQUIREMENTS}}\n\n# A shop\n- sell\n- R7: ship\n\n\
                    {{ORIGINAL USER REQUIREMENTS -- THIS SECTION WILL BE IGNORED BY THE IMPLEMENTATION}}\n- a shop!\n";
        let read = parse(text).unwrap();
        assert_eq!(read.title, "A shop");
        assert_eq!(read.contract, "# A shop\n- R1: sell\n- R7: ship");
        assert_eq!(read.ids, ["R1", "R7"]);
        let plain = parse("\u{feff}1. print dates\n2. as RFC 3339\n").unwrap();
        assert_eq!((plain.title.as_str(), plain.ids.len()), ("print dates", 2));
        let prose = parse("Print dates\nas RFC 3339.\n").unwrap();
        assert_eq!(prose.title, "Print dates as RFC 3339.");
        assert_eq!(
            (prose.contract.as_str(), &prose.ids[..]),
            ("Print dates\nas RFC 3339.", &["R1".to_owned()][..])
        );
    }

    #[test]
    fn errors_are_reported_with_their_lines() {
        let twice = parse("x\n{{CURRENT REQUIREMENTS}}\n- R1: a\n- b\n- R1: c\n").unwrap_err();
        assert_eq!((twice.line, twice.what.contains("R1")), (Some(5), true));
        assert_eq!(parse(" \n").unwrap_err().what, "it is empty");
        let marked = document::mark_original("a wish");
        assert!(parse(&marked).unwrap_err().what.contains("nothing below"));
    }
}
