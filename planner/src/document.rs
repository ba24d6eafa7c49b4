//! The text of `new_requirements.md` and `current_requirements.md`: two marked sections, and the
//! ids of the requirements. Unchanged parts are written back byte for byte.

use crate::requirement::{self, AmbiguousRequirements, Requirement};

/// The mark above the section of requirements to implement.
pub const CURRENT: &str = "{{CURRENT REQUIREMENTS}}";
/// The mark above the user's original text.
pub const ORIGINAL: &str =
    "{{ORIGINAL USER REQUIREMENTS -- THIS SECTION WILL BE IGNORED BY THE IMPLEMENTATION}}";

/// Puts the mark above the user's text; a text that has a mark already is unchanged.
pub fn mark_original(text: &str) -> String {
    let is_marked = [CURRENT, ORIGINAL].iter().any(|mark| find(text, mark).is_some());
    if is_marked { text.to_owned() } else { format!("{ORIGINAL}\n\n{text}") }
}

/// Returns the section of requirements to implement, up to the next mark; `None` if it is missing
/// or empty.
pub fn current(text: &str) -> Option<&str> {
    let (_, section) = section(text, CURRENT)?;
    (!section.trim().is_empty()).then_some(section)
}

/// Returns the section of the user's original text, if there is one.
pub fn original(text: &str) -> Option<&str> {
    section(text, ORIGINAL).map(|(_, section)| section)
}

/// Returns the text without a section and its mark.
pub fn remove_section(text: &str, mark: &str) -> String {
    let (Some(start), Some((start_of_section, section))) = (find(text, mark), section(text, mark))
    else {
        return text.to_owned();
    };
    format!("{}{}", &text[..start], &text[start_of_section + section.len()..])
}

/// Returns text in which no line is a mark, so that it can be put above a section.
pub fn escape_marks(text: &str) -> String {
    let lines =
        text.split_inclusive('\n').map(|line| match find(line, CURRENT).or(find(line, ORIGINAL)) {
            Some(_) => format!(" {}", line.trim_start_matches('\u{feff}')),
            None => line.to_owned(),
        });
    lines.collect()
}

/// Returns the text with a new section of requirements to implement; the user's original text is
/// kept.
pub fn with_current(text: &str, requirements: &str) -> String {
    let requirements = requirements.trim();
    match section(text, CURRENT) {
        Some((offset, old)) => {
            let (before, after) = (&text[..offset], &text[offset + old.len()..]);
            let gap = if after.is_empty() { "" } else { "\n" };
            format!("{before}\n{requirements}\n{gap}{after}")
        }
        None => format!("{CURRENT}\n\n{requirements}\n\n{}", mark_original(text)),
    }
}

/// Adds an id to each requirement of the section that has none, and returns the new text and the
/// requirements. All other text is unchanged.
pub fn add_ids(text: &str) -> Result<(String, Vec<Requirement>), AmbiguousRequirements> {
    let (offset, section) = section(text, CURRENT).unwrap_or((0, text));
    let requirements = requirement::read(section)?;
    let mut out = text.to_owned();
    // From the end, so that earlier offsets stay valid.
    for (start, id) in requirement::missing_ids(section)?.into_iter().rev() {
        out.insert_str(offset + start, &format!("{id}: "));
    }
    Ok((out, requirements))
}

/// Returns the offset of a section, and its text up to the next mark.
fn section<'t>(text: &'t str, mark: &str) -> Option<(usize, &'t str)> {
    let start = find(text, mark)? + mark.len();
    let line = text[start..].find('\n').map_or(text.len(), |offset| start + offset + 1);
    let rest = &text[line..];
    let next_marks = [CURRENT, ORIGINAL].iter().filter_map(|mark| find(rest, mark));
    Some((line, &rest[..next_marks.min().unwrap_or(rest.len())]))
}

