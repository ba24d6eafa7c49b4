//! Limits the size of results to the model's context window. The complete result is saved to a file
//! of the session, which the result names.

use serde_json::Value;

use super::context::ToolContext;
use super::exec::output;
use super::exec::output::{OutputBudget, StreamCapture};
use super::output::ToolOutput;

/// Maximum size of a result in bytes for any window; a requested range of a file fits.
pub(crate) const MAX_BYTES: usize = 208 << 10;
/// Minimum limit in bytes, even for the smallest window.
const MIN_BYTES: usize = 4 << 10;

/// Returns the limit in bytes for a window of this many tokens: about a fifth of it, at three to
/// four bytes per token of text or code.
pub fn for_window(tokens: u64) -> usize {
    usize::try_from(tokens / 4 * 3).unwrap_or(MAX_BYTES).clamp(MIN_BYTES, MAX_BYTES)
}

/// Truncates the text of a result.
pub(crate) fn shorten(outcome: &mut ToolOutput, context: &ToolContext) {
    outcome.text = truncate(&outcome.text, context.result_limit, context);
}

/// Truncates the texts in the fields of a result that is a JSON object or array. If that is not
/// enough, keeps only the short fields.
pub(crate) fn shorten_fields(outcome: &mut ToolOutput, context: &ToolContext) {
    let size = |value: &Value| value.to_string().len();
    // The model does not read the image.
    let image = outcome.metadata.as_object_mut().and_then(|object| object.remove("image_b64"));
    if size(&outcome.metadata) > context.result_limit {
        let full_text = outcome.metadata.to_string();
        let texts = long_texts(&mut outcome.metadata);
        let share = context.result_limit / (2 * texts.len().max(1));
        for text in texts.into_iter().filter(|text| text.len() > share) {
            *text = truncate(text, share, context);
        }
        if size(&outcome.metadata) > context.result_limit {
            let note = truncate(&full_text, context.result_limit / 4, context);
            let is_short = |value: &Value| size(value) <= context.result_limit / 16;
            match outcome.metadata.as_object_mut() {
                Some(object) => {
                    object.retain(|_, value| is_short(value));
                    object.insert("truncated".to_owned(), note.into());
                }
                None => outcome.metadata = Value::Array(vec![note.into()]),
            }
        }
    }
    if let (Some(object), Some(image)) = (outcome.metadata.as_object_mut(), image) {
        object.insert("image_b64".to_owned(), image);
    }
}

/// Returns the long texts of a value.
fn long_texts(value: &mut Value) -> Vec<&mut String> {
    match value {
        Value::String(text) if text.len() >= MIN_BYTES => vec![text],
        Value::Array(values) => values.iter_mut().flat_map(long_texts).collect(),
        Value::Object(fields) => fields.values_mut().flat_map(long_texts).collect(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Truncates a text in the middle and names the file with the complete text.
fn truncate(text: &str, limit: usize, context: &ToolContext) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let show = OutputBudget { head: limit / 2, tail: limit / 4 };
    let mut capture = StreamCapture::new(show, &context.session_dir.join("tools"), "result");
    capture.push(text.as_bytes());
    output::render(&capture.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    static NONE: Registry = Registry::new(&[]);

    fn place(limit: usize) -> (ToolContext, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let context = ToolContext::quiet(&NONE, dir.path(), dir.path().join("s"));
        (ToolContext { result_limit: limit, ..context }, dir)
    }

    #[test]
    fn the_limit_depends_on_the_window() {
        assert_eq!(for_window(32_000), 24_000);
        assert_eq!(for_window(100), MIN_BYTES);
        assert_eq!(for_window(1_000_000), MAX_BYTES);
    }

    #[test]
    fn a_long_result_is_truncated_and_saved_in_full() {
        let (context, dir) = place(5_000);
        let long: String = (0..5_000).map(|n| format!("line {n} é\n")).collect();
        let mut outcome = ToolOutput::success(long.clone());
        shorten(&mut outcome, &context);
        assert!(outcome.text.len() < 5_200 && outcome.text.contains("[truncated"));
        assert!(outcome.text.starts_with("line 0 é\n") && outcome.text.ends_with("line 4999 é\n"));
        let kept = std::fs::read_dir(dir.path().join("s/tools")).unwrap().next().unwrap().unwrap();
        assert!(outcome.text.contains(&*kept.path().to_string_lossy()));
        assert_eq!(std::fs::read_to_string(kept.path()).unwrap(), long);
    }

    #[test]
    fn a_truncated_json_result_stays_valid_and_keeps_its_status() {
        let (context, _dir) = place(20_000);
        let long = "x\n".repeat(50_000);
        let of = |metadata: Value| {
            let mut outcome = ToolOutput::success("").with(metadata);
            shorten_fields(&mut outcome, &context);
            outcome.metadata
        };
        let one =
            of(json!({ "status": "success", "stdout": long, "image_b64": "i".repeat(99_999) }));
        assert_eq!(one["status"], "success");
        assert!(one["stdout"].as_str().unwrap().contains("[truncated"));
        assert_eq!(one["image_b64"].as_str().unwrap().len(), 99_999);
        let many: Vec<Value> = (0..5_000).map(|n| json!({ "name": n, "role": "button" })).collect();
        let listed = of(json!({ "status": "success", "elements": many }));
        assert_eq!(listed["status"], "success");
        assert!(listed.to_string().len() <= 20_000 && listed["truncated"].is_string());
    }
}
