//! Verifies the result of a merge on its own syntax tree: nothing is lost, and nothing is twice.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use tree_sitter::{Node, Tree};

use crate::constructs::MergeLanguage;
use crate::names;
use crate::siblings;

/// How often something occurs in base, ours, theirs and the result.
#[derive(Clone, Copy, Debug, Default)]
struct Occurrences {
    counts: [usize; 4],
    /// Whether what both sides have added must be there once.
    is_unique: bool,
}

impl Occurrences {
    /// Returns whether the result has as many as base and sides together.
    fn is_merged(&self) -> bool {
        let [base, ours, theirs, result] = self.counts;
        if ours == base || theirs == base {
            return result == if ours == base { theirs } else { ours };
        }
        let sum = (ours + theirs).saturating_sub(base);
        match (ours > base, theirs > base) {
            (true, true) if self.is_unique => result == ours.max(theirs),
            // Identical additions are kept once.
            (true, true) => (ours.max(theirs)..=sum).contains(&result),
            (false, false) => (sum..=ours.min(theirs)).contains(&result),
            (true, false) | (false, true) => result == sum,
        }
    }
}

/// Returns whether the result, the last of the four versions, has all words and all names that base
/// and sides require.
pub(crate) fn is_complete(language: &MergeLanguage, versions: [(&str, &Tree); 4]) -> bool {
    let mut words: HashMap<&str, Occurrences> = HashMap::new();
    let mut entries: HashMap<u64, Occurrences> = HashMap::new();
    for (version, (text, tree)) in versions.into_iter().enumerate() {
        count_words(tree.root_node(), text, version, &mut words);
        count_entries(language, tree.root_node(), text, version, &mut entries);
    }
    words.values().all(Occurrences::is_merged) && entries.values().all(Occurrences::is_merged)
}

/// Counts the words of a text: what has no parts in the syntax tree, comments and strings as a
/// whole. Separators are not counted.
fn count_words<'t>(
    root: Node<'_>,
    text: &'t str,
    version: usize,
    words: &mut HashMap<&'t str, Occurrences>,
) {
    let mut pending = vec![root];
    let mut cursor = root.walk();
    while let Some(node) = pending.pop() {
        let kind = node.kind();
        let is_word = node.child_count() == 0
            || ["string", "comment", "char"].iter().any(|it| kind.contains(it));
        if !is_word {
            pending.extend(node.children(&mut cursor));
            continue;
        }
        let word = text[node.byte_range()].trim();
        if !word.is_empty() && word != "," && word != ";" {
            words.entry(word).or_default().counts[version] += 1;
        }
    }
}

/// Counts the named entries of all lists, by list and name.
fn count_entries(
    language: &MergeLanguage,
    root: Node<'_>,
    text: &str,
    version: usize,
    entries: &mut HashMap<u64, Occurrences>,
) {
    // Nodes, with the names of the entries that they are in.
    let mut pending = vec![(root, 0_u64)];
    while let Some((node, outer)) = pending.pop() {
        let construct = language.construct(node);
        let listed = construct.and_then(|it| siblings::children(node, it));
        let in_list = |child: &Node<'_>| {
            listed.as_ref().is_some_and(|(_, all)| all.contains(child))
                && child.is_named()
                && !siblings::is_comment(*child)
                && !language.attached.contains(&child.kind())
        };
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if !in_list(&child) {
                pending.push((child, outer));
                continue;
            }
            // Entries without a name are known by their words.
            let names = names::of(child, text);
            for name in &names {
                let occurrences = entries.entry(hash_of(outer, node.kind(), name)).or_default();
                occurrences.counts[version] += 1;
                occurrences.is_unique = true;
            }
            let inner = match names.is_empty() {
                true => outer,
                false => hash_of(outer, node.kind(), &names.join(" ")),
            };
            pending.push((child, inner));
        }
    }
}

fn hash_of(outer: u64, kind: &str, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (outer, kind, name).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_merged(counts: [usize; 4], is_unique: bool) -> bool {
        Occurrences { counts, is_unique }.is_merged()
    }

    #[test]
    fn what_is_lost_or_twice_is_found() {
        // One side added or removed something.
        assert!(is_merged([1, 2, 1, 2], false) && is_merged([1, 1, 0, 0], false));
        assert!(!is_merged([1, 2, 1, 1], false) && !is_merged([1, 1, 0, 1], false));
        // Both added: it is there once or twice, a name once.
        assert!(is_merged([0, 1, 1, 1], false) && is_merged([0, 1, 1, 2], false));
        assert!(is_merged([0, 1, 1, 1], true) && !is_merged([0, 1, 1, 2], true));
        assert!(!is_merged([0, 1, 1, 0], false) && !is_merged([0, 1, 1, 3], false));
        // Both removed, or one added what the other one removed.
        assert!(is_merged([2, 1, 1, 1], false) && is_merged([2, 1, 1, 0], false));
        assert!(is_merged([1, 2, 0, 1], false) && !is_merged([1, 2, 0, 2], false));
    }
}
