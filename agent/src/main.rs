//! The `g3` program.

fn main() {}
