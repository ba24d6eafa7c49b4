//! The order in which stacked sessions land: each after the one from whose branch it started.

use crate::session::record::SessionRecord;
use crate::session_view::SessionView;

/// Sorts sessions so that each comes after those that it is based on, and otherwise stays where it
/// is.
pub fn sort(views: &mut [SessionView]) {
    for index in 0..views.len() {
        // The lowest session of a stack comes first. Branches cannot be based on each other in a
        // cycle, so each move is towards the end of the search.
        while let Some(lower) = (index + 1..views.len())
            .find(|&other| is_on_top_of(&views[index].record, &views[other].record))
        {
            views[index..=lower].rotate_right(1);
        }
    }
}

/// Returns whether a session started from the other one's branch.
fn is_on_top_of(upper: &SessionRecord, lower: &SessionRecord) -> bool {
    upper.id != lower.id && upper.base.branch.as_ref() == Some(&lower.session_repo.branch)
}
