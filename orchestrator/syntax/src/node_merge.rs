//! Merges nodes of syntax trees: by lines as git does, and lists that conflict entry by entry.

use std::ops::Range;

use tree_sitter::Node;

use crate::alignment::{self, EntryKey, Fate};
use crate::constructs::MergeLanguage;
use crate::list_merge;
use crate::siblings::SiblingList;

/// Maximum depth of nodes.
const MAX_DEPTH: usize = 200;

/// A node of one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'t> {
    /// The text of the version.
    pub text: &'t str,
    /// The node.
    pub node: Node<'t>,
}

impl<'t> Side<'t> {
    fn own_text(&self) -> &'t str {
        &self.text[self.range()]
    }

    fn range(&self) -> Range<usize> {
        // The node of a file does not have the blank lines at its start and end.
        match self.node.parent() {
            None => 0..self.text.len(),
            Some(_) => self.node.byte_range(),
        }
    }

    fn part(&self) -> NodeRange<'t> {
        let mut cursor = self.node.walk();
        let nodes = self.node.children(&mut cursor).collect();
        NodeRange { text: self.text, range: self.range(), nodes }
    }
}

/// Nodes of one version, and the text around them.
#[derive(Clone, Debug)]
pub(crate) struct NodeRange<'t> {
    /// The text of the version.
    pub text: &'t str,
    /// The range of the nodes and the text around them.
    pub range: Range<usize>,
    /// The nodes.
    pub nodes: Vec<Node<'t>>,
}

impl<'t> NodeRange<'t> {
    fn own_text(&self) -> &'t str {
        &self.text[self.range.clone()]
    }

    fn side(&self, index: usize) -> Side<'t> {
        Side { text: self.text, node: self.nodes[index] }
    }

    /// Returns the keys of the nodes.
    fn keys(&self) -> Vec<EntryKey> {
        let key = |node: &Node<'t>| EntryKey {
            text: self.text[node.byte_range()].to_owned(),
            names: Vec::new(),
            kinds: vec![node.kind_id()],
        };
        self.nodes.iter().map(key).collect()
    }

    /// Returns the text with other texts in place of some nodes.
    fn replaced(&self, replacements: &[(usize, &str)]) -> String {
        let mut replaced = String::new();
        let mut position = self.range.start;
        for (index, text) in replacements {
            let node = self.nodes[*index];
            replaced.push_str(&self.text[position..node.start_byte()]);
            replaced.push_str(text);
            position = node.end_byte();
        }
        replaced.push_str(&self.text[position..self.range.end]);
        replaced
    }
}

/// Returns the merge of values of which at most one side has changed.
pub(crate) fn merge_value<T: PartialEq>(base: T, ours: T, theirs: T) -> Option<T> {
    if ours == base || ours == theirs {
        return Some(theirs);
    }
    (theirs == base).then_some(ours)
}

/// Merges texts by lines as git does; `None` if they conflict.
fn merge_lines(base: &str, ours: &str, theirs: &str) -> Option<String> {
    // The last line of each is complete.
    let texts = [base, ours, theirs].map(|text| format!("{text}\n"));
    let [base, ours, theirs] = texts.each_ref().map(|text| {
        let mut input = git2::MergeFileInput::new();
        input.content(text.as_bytes());
        input
    });
    let result = git2::merge_file(&base, &ours, &theirs, None).ok()?;
    if !result.is_automergeable() {
        return None;
    }
    let merged = std::str::from_utf8(result.content()).ok()?;
    merged.strip_suffix('\n').map(str::to_owned)
}

/// Merges versions of a text without its syntax.
fn merge_text(base: &str, ours: &str, theirs: &str) -> Option<String> {
    match merge_value(base, ours, theirs) {
        Some(merged) => Some(merged.to_owned()),
        None => merge_lines(base, ours, theirs),
    }
}

/// Merges versions of a node.
pub(crate) fn merge_nodes(
    language: &MergeLanguage,
    base: Side<'_>,
    ours: Side<'_>,
    theirs: Side<'_>,
    depth: usize,
) -> Option<String> {
    if let Some(merged) = merge_text(base.own_text(), ours.own_text(), theirs.own_text()) {
        return Some(merged);
    }
    if depth >= MAX_DEPTH || [ours, theirs].iter().any(|it| it.node.kind() != base.node.kind()) {
        return None;
    }
    merge_as_list(language, base, ours, theirs, depth).or_else(|| {
        let parts = [base.part(), ours.part(), theirs.part()];
        merge_parts(language, [&parts[0], &parts[1], &parts[2]], depth)
    })
}

/// Merges versions of a list; `None` if they are not lists, or conflict.
fn merge_as_list(
    language: &MergeLanguage,
    base: Side<'_>,
    ours: Side<'_>,
    theirs: Side<'_>,
    depth: usize,
) -> Option<String> {
    let construct = language.construct(base.node)?;
    let is_same = |side: Side<'_>| {
        language.construct(side.node).is_some_and(|it| std::ptr::eq(it, construct))
    };
    if !is_same(ours) || !is_same(theirs) {
        return None;
    }
    let lists = [
        SiblingList::read(language, construct, base.node, base.text)?,
        SiblingList::read(language, construct, ours.node, ours.text)?,
        SiblingList::read(language, construct, theirs.node, theirs.text)?,
    ];
    let texts = [base.text, ours.text, theirs.text];
    let merged = list_merge::merge(language, construct, &lists, texts, depth)?;
    let sides = [base, ours, theirs];
    let outside = |n: usize| -> (&str, &str) {
        let (range, list) = (sides[n].range(), &lists[n].range);
        (&texts[n][range.start..list.start], &texts[n][list.end..range.end])
    };
    let (base, ours, theirs) = (outside(0), outside(1), outside(2));
    let before = merge_text(base.0, ours.0, theirs.0)?;
    let after = merge_text(base.1, ours.1, theirs.1)?;
    Some(format!("{before}{merged}{after}"))
}

/// Merges nodes and the text around them by lines, after lists in them that conflict were merged by
/// their entries.
pub(crate) fn merge_parts(
    language: &MergeLanguage,
    parts: [&NodeRange<'_>; 3],
    depth: usize,
) -> Option<String> {
    let [base, ours, theirs] = parts;
    if let Some(merged) = merge_text(base.own_text(), ours.own_text(), theirs.own_text()) {
        return Some(merged);
    }
    let keys = base.keys();
    let (our_fates, their_fates) =
        (alignment::align(&keys, &ours.keys()), alignment::align(&keys, &theirs.keys()));
    let mut merged_nodes = Vec::new();
    for (index, fates) in our_fates.fates.iter().zip(&their_fates.fates).enumerate() {
        if let (Fate::Changed(our), Fate::Changed(their)) = fates {
            let sides = (base.side(index), ours.side(*our), theirs.side(*their));
            let merged = merge_nodes(language, sides.0, sides.1, sides.2, depth + 1)?;
            merged_nodes.push((index, *our, *their, merged));
        }
    }
    if merged_nodes.is_empty() {
        return None;
    }
    let replaced = |part: &NodeRange<'_>, version: usize| {
        let replacements: Vec<(usize, &str)> = merged_nodes
            .iter()
            .map(|(base, our, their, text)| ([*base, *our, *their][version], text.as_str()))
            .collect();
        part.replaced(&replacements)
    };
    merge_text(&replaced(base, 0), &replaced(ours, 1), &replaced(theirs, 2))
}
