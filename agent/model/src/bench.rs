//! Measures what the host does against what llama.cpp does alone: reading, writing, constrained
//! writing, and several conversations at once.

use base::failure::Result;

use crate::options::Serve;

/// Runs all measurements and prints them.
pub fn run(_serve: &Serve) -> Result<()> {
    Ok(())
}
