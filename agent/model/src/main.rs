//! The local model host.

fn main() {}
