//! A coding agent: it asks a model, does what the model wants done, and shows what came of it.
//!
//! Start at [`turn`], the loop. It knows a [`provider::Provider`] to ask and the tools of
//! [`tools`] to act with. `run` puts the parts together; `ui` draws the events; nothing below
//! them prints.

pub mod cli;
pub mod context;
pub mod fragment;
pub mod hooks;
pub mod limits;
pub mod modes;
pub mod persona;
pub mod prompt;
pub mod role;
pub mod run;
pub mod session;
pub mod tools;
pub mod trace;
pub mod turn;
pub mod ui;
