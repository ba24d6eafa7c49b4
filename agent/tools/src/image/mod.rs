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
const MOST: usize = 10;
/// Maximum size in bytes of a file that is opened.
const MAX_FILE: u64 = 64 << 20;
/// Maximum total size in bytes of the images of a call, as base64. The Messages API accepts
/// requests of at most 32 MB, which include the conversation.
const IN_ALL: usize = 12_000_000;

/// Only one image is in memory at a time, regardless of the number of calls.
static ONE: Mutex<()> = Mutex::const_new(());

/// A file named by the call, or why its path cannot be resolved.
type NamedImage = (String, std::io::Result<PathBuf>);

/// The report on one path.
struct ImageReport {
    shown: String,
    line: String,
    facts: Value,
}

/// Returns the files that a call names, as far as they can be resolved.
fn files(call: &Invocation<'_>) -> Vec<PathBuf> {
    let named = named(call).unwrap_or_default();
    named.into_iter().filter_map(|(_, path)| path.ok()).collect()
}

fn named(call: &Invocation<'_>) -> Result<Vec<NamedImage>, ToolError> {
    let Args { paths, path } = call.decode()?;
    let wrong = |why: &str| Err(ToolError::invalid(format!("{}: {why}", call.face.name)));
    let raws = match (paths, path) {
        (paths, None) => paths,
        (paths, Some(path)) if paths.is_empty() || paths == [path.as_str()] => vec![path],
        (_, Some(_)) => {
            return wrong("`file_paths` and `file_path` contradict each other: give one of them");
        }
    };
    if raws.is_empty() {
        return wrong("missing required parameter `file_paths`: name at least one picture");
    }
    if raws.len() > MOST {
        let why = format!("{} pictures are too many: at most {MOST} in one call", raws.len());
        return wrong(&why);
    }
    let resolved = |raw: String| {
        let path = paths::resolve(&call.at.cwd, &raw);
        (raw, path)
    };
    Ok(raws.into_iter().map(resolved).collect())
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
    let named = named(call)?;
    let (mut images, mut given, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut room, mut kinds) = (IN_ALL, Vec::new());
    for (raw, path) in named {
        let shown = path.as_ref().map_or_else(|_| raw.clone(), |path| call.shown(path));
        match one(call, path, room).await {
            Ok(ready) => {
                room -= base64_length(ready.bytes.len());
                let place = images.len() + 1;
                let line = format!("Picture {place}: {shown}: {}", ready.told());
                given.push(ImageReport { facts: ready.facts(&shown), shown, line });
                images.push(image(&ready));
            }
            Err(trouble) if trouble.kind == ToolErrorKind::Cancelled => return Err(trouble),
            Err(ToolError { kind, text }) => {
                kinds.push(kind);
                let line = format!("Not given: {shown}: {text}");
                failed.push(ImageReport {
                    facts: json!({ "path": shown, "why": text }),
                    shown,
                    line,
                });
            }
        }
    }
    let lines: Vec<&str> = given.iter().chain(&failed).map(|told| told.line.as_str()).collect();
    let text = lines.join("\n");
    if given.is_empty() {
        let same = kinds.iter().all(|kind| *kind == kinds[0]);
        return Err(ToolError::new(if same { kinds[0] } else { ToolErrorKind::Failed }, text));
    }
    let title: Vec<&str> = given.iter().map(|told| told.shown.as_str()).collect();
    let facts = |all: &[ImageReport]| all.iter().map(|told| told.facts.clone()).collect::<Vec<_>>();
    let metadata = json!({ "pictures": facts(&given), "failed": facts(&failed) });
    let outcome = ToolOutput::done(text).titled(format!("looked at {}", title.join(", ")));
    Ok(ToolOutput { images, ..outcome.with(metadata) })
}

fn image(ready: &ReadyImage) -> Image {
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(&ready.bytes);
    Image { media_type: ready.kind.media_type().to_owned(), data }
}

/// Prepares a PNG for a model. Returns it with its description.
pub fn of_png(bytes: Vec<u8>) -> Result<(Image, String), String> {
    let ready = prepare::ready(ImageKind::Png, bytes, IN_ALL / 4 * 3)?;
    Ok((image(&ready), ready.told()))
}

/// Prepares an image file for a model. Returns it with its description. The error is a sentence.
pub fn of_file(path: &std::path::Path) -> Result<(Image, String), String> {
    let bytes = open::read_at_most(path, MAX_FILE).map_err(|why| why.to_string())?.bytes;
    let ready = prepare::ready(ImageKind::of(&bytes)?, bytes, IN_ALL / 4 * 3)?;
    Ok((image(&ready), ready.told()))
}

/// Reads one image on a separate thread.
async fn one(
    call: &Invocation<'_>,
    path: std::io::Result<PathBuf>,
    room: usize,
) -> Result<ReadyImage, ToolError> {
    let path = path.map_err(|why| ToolError::io("no such path", &why))?;
    let work = async {
        let _one = ONE.lock().await;
        let read = move || {
            let file = open::read_at_most(&path, MAX_FILE);
            let bytes = file.map_err(|why| ToolError::io("cannot read it", &why))?.bytes;
            let kind = ImageKind::of(&bytes).map_err(ToolError::failed)?;
            prepare::ready(kind, bytes, room / 4 * 3).map_err(ToolError::failed)
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.unwrap_or_else(|_| Err(ToolError::failed("the picture is damaged: its decoder broke")))
    };
    let cancelled = || ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user");
    call.at.cancel.run_until_cancelled(work).await.ok_or_else(cancelled)?
}

fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}
