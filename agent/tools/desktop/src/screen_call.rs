//! The scope and the result fields that the screen tools share.

use std::time::Instant;

use serde_json::{Value, json};
use tools::call::Invocation;
use tools::output::ToolOutput;
use tools::tool::CallScope;

/// Returns the scope of a call that reads the screen.
pub(crate) fn reads_screen(call: &Invocation<'_>) -> CallScope {
    on_screen(call, false)
}

/// Returns the scope of a call that controls the screen.
pub(crate) fn controls_screen(call: &Invocation<'_>) -> CallScope {
    on_screen(call, true)
}

fn on_screen(call: &Invocation<'_>, is_input: bool) -> CallScope {
    let access = vec![call.context.services.screen.access(is_input)];
    CallScope { access, ..CallScope::keyed("screen") }
}

/// Returns the result fields of the core tools: status, description and duration.
pub(crate) fn action_metadata(ok: bool, description: &str, start_time: Instant) -> Value {
    json!({
        "status": if ok { "success" } else { "error" },
        "description": description,
        "duration_ms": u64::try_from(start_time.elapsed().as_millis()).unwrap_or(u64::MAX),
        "voice_message": description,
    })
}

/// Creates the output of a successful action with additional metadata.
pub(crate) fn action_output(
    description: String,
    start_time: Instant,
    extra_fields: Value,
) -> ToolOutput {
    let mut metadata = action_metadata(true, &description, start_time);
    if let (Some(object), Value::Object(extra_fields)) = (metadata.as_object_mut(), extra_fields) {
        object.extend(extra_fields);
    }
    ToolOutput::success(description.clone()).with(metadata).titled(description)
}
