//! The order in which to land pieces of work so that as few as possible conflict with what landed
//! before. Pure logic: no git, no files.

use std::collections::BTreeSet;

/// The pieces of work to land, by index.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// What must land before each of them.
    pub after: Vec<Vec<usize>>,
    /// The pairs that conflict.
    pub conflicts: Vec<(usize, usize)>,
    /// Which of them should land later than others, e.g. because they are not ready.
    pub is_late: Vec<bool>,
}

/// One step of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderStep {
    /// The index of the piece of work.
    pub index: usize,
    /// The earlier ones that it conflicts with.
    pub conflicts_with: Vec<usize>,
}

/// Returns an order: dependencies first, then those that conflict with nothing earlier. Among
/// these, the ones that block the fewest others are first; equal ones keep their order. Pieces that
/// wait for each other come last.
pub fn best_order(candidates: &Candidates) -> Vec<OrderStep> {
    let count = candidates.after.len();
    let mut conflicts_of: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count];
    for (first, second) in &candidates.conflicts {
        conflicts_of[*first].insert(*second);
        conflicts_of[*second].insert(*first);
    }
    let mut remaining: BTreeSet<usize> = (0..count).collect();
    let mut is_placed = vec![false; count];
    let mut steps = Vec::with_capacity(count);
    while !remaining.is_empty() {
        let is_blocked = |index: usize| {
            candidates.after[index].iter().any(|other| *other != index && !is_placed[*other])
        };
        let key = |index: &usize| {
            let (placed, open): (Vec<&usize>, Vec<&usize>) =
                conflicts_of[*index].iter().partition(|other| is_placed[**other]);
            let is_late = candidates.is_late[*index];
            (is_blocked(*index), placed.len(), is_late, open.len(), *index)
        };
        let Some(index) = remaining.iter().copied().min_by_key(key) else { break };
        remaining.remove(&index);
        let earlier = conflicts_of[index].iter().copied().filter(|other| is_placed[*other]);
        steps.push(OrderStep { index, conflicts_with: earlier.collect() });
        is_placed[index] = true;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for nothing.
    const NONE: &[usize] = &[];

    fn order(after: &[&[usize]], conflicts: &[(usize, usize)], late: &[usize]) -> Vec<usize> {
        let candidates = Candidates {
            after: after.iter().map(|ids| ids.to_vec()).collect(),
            conflicts: conflicts.to_vec(),
            is_late: (0..after.len()).map(|index| late.contains(&index)).collect(),
        };
        best_order(&candidates).into_iter().map(|step| step.index).collect()
    }

    #[test]
    fn the_largest_set_without_conflicts_comes_first() {
        // 0 conflicts with all others, which do not conflict with each other.
        assert_eq!(order(&[NONE; 4], &[(0, 1), (0, 2), (0, 3)], &[]), [1, 2, 3, 0]);
        assert_eq!(order(&[NONE; 3], &[], &[]), [0, 1, 2]);
        assert_eq!(order(&[NONE; 3], &[], &[0]), [1, 2, 0]);
        assert!(order(&[], &[], &[]).is_empty());
    }

    #[test]
    fn dependencies_come_before_what_depends_on_them() {
        // 1 lands after 0, although 0 conflicts with everything.
        assert_eq!(order(&[&[], &[0], &[]], &[(0, 1), (0, 2)], &[]), [2, 0, 1]);
        assert_eq!(order(&[&[2], &[0], &[]], &[], &[]), [2, 0, 1]);
        // Pieces that wait for each other are not lost.
        assert_eq!(order(&[&[1], &[0], &[]], &[], &[]), [2, 0, 1]);
    }

    #[test]
    fn each_step_names_the_earlier_ones_that_it_conflicts_with() {
        let candidates = Candidates {
            after: vec![Vec::new(); 3],
            conflicts: vec![(2, 0), (0, 1)],
            is_late: vec![false; 3],
        };
        let steps = best_order(&candidates);
        assert_eq!(steps[0], OrderStep { index: 1, conflicts_with: vec![] });
        assert_eq!(steps[1], OrderStep { index: 2, conflicts_with: vec![] });
        assert_eq!(steps[2], OrderStep { index: 0, conflicts_with: vec![1, 2] });
    }
}
