//! Pure logic of planning mode: requirements, tasks, verdicts and steps, without IO, model or clock.

pub mod requirement;
pub mod task;
pub mod verdict;
