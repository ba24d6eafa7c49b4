//! The order in which a queue lands sessions.

use std::collections::BTreeSet;

/// A session of a queue, with what decides its place.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueNode {
    /// The nodes that land before it.
    pub after: BTreeSet<usize>,
    /// The nodes that it conflicts with.
    pub conflicts: BTreeSet<usize>,
}

/// Returns the order: dependencies first; then nodes that do not conflict with an earlier one; then
/// the node with the fewest conflicts with the nodes that have no place yet; then the first one.
/// Nodes of a cycle are taken as if they had no dependencies.
pub(super) fn order(nodes: &[QueueNode]) -> Vec<usize> {
    let mut remaining: BTreeSet<usize> = (0..nodes.len()).collect();
    let mut ordered = Vec::with_capacity(nodes.len());
    while !remaining.is_empty() {
        let is_free = |n: &&usize| nodes[**n].after.is_disjoint(&remaining);
        let key = |n: &&usize| {
            let conflicts = &nodes[**n].conflicts;
            let is_lost = ordered.iter().any(|placed| conflicts.contains(placed));
            (is_lost, conflicts.intersection(&remaining).count())
        };
        let best = remaining.iter().filter(is_free).min_by_key(key);
        let Some(next) = best.or(remaining.first()).copied() else { break };
        remaining.remove(&next);
        ordered.push(next);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(after: &[usize], conflicts: &[usize]) -> QueueNode {
        QueueNode {
            after: after.iter().copied().collect(),
            conflicts: conflicts.iter().copied().collect(),
        }
    }

    #[test]
    fn dependencies_come_first_then_the_fewest_conflicts() {
        assert_eq!(order(&[node(&[], &[]), node(&[], &[]), node(&[], &[])]), [0, 1, 2]);
        assert_eq!(order(&[node(&[2], &[]), node(&[0], &[]), node(&[], &[])]), [2, 0, 1]);
        // The first conflicts with both others: they land, and it alone is refused.
        assert_eq!(order(&[node(&[], &[1, 2]), node(&[], &[0]), node(&[], &[0])]), [1, 2, 0]);
        let star = [node(&[], &[1, 2, 3]), node(&[], &[0]), node(&[], &[0]), node(&[], &[0])];
        assert_eq!(order(&star), [1, 2, 3, 0]);
        assert_eq!(order(&[node(&[1], &[]), node(&[0], &[]), node(&[], &[])]), [2, 0, 1]);
        assert!(order(&[]).is_empty());
    }
}
