//! The stages of planning mode: what is to be done next, as it follows from the files that are
//! there, and which answer leads where.

/// Where a plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The user is to write `new_requirements.md`.
    Write,
    /// A model refines what the user wrote.
    Refine,
    /// The user is to approve the refined text.
    Approve,
    /// Player and coach work.
    Implement,
    /// The user is to say whether that is all.
    Complete,
    /// What was done is to be archived and committed.
    Archive,
    /// The commit is to be made.
    Commit,
}

/// What there is in `g3-plan/` and in the state beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// `new_requirements.md`.
    pub new: New,
    /// `current_requirements.md`.
    pub current: Current,
    /// `todo.g3.md` is there.
    pub todo: bool,
    /// Both were archived, and no commit was made yet.
    pub archived: bool,
}

/// What the user wrote anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum New {
    /// There is none.
    #[default]
    None,
    /// As the user wrote it.
    Raw,
    /// With a section of what is to be implemented.
    Refined,
}

/// What is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Current {
    /// Nothing.
    #[default]
    None,
    /// A text that the user did not approve, or that was changed since.
    Unapproved,
    /// The text that the user approved, by its hash.
    Approved,
    /// The rounds of player and coach are over.
    Played,
    /// The user said that it is complete.
    Completed,
}

/// The stage that follows from what there is: where a run that was interrupted goes on.
pub fn stage(found: Found) -> Stage {
    match (found.current, found.new) {
        // The archive is there: only the commit is missing.
        _ if found.archived => Stage::Commit,
        (Current::Completed, _) => Stage::Archive,
        (Current::Played, _) => Stage::Complete,
        (Current::Approved, _) => Stage::Implement,
        (Current::Unapproved, _) | (Current::None, New::Refined) => Stage::Approve,
        (Current::None, New::Raw) => Stage::Refine,
        // A todo list alone has nothing to be implemented from.
        (Current::None, New::None) => Stage::Write,
    }
}

/// Whether a run that starts here takes up what another left: the user is asked.
pub fn is_recovery(found: Found) -> bool {
    found.current != Current::None || found.todo || found.archived
}

/// What the user, a model or the harness said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Yes,
    /// Not so: back, or once more.
    No,
    /// Stop here; everything is kept.
    Quit,
}

/// What follows from an answer; `None` ends the run.
pub fn after(stage: Stage, answer: Answer) -> Option<Stage> {
    match (stage, answer) {
        (_, Answer::Quit) => None,
        (Stage::Write, Answer::Yes) => Some(Stage::Refine),
        (Stage::Write, Answer::No) => Some(Stage::Write),
        (Stage::Refine, Answer::Yes) => Some(Stage::Approve),
        // The reply was no use: the user may change the words and try again.
        (Stage::Refine, Answer::No) => Some(Stage::Write),
        (Stage::Approve, Answer::Yes) => Some(Stage::Implement),
        (Stage::Approve, Answer::No) => Some(Stage::Write),
        // Approved by the coach or not: the user decides.
        (Stage::Implement, Answer::Yes | Answer::No) => Some(Stage::Complete),
        (Stage::Complete, Answer::Yes) => Some(Stage::Archive),
        (Stage::Complete, Answer::No) => Some(Stage::Implement),
        (Stage::Archive, Answer::Yes) => Some(Stage::Commit),
        (Stage::Archive, Answer::No) => Some(Stage::Complete),
        (Stage::Commit, Answer::Yes | Answer::No) => Some(Stage::Write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Stage; 7] = [
        Stage::Write,
        Stage::Refine,
        Stage::Approve,
        Stage::Implement,
        Stage::Complete,
        Stage::Archive,
        Stage::Commit,
    ];

    #[test]
    fn a_run_goes_through_every_stage() {
        let mut seen = vec![Stage::Write];
        while let Some(next) =
            after(seen[seen.len() - 1], Answer::Yes).filter(|next| *next != Stage::Write)
        {
            seen.push(next);
        }
        assert_eq!(seen, ALL);
        assert!(ALL.iter().all(|stage| after(*stage, Answer::Quit).is_none()));
        for (stage, next) in [
            (Stage::Refine, Stage::Write),
            (Stage::Approve, Stage::Write),
            (Stage::Implement, Stage::Complete),
            (Stage::Complete, Stage::Implement),
            (Stage::Commit, Stage::Write),
        ] {
            assert_eq!(after(stage, Answer::No), Some(next));
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_where_it_stopped() {
        let none = Found::default();
        let new = Found { new: New::Raw, ..none };
        let at = |current| Found { current, todo: true, ..none };
        for (found, next, recovery) in [
            (none, Stage::Write, false),
            (Found { todo: true, ..none }, Stage::Write, true),
            (new, Stage::Refine, false),
            (Found { new: New::Refined, ..none }, Stage::Approve, false),
            (at(Current::Unapproved), Stage::Approve, true),
            (at(Current::Approved), Stage::Implement, true),
            (at(Current::Played), Stage::Complete, true),
            (at(Current::Completed), Stage::Archive, true),
            (Found { archived: true, ..none }, Stage::Commit, true),
            // The user wrote the next wish while this one is at work.
            (Found { new: New::Raw, ..at(Current::Approved) }, Stage::Implement, true),
        ] {
            assert_eq!((stage(found), is_recovery(found)), (next, recovery), "{found:?}");
        }
    }
}
