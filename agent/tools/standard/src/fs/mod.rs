//! Files: reading and writing them without following a link to the outside.

pub mod read;
pub mod write;
