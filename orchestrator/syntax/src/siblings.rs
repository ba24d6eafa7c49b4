//! The entries of a list, as text.

use std::ops::Range;

use tree_sitter::Node;

use crate::alignment::EntryKey;
use crate::constructs::{Construct, MergeLanguage, Separator};
use crate::names;

/// An entry: what belongs to it, from its comments to the end of its line.
#[derive(Clone, Debug)]
pub(crate) struct Sibling<'t> {
    /// The blank lines before it, or the space before it in a list on one line.
    pub lead: &'t str,
    /// Its indentation; `None` if it begins on the line that opens the list.
    pub indent: Option<&'t str>,
    /// The range of its comments, attributes and itself.
    pub head: Range<usize>,
    /// The rest of its line after the separator.
    pub tail: &'t str,
    /// Whether a comma follows it.
    pub has_comma: bool,
    /// Its nodes.
    pub nodes: Vec<Node<'t>>,
    /// What identifies it.
    pub key: EntryKey,
    /// Whether it is more than a comment.
    pub has_entry: bool,
    /// Whether both sides may add such an entry at the same place.
    pub may_add: bool,
    /// Its position among entries that come first in a file.
    pub rank: usize,
}

/// The entries of a list.
#[derive(Clone, Debug)]
pub(crate) struct SiblingList<'t> {
    /// From the first byte after what opens the list to what closes it.
    pub range: Range<usize>,
    /// The text before the first entry.
    pub prefix: &'t str,
    /// The text after the last entry.
    pub suffix: &'t str,
    /// The indentation of the first line, which is outside of the range.
    pub outer_indent: &'t str,
    /// Whether the list is on one line.
    pub is_inline: bool,
    /// The entries.
    pub siblings: Vec<Sibling<'t>>,
}

/// A part of a list, before entries are formed.
#[derive(Clone, Debug)]
struct Element<'t> {
    node: Node<'t>,
    end: usize,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Entry,
    /// An attribute: it belongs to the next entry.
    Attached,
    Comment,
}

/// Returns the kinds of nodes that are comments.
pub(crate) fn is_comment(node: Node<'_>) -> bool {
    node.is_extra() || node.kind().ends_with("comment")
}

/// Returns the children of a list that are entries; `None` if it has other parts.
pub(crate) fn children<'t>(
    node: Node<'t>,
    construct: &Construct,
) -> Option<(Range<usize>, Vec<Node<'t>>)> {
    let mut cursor = node.walk();
    let all: Vec<Node<'t>> = node.children(&mut cursor).collect();
    let opening = construct.open.map(|kind| all.iter().position(|it| it.kind() == kind));
    let (first, start) = match opening {
        None => (0, node.start_byte()),
        Some(found) => (found? + 1, all[found?].end_byte()),
    };
    let is_closing = |it: &Node<'_>| construct.close.contains(&it.kind());
    let (last, end) = match construct.close.is_empty() {
        true => (all.len(), node.end_byte()),
        false => {
            let found = first + all[first..].iter().position(is_closing)?;
            (found, all[found].start_byte())
        }
    };
    Some((start..end, all[first..last].to_vec()))
}

