//! A fake agent for studio tests: plays the script it is given.

fn main() {}
