//! Edits files: by a diff, or by replacing a string.

pub mod apply_patch;
pub mod atomic;
pub mod chunk;
pub mod diff;
#[cfg(any(test, fuzzing))]
pub mod fuzz_tests;
pub mod fuzzy;
pub mod hunks;
pub mod locate;
pub mod multi;
pub mod patch;
pub mod replace;
pub mod text;
