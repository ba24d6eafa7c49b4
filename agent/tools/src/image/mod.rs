//! Reads images for the model: several per call, each scaled to fit, within a total size.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::kind::ImageKind;
use self::prepare::ReadyImage;
use super::call::Invocation;
use super::fs::open;
use super::kind::Effect;
use super::output::{ToolError, ToolErrorKind, ToolOutput};
use super::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use gate::paths;
use provider::message::Image;

pub mod kind;
pub mod metadata;
pub mod prepare;

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    paths: Vec<String>,
    path: Option<String>,
}

/// Maximum number of images per call.
const MAX_IMAGES: usize = 10;
/// Maximum size in bytes of a file that is opened.
const MAX_FILE: u64 = 64 << 20;
/// Maximum total size in bytes of the images of a call, as base64. The Messages API accepts
/// requests of at most 32 MB, which include the conversation.
const MAX_TOTAL: usize = 12_000_000;

/// Only one image is in memory at a time, regardless of the number of calls.
static MEMORY_LOCK: Mutex<()> = Mutex::const_new(());

/// A file named by the call, or why its path cannot be resolved.
type NamedImage = (String, std::io::Result<PathBuf>);

/// The report on one path.
struct ImageReport {
    display_path: String,
    line: String,
    metadata: Value,
}

/// Returns the files that a call names, as far as they can be resolved.
fn files(call: &Invocation<'_>) -> Vec<PathBuf> {
    let named_images = named_images(call).unwrap_or_default();
    named_images.into_iter().filter_map(|(_, path)| path.ok()).collect()
}

fn named_images(call: &Invocation<'_>) -> Result<Vec<NamedImage>, ToolError> {
    let Args { paths, path } = call.decode()?;
    let invalid =
        |reason: &str| Err(ToolError::invalid(format!("{}: {reason}", call.profile_tool.name)));
    let raw_paths = match (paths, path) {
        (paths, None) => paths,
        (paths, Some(path)) if paths.is_empty() || paths == [path.as_str()] => vec![path],
        (_, Some(_)) => {
            return invalid("`file_paths` and `file_path` contradict each other: give one of them");
        }
    };
    if raw_paths.is_empty() {
        return invalid("missing required parameter `file_paths`: name at least one picture");
    }
    if raw_paths.len() > MAX_IMAGES {
        let reason =
            format!("{} pictures are too many: at most {MAX_IMAGES} in one call", raw_paths.len());
        return invalid(&reason);
    }
    let resolve = |raw: String| {
        let path = paths::resolve(&call.context.cwd, &raw);
        (raw, path)
    };
    Ok(raw_paths.into_iter().map(resolve).collect())
}

/// The tool that shows images to the model.
pub struct ImageTool;

impl Tool for ImageTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("image.read", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { files: Vec::new(), ..CallScope::reading(files(call)) }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Reads the images. Names those that cannot be read; the others are still returned.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let named_images = named_images(call)?;
    let (mut images, mut loaded, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut remaining, mut kinds) = (MAX_TOTAL, Vec::new());
    for (raw, path) in named_images {
        let display_path =
            path.as_ref().map_or_else(|_| raw.clone(), |path| call.display_path(path));
        match read_image(call, path, remaining).await {
            Ok(ready) => {
                remaining -= base64_length(ready.bytes.len());
                let number = images.len() + 1;
                let line = format!("Picture {number}: {display_path}: {}", ready.describe());
                loaded.push(ImageReport {
                    metadata: ready.to_json(&display_path),
                    display_path,
                    line,
                });
                images.push(encode_image(&ready));
            }
            Err(error) if error.kind == ToolErrorKind::Cancelled => return Err(error),
            Err(ToolError { kind, text }) => {
                kinds.push(kind);
                let line = format!("Not given: {display_path}: {text}");
                failed.push(ImageReport {
                    metadata: json!({ "path": display_path, "why": text }),
                    display_path,
                    line,
                });
            }
        }
    }
    let lines: Vec<&str> =
        loaded.iter().chain(&failed).map(|report| report.line.as_str()).collect();
    let text = lines.join("\n");
    if loaded.is_empty() {
        let is_same_kind = kinds.iter().all(|kind| *kind == kinds[0]);
        return Err(ToolError::new(
            if is_same_kind { kinds[0] } else { ToolErrorKind::Failed },
            text,
        ));
    }
    let title: Vec<&str> = loaded.iter().map(|report| report.display_path.as_str()).collect();
    let all_metadata =
        |all: &[ImageReport]| all.iter().map(|report| report.metadata.clone()).collect::<Vec<_>>();
    let metadata = json!({ "pictures": all_metadata(&loaded), "failed": all_metadata(&failed) });
    let outcome = ToolOutput::success(text).titled(format!("looked at {}", title.join(", ")));
    Ok(ToolOutput { images, ..outcome.with(metadata) })
}

fn encode_image(ready: &ReadyImage) -> Image {
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(&ready.bytes);
    Image { media_type: ready.kind.media_type().to_owned(), data }
}

/// Prepares a PNG for a model. Returns it with its description.
pub fn prepare_png(bytes: Vec<u8>) -> Result<(Image, String), String> {
    let ready = prepare::prepare(ImageKind::Png, bytes, MAX_TOTAL / 4 * 3)?;
    Ok((encode_image(&ready), ready.describe()))
}

/// Prepares an image file for a model. Returns it with its description. The error is a sentence.
pub fn prepare_file(path: &std::path::Path) -> Result<(Image, String), String> {
    let bytes = open::read_at_most(path, MAX_FILE).map_err(|error| error.to_string())?.bytes;
    let ready = prepare::prepare(ImageKind::of(&bytes)?, bytes, MAX_TOTAL / 4 * 3)?;
    Ok((encode_image(&ready), ready.describe()))
}

/// Reads one image on a separate thread.
async fn read_image(
    call: &Invocation<'_>,
    path: std::io::Result<PathBuf>,
    max_bytes: usize,
) -> Result<ReadyImage, ToolError> {
    let path = path.map_err(|error| ToolError::io("no such path", &error))?;
    let task = async {
        let _lock = MEMORY_LOCK.lock().await;
        let read = move || {
            let file = open::read_at_most(&path, MAX_FILE);
            let bytes = file.map_err(|error| ToolError::io("cannot read it", &error))?.bytes;
            let kind = ImageKind::of(&bytes).map_err(ToolError::failed)?;
            prepare::prepare(kind, bytes, max_bytes / 4 * 3).map_err(ToolError::failed)
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|_| Err(ToolError::failed("the picture is damaged: its decoder broke")))
    };
    let cancelled = || ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user");
    call.context.cancel.run_until_cancelled(task).await.ok_or_else(cancelled)?
}

fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}