impl<'t> SiblingList<'t> {
    /// Reads a list; `None` if it is not written as one entry a line, or all entries on one line.
    pub(crate) fn read(
        language: &MergeLanguage,
        construct: &Construct,
        node: Node<'t>,
        text: &'t str,
    ) -> Option<SiblingList<'t>> {
        let (mut range, children) = children(node, construct)?;
        let mut outer_indent = "";
        if node.parent().is_none() {
            range = 0..text.len();
        } else if construct.open.is_none() {
            let line = text[..range.start].rfind('\n').map_or(0, |n| n + 1);
            outer_indent = &text[line..range.start];
            if !outer_indent.trim().is_empty() {
                return None;
            }
        }
        if construct.close.is_empty() && node.parent().is_some() {
            range.end = range.start + text[range.clone()].trim_end().len();
        }
        let mut elements = Vec::new();
        // The positions of commas and semicolons.
        let mut separators = Vec::new();
        for child in children {
            let end = child.start_byte() + text[child.byte_range()].trim_end().len();
            match child.kind() {
                "," | ";" => separators.push(child.start_byte()),
                kind if kind.trim().is_empty() => {}
                // `public:` in C++.
                ":" if elements.last().is_some_and(|it: &Element<'t>| {
                    it.node.kind() == "access_specifier" && it.end == child.start_byte()
                }) =>
                {
                    elements.iter_mut().next_back().map(|it| it.end = end)?;
                }
                _ if !child.is_named() => return None,
                _ if is_comment(child) => {
                    elements.push(Element { node: child, end, role: Role::Comment });
                }
                kind if language.attached.contains(&kind) => {
                    elements.push(Element { node: child, end, role: Role::Attached });
                }
                _ => {
                    let mut end = end;
                    // The comma of a match arm is a part of it.
                    if construct.separator == Separator::CommaOrBrace
                        && text[child.start_byte()..end].ends_with(',')
                    {
                        end -= 1;
                        separators.push(end);
                    }
                    elements.push(Element { node: child, end, role: Role::Entry });
                }
            }
        }
        separators.sort_unstable();
        let is_line_list = construct.separator == Separator::Line;
        let is_inline = !is_line_list && !text[range.clone()].contains('\n');
        if construct.open.is_some() {
            // A comment on the line that opens the list.
            while let Some(first) = elements.first()
                && first.role == Role::Comment
                && !is_inline
                && !text[range.start..first.node.start_byte()].contains('\n')
            {
                range.start = first.end;
                elements.remove(0);
            }
        }
        let groups = group(elements, text, is_inline);
        let reader = Reader { language, construct, text, is_inline, separators };
        let mut list = reader.read(range, &groups, !outer_indent.is_empty())?;
        if let Some(first) = list.siblings.first_mut()
            && !outer_indent.is_empty()
        {
            first.indent = Some(outer_indent);
        }
        list.outer_indent = outer_indent;
        Some(list)
    }

    /// Returns the keys of the entries.
    pub(crate) fn keys(&self) -> Vec<EntryKey> {
        self.siblings.iter().map(|it| it.key.clone()).collect()
    }

    /// Returns whether a comma follows the last entry.
    pub(crate) fn ends_with_comma(&self) -> bool {
        self.siblings.iter().rfind(|it| it.has_entry).is_some_and(|it| it.has_comma)
    }
}

/// Forms entries from elements: those that share a line, and comments and attributes with what
/// follows them.
fn group<'t>(elements: Vec<Element<'t>>, text: &str, is_inline: bool) -> Vec<Vec<Element<'t>>> {
    let mut groups: Vec<Vec<Element<'t>>> = Vec::new();
    for element in elements {
        let Some(current) = groups.last_mut() else {
            groups.push(vec![element]);
            continue;
        };
        let end = current.last().map_or(0, |it| it.end);
        let between = &text[end.min(element.node.start_byte())..element.node.start_byte()];
        let breaks = between.matches('\n').count();
        let has_entry = current.iter().any(|it| it.role == Role::Entry);
        let is_pending = current.iter().any(|it| it.role == Role::Attached);
        let joins = match (is_inline, has_entry) {
            (true, true) => element.role == Role::Comment,
            (true, false) => true,
            (false, true) => breaks == 0,
            // A comment before a blank line is an entry of its own.
            (false, false) => breaks <= 1 || is_pending,
        };
        match joins {
            true => current.push(element),
            false => groups.push(vec![element]),
        }
    }
    groups
}

/// Reads the entries of a list from its elements.
struct Reader<'l, 't> {
    language: &'l MergeLanguage,
    construct: &'l Construct,
    text: &'t str,
    is_inline: bool,
    separators: Vec<usize>,
}

