//! The local model host as its clients see it: the wire, where it listens, find-or-start, relay.
//!
//! One host per machine and model file serves every g3 of a user. A client finds it through a
//! lock and a socket in the user's runtime directory and starts it when nobody listens; a g3 in a
//! box, which cannot start one, speaks through a socket that its supervisor relays.

pub mod catalogue;
pub mod connection;
pub mod find;
pub mod relay;
pub mod socket_path;
pub mod wire;
