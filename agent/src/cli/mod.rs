//! The commands of `g3`, one file each.

pub mod tool;
