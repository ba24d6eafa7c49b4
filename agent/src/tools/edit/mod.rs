//! Changing a part of a file: by a diff, or by a text and what shall stand in its place.

pub mod diff;
pub mod fuzzy;
pub mod hunks;
pub mod locate;
pub mod replace;
pub mod text;
