//! One verb, one file: resolve, check, act, report.

pub mod answer;
pub mod desk;
pub mod diff;
pub mod explain;
pub mod list;
pub mod logs;
pub mod order;
pub mod resume;
pub mod run;
pub mod send;
pub mod status;
pub mod stop;
pub mod supervise;
pub mod tasks;
pub mod watch;
