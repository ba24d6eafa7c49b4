//! The logic of planning mode: requirements, tasks, verdicts and stages, without IO, models or
//! clocks.

pub mod commit;
pub mod document;
#[cfg(any(test, fuzzing))]
pub mod fuzz_tests;
pub mod history;
pub mod import;
pub mod plan;
pub mod planning_stage;
pub mod requirement;
pub mod requirement_coverage;
pub mod staging;
pub mod task;
pub mod verdict;
