//! Suggests that a stronger model goes on; whoever runs the call decides whether there is one.

use serde::Deserialize;

use super::Outcome;
use super::call::{Call, Trouble};

#[derive(Deserialize)]
struct Args {
    reason: String,
}

/// Hands the reason up.
pub fn run(call: &Call<'_>) -> Result<Outcome, Trouble> {
    let Args { reason } = call.decode()?;
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(Trouble::invalid("`reason` is empty; say in a sentence what is too hard"));
    }
    let outcome = Outcome::done(format!("a stronger model should continue: {reason}"));
    Ok(Outcome { escalate: Some(reason.to_owned()), ..outcome })
}
