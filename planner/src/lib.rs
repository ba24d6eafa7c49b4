//! Pure logic of planning mode: requirements, verdicts and steps, without IO, model or clock.

pub mod requirement;
pub mod verdict;
