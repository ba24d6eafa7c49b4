//! Changing a part of a file: by a diff, or by a text and what shall stand in its place.

pub mod chunk;
pub mod diff;
pub mod envelope;
pub mod fuzzy;
pub mod hunks;
pub mod locate;
pub mod multi;
pub mod patch;
pub mod replace;
pub mod text;
pub mod together;
