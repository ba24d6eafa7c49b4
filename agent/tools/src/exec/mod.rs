//! What commands run in: the box, the environment, the directory, and how their output is kept.

pub mod confinement;
pub mod directory;
pub mod environment;
pub mod output;
pub mod sandbox;
