//! The client side of the local model host: wire format, socket path, find-or-start, relay.
//!
//! One host per machine and model file serves all g3 processes of a user. A client finds it through
//! a lock and a socket in the user's runtime directory and starts it if none is running; a g3 in a
//! sandbox, which cannot start one, uses a socket that its supervisor relays.

pub mod catalogue;
pub mod connection;
pub mod find;
pub mod relay;
pub mod socket_path;
pub mod wire;
