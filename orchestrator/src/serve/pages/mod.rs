//! The pages. Every value in them is escaped by the templates.

pub(crate) mod board;
pub(crate) mod conflict_sides;
pub(crate) mod diff_lines;
pub(crate) mod layout;
pub(crate) mod new_task;
pub(crate) mod operations;
pub(crate) mod plan;
pub(crate) mod plan_edit;
pub(crate) mod plan_graph;
pub(crate) mod queue;
pub(crate) mod review;
pub(crate) mod review_actions;
pub(crate) mod review_hunks;
pub(crate) mod session;
