//! The `studio` program.

fn main() {}
