//! A session: one attempt at a task by one agent. Its record, journal and state.

pub mod coach;
pub mod collect;
pub mod disposition;
pub mod home_settings;
pub mod id;
pub mod journal;
pub mod last_shown;
pub mod placement;
pub mod prepared_message;
pub mod random;
pub mod record;
pub mod spec;
pub mod state;
pub mod store;
pub mod summary;
pub mod target_check;
