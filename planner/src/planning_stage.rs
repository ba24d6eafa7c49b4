//! The stages of planning mode: what is to be done next, as it follows from the files that are
//! there, and which answer leads where.

/// Where a plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanningStage {
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
pub struct PlanningFiles {
    /// `new_requirements.md`.
    pub new: NewRequirements,
    /// `current_requirements.md`.
    pub current: CurrentRequirements,
    /// `todo.g3.md` is there.
    pub todo: bool,
    /// Both were archived, and no commit was made yet.
    pub archived: bool,
}

/// What the user wrote anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewRequirements {
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
pub enum CurrentRequirements {
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

/// Returns the stage that follows from what there is: where a run that was interrupted goes on.
pub fn stage(found: PlanningFiles) -> PlanningStage {
    match (found.current, found.new) {
        // The archive is there: only the commit is missing.
        _ if found.archived => PlanningStage::Commit,
        (CurrentRequirements::Completed, _) => PlanningStage::Archive,
        (CurrentRequirements::Played, _) => PlanningStage::Complete,
        (CurrentRequirements::Approved, _) => PlanningStage::Implement,
        (CurrentRequirements::Unapproved, _)
        | (CurrentRequirements::None, NewRequirements::Refined) => PlanningStage::Approve,
        (CurrentRequirements::None, NewRequirements::Raw) => PlanningStage::Refine,
        // A todo list alone has nothing to be implemented from.
        (CurrentRequirements::None, NewRequirements::None) => PlanningStage::Write,
    }
}

/// Returns whether a run that starts here takes up what another left: the user is asked.
pub fn is_recovery(found: PlanningFiles) -> bool {
    found.current != CurrentRequirements::None || found.todo || found.archived
}

/// What the user, a model or the harness said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageAnswer {
    /// Go on.
    Yes,
    /// Not so: back, or once more.
    No,
    /// Stop here; everything is kept.
    Quit,
}

/// Returns what follows from an answer; `None` ends the run.
pub fn after(stage: PlanningStage, answer: StageAnswer) -> Option<PlanningStage> {
    match (stage, answer) {
        (_, StageAnswer::Quit) => None,
        (PlanningStage::Write, StageAnswer::Yes) => Some(PlanningStage::Refine),
        (PlanningStage::Write, StageAnswer::No) => Some(PlanningStage::Write),
        (PlanningStage::Refine, StageAnswer::Yes) => Some(PlanningStage::Approve),
        // The reply was no use: the user may change the words and try again.
        (PlanningStage::Refine, StageAnswer::No) => Some(PlanningStage::Write),
        (PlanningStage::Approve, StageAnswer::Yes) => Some(PlanningStage::Implement),
        (PlanningStage::Approve, StageAnswer::No) => Some(PlanningStage::Write),
        // Approved by the coach or not: the user decides.
        (PlanningStage::Implement, StageAnswer::Yes | StageAnswer::No) => {
            Some(PlanningStage::Complete)
        }
        (PlanningStage::Complete, StageAnswer::Yes) => Some(PlanningStage::Archive),
        (PlanningStage::Complete, StageAnswer::No) => Some(PlanningStage::Implement),
        (PlanningStage::Archive, StageAnswer::Yes) => Some(PlanningStage::Commit),
        (PlanningStage::Archive, StageAnswer::No) => Some(PlanningStage::Complete),
        (PlanningStage::Commit, StageAnswer::Yes | StageAnswer::No) => Some(PlanningStage::Write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [PlanningStage; 7] = [
        PlanningStage::Write,
        PlanningStage::Refine,
        PlanningStage::Approve,
        PlanningStage::Implement,
        PlanningStage::Complete,
        PlanningStage::Archive,
        PlanningStage::Commit,
    ];

    #[test]
    fn a_run_goes_through_every_stage() {
        let mut seen = vec![PlanningStage::Write];
        while let Some(next) = after(seen[seen.len() - 1], StageAnswer::Yes)
            .filter(|next| *next != PlanningStage::Write)
        {
            seen.push(next);
        }
        assert_eq!(seen, ALL);
        assert!(ALL.iter().all(|stage| after(*stage, StageAnswer::Quit).is_none()));
        for (stage, next) in [
            (PlanningStage::Refine, PlanningStage::Write),
            (PlanningStage::Approve, PlanningStage::Write),
            (PlanningStage::Implement, PlanningStage::Complete),
            (PlanningStage::Complete, PlanningStage::Implement),
            (PlanningStage::Commit, PlanningStage::Write),
        ] {
            assert_eq!(after(stage, StageAnswer::No), Some(next));
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_where_it_stopped() {
        let none = PlanningFiles::default();
        let new = PlanningFiles { new: NewRequirements::Raw, ..none };
        let at = |current| PlanningFiles { current, todo: true, ..none };
        for (found, next, recovery) in [
            (none, PlanningStage::Write, false),
            (PlanningFiles { todo: true, ..none }, PlanningStage::Write, true),
            (new, PlanningStage::Refine, false),
            (
                PlanningFiles { new: NewRequirements::Refined, ..none },
                PlanningStage::Approve,
                false,
            ),
            (at(CurrentRequirements::Unapproved), PlanningStage::Approve, true),
            (at(CurrentRequirements::Approved), PlanningStage::Implement, true),
            (at(CurrentRequirements::Played), PlanningStage::Complete, true),
            (at(CurrentRequirements::Completed), PlanningStage::Archive, true),
            (PlanningFiles { archived: true, ..none }, PlanningStage::Commit, true),
            // The user wrote the next wish while this one is at work.
            (
                PlanningFiles { new: NewRequirements::Raw, ..at(CurrentRequirements::Approved) },
                PlanningStage::Implement,
                true,
            ),
        ] {
            assert_eq!((stage(found), is_recovery(found)), (next, recovery), "{found:?}");
        }
    }
}
