//! Files: reading and writing them without following a link to the outside.

pub mod held;
pub mod loss;
pub mod open;
pub mod read;
pub mod seen;
pub mod write;
