//! Converts a server's result for the model: text, images, and files for other content.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

use provider::message::Image;
use tools::exec::output;
use tools::exec::output::{OutputBudget, StreamCapture};
use tools::output::{ToolErrorKind, ToolOutput};

/// How much of a long text is shown; the full text is saved to a file.
const OUTPUT_BUDGET: OutputBudget = OutputBudget { head: 6_000, tail: 10_000 };
/// The image formats that models accept.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Maximum size of an attached image in base64 bytes; larger ones are saved to a file.
const MAX_IMAGE: usize = 5 << 20;

/// Returns the outcome of a call. Content that cannot be shown is saved to files in `directory`.
pub(crate) fn to_tool_output(result: CallToolResult, directory: &Path) -> ToolOutput {
    let failed = result.is_error == Some(true);
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for block in result.content {
        match block {
            ContentBlock::Text(text) => texts.push(text.text),
            ContentBlock::Image(image)
                if IMAGE_TYPES.contains(&image.mime_type.as_str())
                    && image.data.len() <= MAX_IMAGE =>
            {
                images.push(Image { media_type: image.mime_type, data: image.data });
            }
            ContentBlock::Image(image) => {
                texts.push(save_file("a picture", &image.mime_type, &image.data, directory));
            }
            ContentBlock::Audio(audio) => {
                texts.push(save_file("a sound", &audio.mime_type, &audio.data, directory));
            }
            ContentBlock::Resource(resource) => texts.push(embedded(resource.resource, directory)),
            ContentBlock::ResourceLink(link) => {
                let description =
                    link.description.map(|text| format!(": {text}")).unwrap_or_default();
                texts.push(format!("[resource {} at {}{description}]", link.name, link.uri));
            }
            // The enum of the protocol is non-exhaustive.
            other => texts.push(serde_json::to_string(&other).unwrap_or_default()),
        }
    }
    let structured = result.structured_content;
    if texts.iter().all(|text| text.trim().is_empty())
        && let Some(value) = &structured
    {
        texts = vec![serde_json::to_string_pretty(value).unwrap_or_default()];
    }
    let text = truncate(&texts.join("\n"), directory);
    let text = match (text.trim().is_empty(), failed, images.is_empty()) {
        (false, ..) => text,
        (true, true, _) => "the tool failed and did not say why".to_owned(),
        (true, false, true) => "done; the tool said nothing".to_owned(),
        (true, false, false) => "a picture".to_owned(),
    };
    let mut output = if failed {
        ToolOutput::failed(ToolErrorKind::Failed, text)
    } else {
        ToolOutput::success(text)
    };
    output.images = images;
    output.metadata = structured.map_or(Value::Null, |value| json!({ "structured": value }));
    output
}

fn embedded(resource: ResourceContents, directory: &Path) -> String {
    match resource {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let kind = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            save_file(&uri, &kind, &blob, directory)
        }
        // The enum of the protocol is non-exhaustive.
        other => serde_json::to_string(&other).unwrap_or_default(),
    }
}

/// Saves bytes to a file and describes it.
fn save_file(subject: &str, kind: &str, base64: &str, directory: &Path) -> String {
    match file(kind, base64, directory) {
        Ok(path) => format!("[{subject} ({kind}) was written to {path}]"),
        Err(error) => format!("[{subject} ({kind}) could not be kept: {error}]"),
    }
}

fn file(kind: &str, base64: &str, directory: &Path) -> std::io::Result<String> {
    let bytes = STANDARD.decode(base64).map_err(std::io::Error::other)?;
    std::fs::create_dir_all(directory)?;
    let end = kind.rsplit('/').next().unwrap_or_default();
    let end: String = end.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    let file = tempfile::Builder::new()
        .prefix("mcp-")
        .suffix(&format!(".{end}"))
        .tempfile_in(directory)?;
    std::fs::write(file.path(), bytes)?;
    let (_, path) = file.keep().map_err(|e| e.error)?;
    Ok(path.display().to_string())
}

fn truncate(text: &str, directory: &Path) -> String {
    let mut capture = StreamCapture::new(OUTPUT_BUDGET, directory, "mcp");
    capture.push(text.as_bytes());
    output::render(&capture.finish())
}

#[cfg(test)]
mod tests {
    use rmcp::model::Resource;

    use super::*;

    fn of(content: Vec<ContentBlock>) -> (ToolOutput, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (to_tool_output(CallToolResult::success(content), dir.path()), dir)
    }

    #[test]
    fn each_kind_of_content_reaches_the_model() {
        let (told, dir) = of(vec![
            ContentBlock::text("one"),
            ContentBlock::image("aGk=", "image/png"),
            ContentBlock::image("aGk=", "image/tiff"),
            ContentBlock::embedded_text("file:///a", "inside"),
            ContentBlock::resource_link(Resource::new("file:///b", "b")),
        ]);
        assert!(told.ok && told.images.len() == 1);
        for part in ["one\n", "image/tiff) was written to", "[file:///a]\ninside", "at file:///b]"]
        {
            assert!(told.text.contains(part), "{}", told.text);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn structured_content_replaces_missing_text_and_errors_are_failures() {
        let dir = tempfile::tempdir().unwrap();
        let told = to_tool_output(CallToolResult::structured(json!({"n": 1})), dir.path());
        assert!(told.text.contains("\"n\"") && told.metadata["structured"]["n"] == 1);
        let failed =
            to_tool_output(CallToolResult::error(vec![ContentBlock::text("no")]), dir.path());
        assert!(
            !failed.ok && failed.text == "no" && failed.error_kind == Some(ToolErrorKind::Failed)
        );
        assert_eq!(of(vec![]).0.text, "done; the tool said nothing");
    }

    #[test]
    fn a_long_text_is_truncated_and_saved_in_full() {
        let long = "0123456789".repeat(10_000);
        let (told, dir) = of(vec![ContentBlock::text(long.clone())]);
        assert!(told.text.len() < 20_000 && told.text.contains("[truncated"));
        let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), long);
    }
}