impl<'t> Reader<'_, 't> {
    fn read(
        &self,
        range: Range<usize>,
        groups: &[Vec<Element<'t>>],
        is_indented: bool,
    ) -> Option<SiblingList<'t>> {
        let text = self.text;
        let mut siblings: Vec<Sibling<'t>> = Vec::new();
        let mut prefix = &text[range.clone()];
        let mut position = range.start;
        for (n, elements) in groups.iter().enumerate() {
            let start = elements.first()?.node.start_byte();
            let before = text.get(position..start)?;
            let next = groups.get(n + 1).and_then(|it| it.first());
            let limit = next.map_or(range.end, |it| it.node.start_byte());
            let (mut sibling, end) = self.sibling(elements, limit)?;
            if !before.trim().is_empty() {
                return None;
            }
            let (line, indent) = match before.rfind('\n') {
                Some(at) => before.split_at(at + 1),
                None => ("", before),
            };
            match (n, self.is_inline) {
                (0, true) => prefix = before,
                (0, false) if line.is_empty() => {
                    let starts_line = start == 0 || text[..range.start].ends_with('\n');
                    (prefix, sibling.indent) = match starts_line || is_indented {
                        true => ("", Some(indent)),
                        false => (before, None),
                    };
                }
                // At the top of a file, the first line may be blank.
                (0, false) => {
                    let first = match range.start {
                        0 => 0,
                        _ => line.find('\n').map_or(0, |at| at + 1),
                    };
                    (prefix, sibling.lead) = line.split_at(first);
                    sibling.indent = Some(indent);
                }
                (_, true) => sibling.lead = before,
                (_, false) => {
                    sibling.lead = line.strip_prefix('\n')?;
                    sibling.indent = Some(indent);
                }
            }
            siblings.push(sibling);
            position = end;
        }
        let suffix = if groups.is_empty() { "" } else { text.get(position..range.end)? };
        if !suffix.trim().is_empty() || (groups.is_empty() && !prefix.trim().is_empty()) {
            return None;
        }
        let (outer_indent, is_inline) = ("", self.is_inline);
        Some(SiblingList { range, prefix, suffix, outer_indent, is_inline, siblings })
    }

    /// Reads an entry that ends before `limit`, and its end.
    fn sibling(&self, elements: &[Element<'t>], limit: usize) -> Option<(Sibling<'t>, usize)> {
        let text = self.text;
        let start = elements.first()?.node.start_byte();
        let entries: Vec<&Element<'t>> =
            elements.iter().filter(|it| it.role == Role::Entry).collect();
        let has_entry = !entries.is_empty();
        let last = elements.last()?.end;
        let entry_end = entries.last().map_or(last, |it| it.end);
        let mut following = self.separators.iter().filter(|at| (entry_end..limit).contains(*at));
        let separator = following.next().copied();
        if following.next().is_some() {
            return None;
        }
        let is_comma = separator.is_some_and(|at| text[at..].starts_with(','));
        let (head_end, tail_start) = match (self.construct.separator, separator) {
            (Separator::Line, Some(at)) => (at + 1, at + 1),
            (Separator::Line, None) => (entry_end, entry_end),
            (Separator::Comma | Separator::CommaOrBrace, Some(at)) if is_comma => (at, at + 1),
            (Separator::Comma | Separator::CommaOrBrace, Some(_)) => return None,
            (Separator::Comma | Separator::CommaOrBrace, None) => (entry_end, entry_end),
        };
        let end = last.max(tail_start);
        // Spaces at the end of the line belong to it.
        let rest = &text[end..limit];
        let spaces = match rest.find('\n') {
            Some(at) if rest[..at].trim().is_empty() => at,
            Some(_) | None => 0,
        };
        let end = end + spaces;
        let tail = &text[tail_start..end];
        let names = entries.iter().flat_map(|it| names::of(it.node, text)).collect();
        let key = EntryKey {
            text: format!("{}\n{tail}", &text[start..head_end]),
            names,
            kinds: elements.iter().map(|it| it.node.kind_id()).collect(),
        };
        let rank = entries.first().map_or(0, |it| self.language.rank(it.node.kind()));
        let sibling = Sibling {
            lead: "",
            indent: Some(""),
            head: start..head_end,
            tail,
            has_comma: is_comma,
            nodes: elements.iter().map(|it| it.node).collect(),
            key,
            has_entry,
            may_add: entries.iter().all(|it| self.construct.may_add(it.node)),
            rank,
        };
        Some((sibling, end))
    }
}
