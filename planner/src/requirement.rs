//! Requirements and their ids: the list items of a text, each with a stable id.

use std::collections::BTreeSet;

/// A requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The id: as written in the text (`R7`), else `R` and a number.
    pub id: String,
    /// The text, with continuation lines joined.
    pub text: String,
}

/// The error for a text whose requirements are not distinguishable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmbiguousRequirements {
    /// The text is empty.
    Empty,
    /// Two items have this id.
    Twice(String),
}

/// A list item: with its id if the text has one, or its number.
#[derive(Debug)]
struct Item {
    id: Option<String>,
    number: Option<u32>,
    text: String,
    /// The byte offset of its text.
    offset: usize,
}

/// Parses the requirements of a text: every item of its outermost lists, numbered or not, in order.
/// Ids in the text are kept (`R7: …`, `- **R7** …`); item 3 of a numbered list becomes `R3` if that
/// is free. Text without a list is one requirement.
pub fn read(text: &str) -> Result<Vec<Requirement>, AmbiguousRequirements> {
    let mut items = parse_items(text);
    if items.is_empty() {
        let paragraph = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if paragraph.is_empty() {
            return Err(AmbiguousRequirements::Empty);
        }
        items.push(Item { id: None, number: None, text: paragraph, offset: 0 });
    }
    let ids = assign_ids(&items)?;
    let with_ids = items.into_iter().zip(ids);
    Ok(with_ids.map(|(item, id)| Requirement { id, text: item.text }).collect())
}

/// Returns the number of items in the outermost lists of a text; 0 for prose.
pub fn count_items(text: &str) -> usize {
    parse_items(text).len()
}

/// Returns the items without an id in the text: the byte offset of the item's text, and its
/// assigned id.
pub fn missing_ids(text: &str) -> Result<Vec<(usize, String)>, AmbiguousRequirements> {
    let items = parse_items(text);
    let with_ids = items.iter().zip(assign_ids(&items)?);
    Ok(with_ids.filter(|(item, _)| item.id.is_none()).map(|(item, id)| (item.offset, id)).collect())
}

/// Returns the id of each item: the one in the text, else its number, else the next free number.
fn assign_ids(items: &[Item]) -> Result<Vec<String>, AmbiguousRequirements> {
    let mut taken = BTreeSet::new();
    for id in items.iter().filter_map(|item| item.id.as_ref()) {
        if !taken.insert(id.clone()) {
            return Err(AmbiguousRequirements::Twice(id.clone()));
        }
    }
    let mut next = 1;
    let ids = items.iter().map(|item| {
        let numbered = item.number.map(|n| format!("R{n}")).filter(|id| !taken.contains(id));
        let id = item.id.clone().or(numbered).unwrap_or_else(|| {
            while taken.contains(&format!("R{next}")) {
                next += 1;
            }
            format!("R{next}")
        });
        taken.insert(id.clone());
        id
    });
    Ok(ids.collect())
}

/// Returns the items of the outermost lists. Lines that are indented below an item, or that follow
/// it without an empty line, belong to it; code blocks contain no items.
fn parse_items(text: &str) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let (mut fenced, mut open, mut gap, mut outermost) = (false, false, false, 0);
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        let trimmed = line.trim();
        let indent = line.len() - line.trim_start().len();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
        } else if fenced {
            // Code belongs to the item above it and is not an item.
        } else if trimmed.is_empty() {
            gap = true;
            continue;
        } else if let Some(mut item) =
            parse_item(trimmed).filter(|_| !open || indent < outermost + 2)
        {
            (open, gap, outermost) = (true, false, indent);
            item.offset += end - last_line(text, end).trim_start().len();
            items.push(item);
            continue;
        } else if trimmed.starts_with('#') || (gap && indent < outermost + 2) {
            // A heading or a separate paragraph ends the list.
            open = false;
        }
        gap = false;
        if let Some(last) = items.last_mut().filter(|_| open && !trimmed.is_empty()) {
            last.text.push(' ');
            last.text.push_str(trimmed);
        }
    }
    items.retain(|item| item.text.contains(char::is_alphanumeric));
    items
}

/// Returns the line that ends at this byte, including its newline.
fn last_line(text: &str, end: usize) -> &str {
    let before = text[..end].trim_end_matches(['\n', '\r']);
    let start = before.rfind('\n').map_or(0, |offset| offset + 1);
    &text[start..end]
}

/// Parses a line that starts an item, with the offset of its text in the line.
fn parse_item(text: &str) -> Option<Item> {
    if let Some((id, text)) = parse_id(text) {
        return Some(Item { id: Some(id), number: None, text, offset: 0 });
    }
    let (number, rest) = strip_marker(text)?;
    let rest =
        ["[ ] ", "[x] ", "[X] "].iter().find_map(|mark| rest.strip_prefix(mark)).unwrap_or(rest);
    let offset = text.len() - rest.trim_start().len();
    Some(match parse_id(rest) {
        Some((id, text)) => Item { id: Some(id), number: None, text, offset },
        None => Item { id: None, number, text: rest.trim().to_owned(), offset },
    })
}

