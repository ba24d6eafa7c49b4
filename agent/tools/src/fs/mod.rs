//! File access: safe opening and replacing, and what a session knows about files.

pub mod editor_buffers;
pub mod open;
pub mod overwrite_guard;
pub mod read_tracker;
