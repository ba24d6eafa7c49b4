//! Player and coach, as people read of them: who works, in which round.

use serde_json::Value;

/// Who works now, where a `plan` event of player and coach says so: `round 1 of 5: player`.
pub fn part(plan: &Value) -> Option<String> {
    if plan["mode"] != "autonomous" {
        return None;
    }
    let who = match plan["state"].as_str()? {
        "playing" => "player",
        "checking" => "checks",
        "judging" => "coach",
        _ => return None,
    };
    let (round, most) = (plan["round"].as_u64()?, plan["rounds"].as_u64()?);
    Some(format!("round {round} of {most}: {who}"))
}

/// Who speaks from now on, where a `plan` event says so.
pub fn speaker(plan: &Value) -> Option<&'static str> {
    if plan["mode"] != "autonomous" {
        return None;
    }
    match plan["state"].as_str()? {
        "playing" => Some("player"),
        "judging" => Some("coach"),
        _ => None,
    }
}
