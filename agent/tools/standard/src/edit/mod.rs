//! Changing a part of a file: by a diff, or by a text and what shall stand in its place.

pub mod apply_patch;
pub mod atomic;
pub mod chunk;
pub mod diff;
pub mod fuzzy;
pub mod hunks;
pub mod locate;
pub mod multi;
pub mod patch;
pub mod replace;
pub mod text;
