//! The file tools. They do not follow symbolic links out of the permitted directories.

pub mod read;
pub mod write;
