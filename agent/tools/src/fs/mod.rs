//! Files: opened without following a link to the outside, and what a session knows of them.

pub mod held;
pub mod loss;
pub mod open;
pub mod seen;
