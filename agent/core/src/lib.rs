//! The agent without a surface: conversation, turns, sessions on disk and what stands around them.
//!
//! Start at [`turn`], the loop. It knows a [`provider::Provider`] to ask and the tools of [`tools`]
//! to act with. [`run`] puts the parts together; events go to the sinks of a [`bus::Bus`].

pub mod bus;
pub mod call_line;
pub mod context;
pub mod current_call;
pub mod fragment;
pub mod hooks;
pub mod limits;
pub mod persona;
pub mod prompt;
pub mod role;
pub mod run;
pub mod session;
pub mod session_tools;
pub mod turn;
