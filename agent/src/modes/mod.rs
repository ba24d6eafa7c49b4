//! The modes of g3, one module each.

pub mod accumulative;
pub mod acp;
pub mod attachments;
pub mod autonomous;
pub mod complete;
pub mod interactive;
pub mod interrupt;
pub mod mcp;
pub mod planning;
pub mod single_task;
