//! The agent without a user interface: conversation, turns, and sessions on disk.
//!
//! Start at [`turn`], the turn loop. It sends requests to a [`provider::Provider`] and runs the
//! tools of [`tools`]. [`run`] assembles the parts; events go to the sinks of a [`bus::Bus`].

pub mod bus;
pub mod call_line;
pub mod context;
pub mod current_call;
pub mod fragment;
pub mod hooks;
pub mod limits;
mod loop_detector;
pub mod persona;
pub mod prompt;
pub mod role;
pub mod run;
pub mod session;
pub mod session_tools;
pub mod turn;
