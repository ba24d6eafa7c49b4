//! Files: opened without following a link to the outside, and what a session knows of them.

pub mod editor_buffers;
pub mod open;
pub mod overwrite_guard;
pub mod read_tracker;
