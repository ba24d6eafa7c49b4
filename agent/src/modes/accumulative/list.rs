//! The numbered list in `.g3/requirements.md`. A line that cannot be written is kept and written
//! with the next one; edits of the file are preserved.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use planner::requirement::read;

use agent_core::session::refuse_links;

const HEADING: &str = "# Project Requirements\n\n";

/// The list of requirements.
#[derive(Debug)]
pub(crate) struct RequirementList {
    cwd: PathBuf,
    /// The content of the file when it was last read.
    known: String,
    /// Lines that are not in the file yet.
    pending: Vec<String>,
}

impl RequirementList {
    /// Opens the list of a working directory. Fails if two requirements have the same number.
    pub(crate) fn open(cwd: &Path) -> Result<RequirementList> {
        refuse_links(cwd)?;
        let mut list =
            RequirementList { cwd: cwd.to_owned(), known: String::new(), pending: Vec::new() };
        list.look().or_fail(|| format!("cannot read {}", list.path().display()))?;
        match read(&list.known) {
            Err(planner::requirement::AmbiguousRequirements::Twice(id)) => {
                let file = list.path();
                Err(Failure::usage(format!("two requirements in {} are {id}", file.display()))
                    .hint("change one of the numbers"))
            }
            Err(planner::requirement::AmbiguousRequirements::Empty) | Ok(_) => Ok(list),
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.cwd.join(".g3/requirements.md")
    }

    /// Adds a requirement. On an error it is in the list, but not in the file.
    pub(crate) fn add(&mut self, text: &str) -> Result<()> {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // The file may have been edited in between.
        let looked = self.look();
        let number = self.numbers().max().unwrap_or(0) + 1;
        self.pending.push(format!("{number}. {words}\n"));
        let whole = self.whole();
        looked.and_then(|()| self.write(&whole)).map_err(|error| {
            Failure::failed(format!("cannot write {}", self.path().display()))
                .because(error)
                .hint("the requirement is kept, and written with the next one")
        })?;
        self.known = whole;
        self.pending.clear();
        Ok(())
    }

    /// Returns the id and the text of each requirement.
    pub(crate) fn items(&self) -> Vec<(String, String)> {
        let whole = self.whole();
        let all = if whole.trim() == HEADING.trim() {
            Vec::new()
        } else {
            read(&whole).unwrap_or_default()
        };
        all.into_iter().map(|it| (it.id, it.text)).collect()
    }

    /// Returns the text for a run: all requirements, with the newest marked.
    pub(crate) fn text(&self) -> String {
        let newest = self.items().pop().map(|(id, _)| {
            format!("\n{id} is the newest: this run is for it. The others must hold too.\n")
        });
        self.whole() + &newest.unwrap_or_default()
    }

    fn whole(&self) -> String {
        let mut text =
            if self.known.trim().is_empty() { HEADING.to_owned() } else { self.known.clone() };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.extend(self.pending.iter().map(String::as_str));
        text
    }

    /// Returns the numbers in use.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let items = self.items().into_iter();
        items.filter_map(|(id, _)| id.strip_prefix('R')?.parse().ok())
    }

    fn look(&mut self) -> io::Result<()> {
        match base::files::read_text(&self.path()) {
            Ok(text) => self.known = text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.known.clear(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let path = self.path();
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        base::files::keep_out_of_git(&self.cwd)?;
        base::files::replace(&path, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbering_continues_and_edits_are_preserved() {
        let dir = tempfile::tempdir().unwrap();
        let mut list = RequirementList::open(dir.path()).unwrap();
        assert!(list.items().is_empty());
        list.add("first\nthing").unwrap();
        assert_eq!(
            fs::read_to_string(list.path()).unwrap(),
            "# Project Requirements\n\n1. first thing\n"
        );
        fs::write(list.path(), "# Mine\n\nProse.\n\n4. four\n").unwrap();
        list.add("next").unwrap();
        let text = fs::read_to_string(list.path()).unwrap();
        assert_eq!(text, "# Mine\n\nProse.\n\n4. four\n5. next\n");
        let again = RequirementList::open(dir.path()).unwrap();
        let ids: Vec<String> = again.items().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["R4", "R5"]);
        assert!(
            again
                .text()
                .ends_with("R5 is the newest: this run is for it. The others must hold too.\n")
        );
    }

    #[test]
    fn a_requirement_that_cannot_be_written_is_kept_and_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let mut list = RequirementList::open(dir.path()).unwrap();
        fs::write(dir.path().join(".g3"), "in the way").unwrap();
        assert!(list.add("one").unwrap_err().to_string().contains("is kept"));
        assert_eq!(list.items().len(), 1);
        fs::remove_file(dir.path().join(".g3")).unwrap();
        list.add("two").unwrap();
        let text = fs::read_to_string(list.path()).unwrap();
        assert_eq!(text, "# Project Requirements\n\n1. one\n2. two\n");
    }
}
