//! What all calls of these tools share: the screen as the scope of a call, and the metadata of an
//! action.

use std::time::Instant;

use serde_json::{Value, json};
use tools::call::Invocation;
use tools::output::ToolOutput;
use tools::tool::CallScope;

/// The scope of a call that reads the screen.
pub(crate) fn reads_screen(call: &Invocation<'_>) -> CallScope {
    on_screen(call, false)
}

/// The scope of a call that controls the screen.
pub(crate) fn controls_screen(call: &Invocation<'_>) -> CallScope {
    on_screen(call, true)
}

fn on_screen(call: &Invocation<'_>, acts: bool) -> CallScope {
    let access = vec![call.at.others.screen.access(acts)];
    CallScope { access, ..CallScope::keyed("screen") }
}

/// The metadata that the core tools give an action: its status, a sentence, how long it took.
pub(crate) fn action_metadata(ok: bool, description: &str, since: Instant) -> Value {
    json!({
        "status": if ok { "success" } else { "error" },
        "description": description,
        "duration_ms": u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        "voice_message": description,
    })
}

/// The output of a successful action, with more keys in its metadata.
pub(crate) fn action_output(description: String, since: Instant, more: Value) -> ToolOutput {
    let mut metadata = action_metadata(true, &description, since);
    if let (Some(all), Value::Object(more)) = (metadata.as_object_mut(), more) {
        all.extend(more);
    }
    ToolOutput::done(description.clone()).with(metadata).titled(description)
}
