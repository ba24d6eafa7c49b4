//! Merges versions of a list, entry by entry.

use tree_sitter::Node;

use crate::alignment::{self, Alignment, Fate};
use crate::constructs::{Construct, MergeLanguage, Separator};
use crate::node_merge::{self, NodeRange, merge_value};
use crate::siblings::{Sibling, SiblingList};

/// An entry of the result.
#[derive(Clone, Debug)]
struct MergedEntry<'t> {
    lead: &'t str,
    /// `None` if it begins on the line that opens the list.
    indent: Option<&'t str>,
    head: String,
    tail: &'t str,
    has_comma: bool,
    has_entry: bool,
    kinds: &'t [u16],
    rank: usize,
    /// The blank lines after it, if it was the first one of its version.
    lead_of_next: Option<&'t str>,
}

/// Base, ours, theirs.
const BASE: usize = 0;
const OURS: usize = 1;
const THEIRS: usize = 2;

/// Merges versions of a list; returns the text between what opens and what closes it.
pub(crate) fn merge(
    language: &MergeLanguage,
    construct: &Construct,
    lists: &[SiblingList<'_>; 3],
    texts: [&str; 3],
    depth: usize,
) -> Option<String> {
    let is_new = lists[BASE].siblings.is_empty();
    if lists[OURS].siblings.is_empty() || lists[THEIRS].siblings.is_empty() {
        return None;
    }
    let inline = |n: usize| lists[n].is_inline;
    if inline(OURS) != inline(THEIRS) || (!is_new && inline(BASE) != inline(OURS)) {
        return None;
    }
    let merge = ListMerge { language, construct, lists, texts, depth };
    let keys = lists[BASE].keys();
    let ours = alignment::align(&keys, &lists[OURS].keys());
    let theirs = alignment::align(&keys, &lists[THEIRS].keys());
    let mut entries = Vec::new();
    for gap in 0..=keys.len() {
        merge.add_gap(gap, &ours, &theirs, &mut entries)?;
        if gap < keys.len() {
            merge.add_entry(gap, &ours, &theirs, &mut entries)?;
        }
    }
    merge.render(entries)
}

struct ListMerge<'l, 't> {
    language: &'l MergeLanguage,
    construct: &'l Construct,
    lists: &'l [SiblingList<'t>; 3],
    texts: [&'t str; 3],
    depth: usize,
}

impl<'t> ListMerge<'_, 't> {
    fn sibling(&self, version: usize, index: usize) -> &Sibling<'t> {
        &self.lists[version].siblings[index]
    }

    /// Returns an entry as one version has it.
    fn entry(&self, version: usize, index: usize) -> MergedEntry<'_> {
        let sibling = self.sibling(version, index);
        let next = self.lists[version].siblings.get(index + 1);
        MergedEntry {
            lead: sibling.lead,
            indent: sibling.indent,
            head: self.texts[version][sibling.head.clone()].to_owned(),
            tail: sibling.tail,
            has_comma: sibling.has_comma,
            has_entry: sibling.has_entry,
            kinds: &sibling.key.kinds,
            rank: sibling.rank,
            lead_of_next: (index == 0).then(|| next.map_or("", |next| next.lead)),
        }
    }

    /// Adds what the sides have added before an entry of the base, or at the end.
    fn add_gap<'m>(
        &'m self,
        gap: usize,
        ours: &Alignment,
        theirs: &Alignment,
        entries: &mut Vec<MergedEntry<'m>>,
    ) -> Option<()> {
        let (added, also) = (&ours.added[gap], &theirs.added[gap]);
        let has_both = !added.is_empty() && !also.is_empty();
        let is_deleted = (!added.is_empty() && theirs.is_deleted_beside(gap))
            || (!also.is_empty() && ours.is_deleted_beside(gap));
        let is_replaced =
            has_both && (ours.is_deleted_beside(gap) || theirs.is_deleted_beside(gap));
        if is_deleted || is_replaced {
            return None;
        }
        let is_beside_change = (!added.is_empty() && theirs.is_changed_beside(gap))
            || (!also.is_empty() && ours.is_changed_beside(gap));
        let ours_added = added.iter().map(|n| self.sibling(OURS, *n));
        let mut all = ours_added.chain(also.iter().map(|n| self.sibling(THEIRS, *n)));
        if has_both || is_beside_change {
            let beside = gap.saturating_sub(1)..(gap + 1).min(self.lists[BASE].siblings.len());
            let is_movable = beside.clone().all(|n| self.sibling(BASE, n).may_add);
            if !all.all(|it| it.may_add) || (is_beside_change && !is_movable) {
                return None;
            }
        }
        let mut run: Vec<MergedEntry<'m>> = added.iter().map(|n| self.entry(OURS, *n)).collect();
        for n in also {
            let key = &self.sibling(THEIRS, *n).key;
            let same_text = |m: &usize| self.sibling(OURS, *m).key.text == key.text;
            if added.iter().any(same_text) {
                continue;
            }
            let is_defined = |m: &usize| {
                let names = &self.sibling(OURS, *m).key.names;
                names.iter().any(|name| key.names.contains(name))
            };
            if added.iter().any(is_defined) {
                return None;
            }
            run.push(self.entry(THEIRS, *n));
        }
        let ranks = |version: usize, indices: &[usize]| {
            indices.iter().map(|n| self.sibling(version, *n).rank).is_sorted()
        };
        if has_both && ranks(OURS, added) && ranks(THEIRS, also) {
            run.sort_by_key(|entry| entry.rank);
        }
        entries.append(&mut run);
        Some(())
    }

    /// Adds an entry of the base as the sides have it.
    fn add_entry<'m>(
        &'m self,
        index: usize,
        ours: &Alignment,
        theirs: &Alignment,
        entries: &mut Vec<MergedEntry<'m>>,
    ) -> Option<()> {
        let (our, their) = match (ours.fates[index], theirs.fates[index]) {
            (Fate::Deleted, Fate::Deleted | Fate::Kept(_)) | (Fate::Kept(_), Fate::Deleted) => {
                return Some(());
            }
            (Fate::Deleted, Fate::Changed(_)) | (Fate::Changed(_), Fate::Deleted) => return None,
            (Fate::Kept(our) | Fate::Changed(our), Fate::Kept(their) | Fate::Changed(their)) => {
                (our, their)
            }
        };
        self.refuse_adjacent_changes(index, ours, theirs)?;
        let all = [(BASE, index), (OURS, our), (THEIRS, their)];
        let [base, our, their] = all.map(|(version, n)| self.sibling(version, n));
        let part = |version: usize, sibling: &Sibling<'t>| NodeRange {
            text: self.texts[version],
            range: sibling.head.clone(),
            nodes: nodes_in(sibling),
        };
        let parts = [part(BASE, base), part(OURS, our), part(THEIRS, their)];
        let head = node_merge::merge_parts(
            self.language,
            [&parts[0], &parts[1], &parts[2]],
            self.depth + 1,
        )?;
        let longer = |a: &'t str, b: &'t str| if a.len() >= b.len() { a } else { b };
        let entry = |n: usize| self.entry(all[n].0, all[n].1);
        entries.push(MergedEntry {
            lead: merge_value(base.lead, our.lead, their.lead)
                .unwrap_or_else(|| longer(our.lead, their.lead)),
            indent: merge_value(base.indent, our.indent, their.indent)?,
            head,
            tail: merge_value(base.tail, our.tail, their.tail)?,
            has_comma: merge_value(base.has_comma, our.has_comma, their.has_comma)?,
            lead_of_next: None,
            ..entry(OURS)
        });
        Some(())
    }

    /// Refuses an entry of which one side changed the entry before it, and the other one this one,
    /// if the order matters.
    fn refuse_adjacent_changes(
        &self,
        index: usize,
        ours: &Alignment,
        theirs: &Alignment,
    ) -> Option<()> {
        let Some(before) = index.checked_sub(1) else { return Some(()) };
        let is_kept = |it: &Alignment, n: usize| matches!(it.fates[n], Fate::Kept(_));
        let differ = |first: &Alignment, second: &Alignment| {
            !is_kept(first, before) && !is_kept(second, index)
        };
        let may_add = [before, index].iter().all(|n| self.sibling(BASE, *n).may_add);
        let is_adjacent = differ(ours, theirs) || differ(theirs, ours);
        (!is_adjacent || may_add).then_some(())
    }

    fn render(&self, mut entries: Vec<MergedEntry<'_>>) -> Option<String> {
        let [base, ours, theirs] = self.lists;
        let is_new = base.siblings.is_empty();
        let (prefix, suffix) = match is_new {
            true if ours.prefix != theirs.prefix || ours.suffix != theirs.suffix => return None,
            true => (ours.prefix, ours.suffix),
            false => (
                merge_value(base.prefix, ours.prefix, theirs.prefix)?,
                merge_value(base.suffix, ours.suffix, theirs.suffix)?,
            ),
        };
        if self.construct.separator != Separator::Line {
            let ends = [base, ours, theirs].map(SiblingList::ends_with_comma);
            let ends_with_comma = match is_new {
                true => ends[OURS] || ends[THEIRS],
                false => merge_value(ends[BASE], ends[OURS], ends[THEIRS])?,
            };
            self.set_commas(&mut entries, ends_with_comma);
        }
        let is_inline = ours.is_inline;
        let leads = self.lists.iter().flat_map(|list| list.siblings.iter().map(|it| it.lead));
        let space = if is_inline { leads.clone().find(|it| !it.is_empty()) } else { None };
        let mut merged = prefix.to_owned();
        for (n, entry) in entries.iter().enumerate() {
            if entry.indent.is_none() && n > 0 {
                return None;
            }
            let previous = n.checked_sub(1).map(|n| &entries[n]);
            match (previous, is_inline) {
                (None, true) => {}
                (None, false) => {
                    let was_first = entry.lead_of_next.is_some();
                    let first = base.siblings.first().map_or(entry.lead, |it| it.lead);
                    merged.push_str(if was_first || is_new { entry.lead } else { first });
                }
                (Some(_), true) if entry.lead.is_empty() => merged.push_str(space.unwrap_or(" ")),
                (Some(_), true) => merged.push_str(entry.lead),
                (Some(previous), false) => {
                    merged.push('\n');
                    merged.push_str(lead_between(previous, entry));
                }
            }
            if !is_inline {
                merged.push_str(entry.indent.unwrap_or_default());
            }
            merged.push_str(&entry.head);
            if entry.has_comma && self.construct.separator != Separator::Line {
                merged.push(',');
            }
            merged.push_str(entry.tail);
        }
        merged.push_str(suffix);
        let indent = merge_value(base.outer_indent, ours.outer_indent, theirs.outer_indent)?;
        merged.strip_prefix(indent).map(str::to_owned)
    }

    /// Puts commas between the entries.
    fn set_commas(&self, entries: &mut [MergedEntry<'_>], ends_with_comma: bool) {
        let last = entries.iter().rposition(|entry| entry.has_entry);
        for (n, entry) in entries.iter_mut().enumerate().filter(|(_, entry)| entry.has_entry) {
            let is_brace =
                self.construct.separator == Separator::CommaOrBrace && entry.head.ends_with('}');
            entry.has_comma = match Some(n) == last {
                _ if is_brace => entry.has_comma,
                true => ends_with_comma,
                false => true,
            };
        }
    }
}

/// Returns the nodes of an entry without its comma and the rest of its line.
fn nodes_in<'t>(sibling: &Sibling<'t>) -> Vec<Node<'t>> {
    let is_inside = |node: &Node<'t>| node.end_byte() <= sibling.head.end;
    let mut nodes = Vec::new();
    for node in &sibling.nodes {
        match is_inside(node) {
            true => nodes.push(*node),
            // The comma of a match arm is a part of its node.
            false => nodes.extend(node.children(&mut node.walk()).filter(is_inside)),
        }
    }
    nodes
}

/// Returns the blank lines between two entries.
fn lead_between<'t>(previous: &MergedEntry<'_>, entry: &MergedEntry<'t>) -> &'t str {
    match entry.lead_of_next {
        None => entry.lead,
        // It was the first one in its version.
        Some(_) if previous.kinds == entry.kinds && !entry.head.contains('\n') => "",
        Some(lead) => lead,
    }
}
