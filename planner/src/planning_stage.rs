//! The stages of planning mode: the next stage, derived from the existing files, and the
//! transitions.

/// The stage of planning mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanningStage {
    /// The user writes `new_requirements.md`.
    Write,
    /// A model refines the user's text.
    Refine,
    /// The user approves the refined text.
    Approve,
    /// Player and coach implement the requirements.
    Implement,
    /// The user decides whether the work is complete.
    Complete,
    /// The requirements are archived and committed.
    Archive,
    /// The commit is created.
    Commit,
}

/// The state of `g3-plan/` and of the data beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanningFiles {
    /// `new_requirements.md`.
    pub new: NewRequirements,
    /// `current_requirements.md`.
    pub current: CurrentRequirements,
    /// Whether `todo.g3.md` exists.
    pub todo: bool,
    /// Whether both files are archived but not yet committed.
    pub archived: bool,
}

/// The state of `new_requirements.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewRequirements {
    /// The file does not exist.
    #[default]
    None,
    /// The user's text only.
    Raw,
    /// With a section of requirements to implement.
    Refined,
}

/// The state of `current_requirements.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CurrentRequirements {
    /// The file does not exist.
    #[default]
    None,
    /// The user has not approved this text, or it changed afterwards.
    Unapproved,
    /// The user approved exactly this text, by its hash.
    Approved,
    /// The rounds of player and coach have ended.
    Played,
    /// The user marked it as complete.
    Completed,
}

/// Returns the stage for the existing files, where an interrupted run continues.
pub fn stage(files: PlanningFiles) -> PlanningStage {
    match (files.current, files.new) {
        // The archive exists: only the commit is missing.
        _ if files.archived => PlanningStage::Commit,
        (CurrentRequirements::Completed, _) => PlanningStage::Archive,
        (CurrentRequirements::Played, _) => PlanningStage::Complete,
        (CurrentRequirements::Approved, _) => PlanningStage::Implement,
        (CurrentRequirements::Unapproved, _)
        | (CurrentRequirements::None, NewRequirements::Refined) => PlanningStage::Approve,
        (CurrentRequirements::None, NewRequirements::Raw) => PlanningStage::Refine,
        // A todo list alone contains nothing to implement.
        (CurrentRequirements::None, NewRequirements::None) => PlanningStage::Write,
    }
}

/// Returns whether a run that starts here continues an interrupted one; the user is asked.
pub fn is_recovery(files: PlanningFiles) -> bool {
    files.current != CurrentRequirements::None || files.todo || files.archived
}

/// The answer of the user, a model or the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageAnswer {
    /// Continue.
    Yes,
    /// Go back or retry.
    No,
    /// Stop here; everything is kept.
    Quit,
}

/// Returns the stage after an answer; `None` ends the run.
pub fn next_stage(stage: PlanningStage, answer: StageAnswer) -> Option<PlanningStage> {
    match (stage, answer) {
        (_, StageAnswer::Quit) => None,
        (PlanningStage::Write, StageAnswer::Yes) => Some(PlanningStage::Refine),
        (PlanningStage::Write, StageAnswer::No) => Some(PlanningStage::Write),
        (PlanningStage::Refine, StageAnswer::Yes) => Some(PlanningStage::Approve),
        // The reply was unusable: the user may change the text and retry.
        (PlanningStage::Refine, StageAnswer::No) => Some(PlanningStage::Write),
        (PlanningStage::Approve, StageAnswer::Yes) => Some(PlanningStage::Implement),
        (PlanningStage::Approve, StageAnswer::No) => Some(PlanningStage::Write),
        // The user decides, whether the coach approved or not.
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
    fn a_run_passes_every_stage() {
        let mut seen = vec![PlanningStage::Write];
        while let Some(next) = next_stage(seen[seen.len() - 1], StageAnswer::Yes)
            .filter(|next| *next != PlanningStage::Write)
        {
            seen.push(next);
        }
        assert_eq!(seen, ALL);
        assert!(ALL.iter().all(|stage| next_stage(*stage, StageAnswer::Quit).is_none()));
        for (stage, next) in [
            (PlanningStage::Refine, PlanningStage::Write),
            (PlanningStage::Approve, PlanningStage::Write),
            (PlanningStage::Implement, PlanningStage::Complete),
            (PlanningStage::Complete, PlanningStage::Implement),
            (PlanningStage::Commit, PlanningStage::Write),
        ] {
            assert_eq!(next_stage(stage, StageAnswer::No), Some(next));
        }
    }

    #[test]
    fn an_interrupted_run_continues_where_it_stopped() {
        let none = PlanningFiles::default();
        let new = PlanningFiles { new: NewRequirements::Raw, ..none };
        let with_current = |current| PlanningFiles { current, todo: true, ..none };
        for (files, next, recovery) in [
            (none, PlanningStage::Write, false),
            (PlanningFiles { todo: true, ..none }, PlanningStage::Write, true),
            (new, PlanningStage::Refine, false),
            (
                PlanningFiles { new: NewRequirements::Refined, ..none },
                PlanningStage::Approve,
                false,
            ),
            (with_current(CurrentRequirements::Unapproved), PlanningStage::Approve, true),
            (with_current(CurrentRequirements::Approved), PlanningStage::Implement, true),
            (with_current(CurrentRequirements::Played), PlanningStage::Complete, true),
            (with_current(CurrentRequirements::Completed), PlanningStage::Archive, true),
            (PlanningFiles { archived: true, ..none }, PlanningStage::Commit, true),
            // The user wrote the next requirements during the implementation.
            (
                PlanningFiles {
                    new: NewRequirements::Raw,
                    ..with_current(CurrentRequirements::Approved)
                },
                PlanningStage::Implement,
                true,
            ),
        ] {
            assert_eq!((stage(files), is_recovery(files)), (next, recovery), "{files:?}");
        }
    }
}