/// Returns the offset of a mark at the start of a line.
fn find(text: &str, mark: &str) -> Option<usize> {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end().trim_start_matches('\u{feff}') == mark {
            return Some(offset + line.find('{').unwrap_or(0));
        }
        offset += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_sections_are_found() {
        let text = format!("{CURRENT}\n\n- do a\n\n{ORIGINAL}\n\nplease do a\n");
        assert_eq!(current(&text), Some("\n- do a\n\n"));
        assert_eq!(original(&text), Some("\nplease do a\n"));
        let other = format!("{ORIGINAL}\nplease\n{CURRENT}\r\n- b\r\n");
        assert_eq!((current(&other), original(&other)), (Some("- b\r\n"), Some("please\n")));
        for none in
            ["", "- x", &format!("{CURRENT}\n \n{ORIGINAL}\nx"), &format!("see {CURRENT}\n")]
        {
            assert_eq!(current(none), None, "{none}");
        }
    }

    #[test]
    fn a_section_is_removed_with_its_mark() {
        let text = format!("do it\n\n{CURRENT}\n\n- a\n{ORIGINAL}\nplease\n");
        assert_eq!(remove_section(&text, ORIGINAL), format!("do it\n\n{CURRENT}\n\n- a\n"));
        assert_eq!(remove_section(&text, CURRENT), format!("do it\n\n{ORIGINAL}\nplease\n"));
        assert_eq!(remove_section("do it", CURRENT), "do it");
    }

    #[test]
    fn a_mark_in_unmarked_text_opens_no_section() {
        for mark in [CURRENT, ORIGINAL] {
            let text = format!("see\n\u{feff}{mark}\r\n- not this\n{mark}");
            let text = format!("{}\n{CURRENT}\n- this\n", escape_marks(&text));
            assert_eq!(current(&text), Some("- this\n"), "{text}");
        }
        assert_eq!(escape_marks("a\n b\n"), "a\n b\n");
    }

    #[test]
    fn the_original_text_is_marked_once_and_kept() {
        let marked_once = mark_original("please\n");
        assert_eq!(mark_original(&marked_once), marked_once);
        assert_eq!(original(&marked_once), Some("\nplease\n"));
        let refined = with_current(&marked_once, "- R1: do it\n");
        assert_eq!(current(&refined).map(str::trim), Some("- R1: do it"));
        assert_eq!(original(&refined), Some("\nplease\n"));
        let again = with_current(&refined, "- R1: do it well");
        assert_eq!(current(&again).map(str::trim), Some("- R1: do it well"));
        assert_eq!((original(&again), again.matches("{{").count()), (Some("\nplease\n"), 2));
    }

    #[test]
    fn ids_are_added_to_items_and_nothing_else_changes() {
        let text = format!(
            "{CURRENT}\n\n# Shop\n1. **add** a cart\n- [ ] pay\n  - by card\n\n- R7: ship\n{ORIGINAL}\n- old\n"
        );
        let (out, all) = add_ids(&text).unwrap();
        let expected = format!(
            "{CURRENT}\n\n# Shop\n1. R1: **add** a cart\n- [ ] R2: pay\n  - by card\n\n- R7: ship\n{ORIGINAL}\n- old\n"
        );
        assert_eq!(out, expected);
        assert_eq!(all.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["R1", "R2", "R7"]);
        assert_eq!(add_ids(&out).unwrap().0, out, "a second time changes nothing");
        let prose = format!("{CURRENT}\nOne wish.\n");
        assert_eq!(add_ids(&prose).unwrap().0, prose, "prose has no place for an id");
    }

    proptest! {
        /// Assigned ids are the same when the text is parsed again; all other text is unchanged.
        #[test]
        fn numbering_is_stable(body in "([ ]{0,4}(R[0-9]: |[0-9][.)] |[-*] )?(\\[ \\] )?[a-z`]{0,6}\n){1,12}") {
            let text = format!("{CURRENT}\n{body}{ORIGINAL}\nmore\n");
            if let Ok((out, all)) = add_ids(&text) {
                let (again, read) = add_ids(&out).unwrap();
                prop_assert_eq!(&again, &out);
                let ids = |all: &[Requirement]| all.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
                prop_assert_eq!(ids(&read), ids(&all));
                let bare = |text: &str| {
                    (0..30).fold(text.to_owned(), |text, n| text.replace(&format!("R{n}: "), ""))
                };
                prop_assert_eq!(bare(&out), bare(&text));
            }
        }

        #[test]
        fn any_text_keeps_the_original_section(
            text in "[a-z{}\n -]{0,40}",
            requirements in "[a-z -]{1,20}",
        ) {
            let out = with_current(&mark_original(&text), &requirements);
            prop_assert_eq!(original(&out).map(str::trim), Some(text.trim()));
            prop_assert_eq!(current(&out).unwrap_or_default().trim(), requirements.trim());
        }
    }
}
