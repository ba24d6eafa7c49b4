//! Sessions of coding agents on one git repository: creates, starts, supervises, checks and lands
//! them. Messages and questions for the user go through [`console::Console`].

pub mod check;
pub mod check_files;
pub mod coach_json;
pub mod coach_rounds;
pub mod commit_message;
pub mod console;
pub mod create_session;
pub mod doctor;
pub mod exec;
pub mod fork;
#[cfg(any(test, fuzzing))]
pub mod fuzz_tests;
pub mod inbox;
pub mod interactive;
pub mod interrupt;
pub mod invariants;
pub mod landing;
pub mod launch;
pub mod leases;
pub mod live_sessions;
pub mod notification;
pub mod overview;
pub mod path_dependencies;
pub mod pool_process;
pub mod project;
pub mod redact;
pub mod review;
pub mod sandbox;
pub mod schedule;
pub mod seen;
pub mod selftest;
pub mod session;
pub mod session_changes;
pub mod session_view;
pub mod standing;
pub mod stats;
pub mod supervisor;
pub mod supervisor_process;
pub mod timeline;
pub mod trial;
