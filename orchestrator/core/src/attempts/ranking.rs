//! The ranking of attempts by evidence. Pure logic: no git, no files, no model.

use std::cmp::{Ordering, Reverse};

/// How much the sizes of two attempts may differ, in percent, for their difference to say nothing.
const SIMILAR_SIZE_PERCENT: u64 = 25;

/// The evidence about an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Whether it has work that can land.
    pub has_work: bool,
    /// Whether its own checks passed.
    pub is_ready: bool,
    /// The number of attempts whose tests pass on its code, itself included.
    pub passed: usize,
    /// The number of attempts whose tests fail on its code.
    pub failed: usize,
    /// The number of changed lines.
    pub changed_lines: u64,
    /// The number of added lines that repeat other added lines.
    pub duplicated_lines: usize,
    /// The cost in US dollars, if known.
    pub cost_usd: Option<f64>,
}

/// Returns the indices of attempts, the best one first: by passed tests, failed ones, size,
/// duplication and cost. Attempts without work come last; equal ones keep their order.
pub fn rank(evidence: &[Evidence]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..evidence.len()).collect();
    order.sort_by(|a, b| compare(&evidence[*a], &evidence[*b]));
    order
}

fn compare(a: &Evidence, b: &Evidence) -> Ordering {
    let tests = |it: &Evidence| (!it.has_work, !it.is_ready, Reverse(it.passed), it.failed);
    let size = |it: &Evidence| (it.changed_lines, it.duplicated_lines);
    let cost = |it: &Evidence| it.cost_usd.unwrap_or(f64::INFINITY);
    tests(a)
        .cmp(&tests(b))
        .then_with(|| size(a).cmp(&size(b)))
        .then_with(|| cost(a).total_cmp(&cost(b)))
}

/// Returns whether the tests do not tell two attempts apart, and their sizes are similar.
pub fn is_tie(a: &Evidence, b: &Evidence) -> bool {
    let tests = |it: &Evidence| (it.has_work, it.is_ready, it.passed, it.failed);
    let larger = a.changed_lines.max(b.changed_lines);
    let difference = a.changed_lines.abs_diff(b.changed_lines);
    a.has_work && tests(a) == tests(b) && difference * 100 <= larger * SIMILAR_SIZE_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Evidence = Evidence {
        has_work: true,
        is_ready: true,
        passed: 3,
        failed: 0,
        changed_lines: 40,
        duplicated_lines: 0,
        cost_usd: Some(0.5),
    };

    #[test]
    fn passed_tests_come_before_failures_size_duplication_and_cost() {
        let steps = [
            GOOD,
            Evidence { cost_usd: Some(0.6), ..GOOD },
            Evidence { cost_usd: None, ..GOOD },
            Evidence { duplicated_lines: 4, cost_usd: None, ..GOOD },
            Evidence { changed_lines: 41, ..GOOD },
            Evidence { failed: 1, changed_lines: 1, ..GOOD },
            Evidence { passed: 2, changed_lines: 1, ..GOOD },
            Evidence { is_ready: false, passed: 9, ..GOOD },
            Evidence { has_work: false, passed: 9, ..GOOD },
        ];
        let reversed: Vec<Evidence> = steps.iter().rev().copied().collect();
        assert_eq!(rank(&reversed), [8, 7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(rank(&[GOOD, GOOD]), [0, 1], "equal ones keep their order");
    }

    #[test]
    fn similar_sizes_with_the_same_tests_are_a_tie() {
        assert!(is_tie(&GOOD, &Evidence { changed_lines: 50, cost_usd: None, ..GOOD }));
        assert!(!is_tie(&GOOD, &Evidence { changed_lines: 60, ..GOOD }));
        assert!(!is_tie(&GOOD, &Evidence { passed: 2, ..GOOD }));
        assert!(!is_tie(&Evidence::default(), &Evidence::default()), "neither has work");
    }
}
