//! Limits the size of results to the model's context window. The complete result is saved to a file
//! of the session, which the result names.

use serde_json::Value;

use super::context::ToolContext;
use super::exec::output;
use super::exec::output::{OutputBudget, StreamCapture};
use super::output::ToolOutput;

/// Maximum size of a result in bytes for any window; a requested range of a file fits.
pub(crate) const MOST: usize = 208 << 10;
/// Minimum limit in bytes, even for the smallest window.
const LEAST: usize = 4 << 10;

/// Returns the limit in bytes for a window of this many tokens: about a fifth of it, at three to
/// four bytes per token of text or code.
pub fn for_window(tokens: u64) -> usize {
    usize::try_from(tokens / 4 * 3).unwrap_or(MOST).clamp(LEAST, MOST)
}

/// Truncates the text of a result.
pub(crate) fn shorten(outcome: &mut ToolOutput, at: &ToolContext) {
    outcome.text = fitting(&outcome.text, at.result_limit, at);
}

/// Truncates the texts in the fields of a result that is a JSON object or array. If that is not
/// enough, keeps only the short fields.
pub(crate) fn shorten_fields(outcome: &mut ToolOutput, at: &ToolContext) {
    let size = |value: &Value| value.to_string().len();
    // The model does not read the image.
    let picture = outcome.metadata.as_object_mut().and_then(|object| object.remove("image_b64"));
    if size(&outcome.metadata) > at.result_limit {
        let whole = outcome.metadata.to_string();
        let texts = texts(&mut outcome.metadata);
        let share = at.result_limit / (2 * texts.len().max(1));
        for text in texts.into_iter().filter(|text| text.len() > share) {
            *text = fitting(text, share, at);
        }
        if size(&outcome.metadata) > at.result_limit {
            let note = fitting(&whole, at.result_limit / 4, at);
            let short = |value: &Value| size(value) <= at.result_limit / 16;
            match outcome.metadata.as_object_mut() {
                Some(object) => {
                    object.retain(|_, value| short(value));
                    object.insert("truncated".to_owned(), note.into());
                }
                None => outcome.metadata = Value::Array(vec![note.into()]),
            }
        }
    }
    if let (Some(object), Some(picture)) = (outcome.metadata.as_object_mut(), picture) {
        object.insert("image_b64".to_owned(), picture);
    }
}

/// Returns the long texts of a value.
fn texts(value: &mut Value) -> Vec<&mut String> {
    match value {
        Value::String(text) if text.len() >= LEAST => vec![text],
        Value::Array(values) => values.iter_mut().flat_map(texts).collect(),
        Value::Object(fields) => fields.values_mut().flat_map(texts).collect(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Truncates a text in the middle and names the file with the complete text.
fn fitting(text: &str, limit: usize, at: &ToolContext) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let show = OutputBudget { head: limit / 2, tail: limit / 4 };
    let mut capture = StreamCapture::new(show, &at.session_dir.join("tools"), "result");
    capture.take(text.as_bytes());
    output::shown(&capture.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    static NONE: Registry = Registry::new(&[]);

    fn place(limit: usize) -> (ToolContext, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let at = ToolContext::quiet(&NONE, dir.path(), dir.path().join("s"));
        (ToolContext { result_limit: limit, ..at }, dir)
    }

    #[test]
    fn the_limit_depends_on_the_window() {
        assert_eq!(for_window(32_000), 24_000);
        assert_eq!(for_window(100), LEAST);
        assert_eq!(for_window(1_000_000), MOST);
    }

    #[test]
    fn a_long_result_is_truncated_and_saved_in_full() {
        let (at, dir) = place(5_000);
        let long: String = (0..5_000).map(|n| format!("line {n} é\n")).collect();
        let mut outcome = ToolOutput::done(long.clone());
        shorten(&mut outcome, &at);
        assert!(outcome.text.len() < 5_200 && outcome.text.contains("[truncated"));
        assert!(outcome.text.starts_with("line 0 é\n") && outcome.text.ends_with("line 4999 é\n"));
        let kept = std::fs::read_dir(dir.path().join("s/tools")).unwrap().next().unwrap().unwrap();
        assert!(outcome.text.contains(&*kept.path().to_string_lossy()));
        assert_eq!(std::fs::read_to_string(kept.path()).unwrap(), long);
    }

    #[test]
    fn a_truncated_json_result_stays_valid_and_keeps_its_status() {
        let (at, _dir) = place(20_000);
        let long = "x\n".repeat(50_000);
        let of = |metadata: Value| {
            let mut outcome = ToolOutput::done("").with(metadata);
            shorten_fields(&mut outcome, &at);
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