/// Parses `- `, `* `, `+ `, `3. `, `3) ` at the start: the number, and the rest.
fn strip_marker(text: &str) -> Option<(Option<u32>, &str)> {
    if let Some(rest) = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark)) {
        return Some((None, rest.trim_start()));
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let rest = text[digits..].strip_prefix(['.', ')'])?;
    let number = text[..digits].parse().ok()?;
    let rest = rest.strip_prefix([' ', '\t'])?;
    Some((Some(number), rest.trim_start()))
}

/// Parses `R7: words`, `**R7** words`, `[R7] words`, `R7. words`: the id, and the words.
fn parse_id(text: &str) -> Option<(String, String)> {
    let bare = text.trim_start_matches(['*', '[', '(', '`', '_']);
    let decorated = bare.len() < text.len();
    let rest = bare.strip_prefix('R').or_else(|| bare.strip_prefix('r'))?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u32 = rest[..digits].parse().ok()?;
    let after = &rest[digits..];
    // Skips the closing marks of the id; anything after a space belongs to the words.
    let close = |c: char| match c {
        ':' | '.' | ')' | '-' | '–' | '—' => true,
        '*' | ']' | '`' | '_' => decorated,
        _ => false,
    };
    let text = after.trim_start_matches(close).trim_start();
    let text = ["- ", "– ", "— "].iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(text);
    let parted = decorated || after.starts_with([':', '.', ')']) || after.starts_with(" - ");
    (parted && text.len() < after.len()).then(|| (format!("R{number}"), text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<String> {
        let read = read(text).unwrap();
        read.into_iter().map(|it| format!("{}={}", it.id, it.text)).collect()
    }

    #[test]
    fn items_of_any_list_get_ids_in_order() {
        let text = "# Shop\nSome prose.\n\n1. add a cart\n2. empty it\n";
        assert_eq!(ids(text), ["R1=add a cart", "R2=empty it"]);
        assert_eq!(ids("- one\n* two\n+ [ ] three"), ["R1=one", "R2=two", "R3=three"]);
        assert_eq!(ids("1) a\n1) b\n1) c"), ["R1=a", "R2=b", "R3=c"]);
    }

    #[test]
    fn ids_in_the_text_are_kept() {
        let text = "R2: b\nR7 - g\n- **R4** d\n- [R5] e\n- something new\n1. first";
        assert_eq!(ids(text), ["R2=b", "R7=g", "R4=d", "R5=e", "R1=something new", "R3=first"]);
        assert_eq!(read("R1: a\nR1: b"), Err(AmbiguousRequirements::Twice("R1".into())));
        assert_eq!(ids("- R1: `a.py` has **b**\n- **R2:** `c`"), ["R1=`a.py` has **b**", "R2=`c`"]);
        assert_eq!(ids("- R2D2 must beep\n- RFC 7 holds"), ["R1=R2D2 must beep", "R2=RFC 7 holds"]);
    }

    #[test]
    fn lines_below_an_item_belong_to_it() {
        let text = "1. log in\n   - by name\n   - by key\n   and out\n\n   more of one\n2. pay\nsoon\n\
                    \nProse at the end.\n";
        assert_eq!(ids(text), ["R1=log in - by name - by key and out more of one", "R2=pay soon"]);
        let code = "- keep the format\n```\n- not an item\n```\n- print it\n";
        assert_eq!(ids(code), ["R1=keep the format ``` - not an item ```", "R2=print it"]);
    }

    #[test]
    fn text_without_a_list_is_one_requirement() {
        assert_eq!(ids("Write a\nsmall shop.\n"), ["R1=Write a small shop."]);
        assert_eq!(read(" \n"), Err(AmbiguousRequirements::Empty));
    }

    proptest::proptest! {
        /// For any input: ids are unique, and a text with words has at least one requirement.
        #[test]
        fn every_id_is_unique(text in "([ ]{0,4}(R[0-9] ?:?|[0-9][.)]|[-*#])? ?[a-z`]{0,6}\n){0,12}") {
            match read(&text) {
                Ok(all) => {
                    let ids: BTreeSet<&str> = all.iter().map(|it| it.id.as_str()).collect();
                    proptest::prop_assert_eq!(ids.len(), all.len());
                    proptest::prop_assert!(!all.is_empty());
                }
                Err(AmbiguousRequirements::Empty) => proptest::prop_assert!(text.trim().is_empty()),
                Err(AmbiguousRequirements::Twice(id)) => proptest::prop_assert!(text.to_uppercase().matches(&id).count() > 1),
            }
        }
    }
}
