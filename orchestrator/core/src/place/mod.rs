//! Places: other machines on which sessions run.
//!
//! A session at a place is an ordinary session of a bare repository there. Home has a copy of its
//! journal, commits and snapshots, and gives every command what it would see of a session here. At each
//! moment only one side writes the journal: home before the session is delivered and after its run
//! ended, the place in between. So the journals are equal, or one continues the other.

pub mod check;
pub(crate) mod checks_there;
mod cluster;
pub mod configured_place;
mod frames;
mod hello;
mod host;
mod host_choice;
mod job;
mod job_connection;
pub(crate) mod keeper;
mod kubernetes;
mod lfs;
mod link;
pub mod node;
mod protocol;
mod requests;
mod ship;
mod slurm;
pub mod unreached;
