//! The memory tools: notes about the workspace, and the user's own memories.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::files;
use serde::Deserialize;
use serde_json::json;

use gate::permission_mode::PermissionMode;
use gate::{Access, paths};
use memory::Memory;
use memory::note_index::{MAX_KEY, NoteNames};
use memory::notes::{self, MAX_CHARS, MergedNotes};
use memory::search::text_of;
use memory::store::{MemoryStore, NewMemory};
use tools::call::Invocation;
use tools::fs::{open, read_tracker};
use tools::image::kind::ImageKind;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, PathRule, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Notes {
    notes: String,
}

#[derive(Deserialize)]
struct Search {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    value: String,
    image: Option<String>,
}

/// Default number of memories returned.
const DEFAULT_LIMIT: usize = 10;
/// Maximum number of memories returned.
const MAX_HITS: usize = 100;
/// Maximum number of characters of a memory shown by a search.
const MAX_PREVIEW: usize = 200;
/// Maximum size of a value in bytes.
const MAX_VALUE: usize = 1 << 20;
/// Maximum size of an image in bytes.
const MAX_PICTURE: u64 = 20 << 20;
/// Maximum number of attempts to index notes that keep changing.
const MAX_INDEX_ATTEMPTS: usize = 3;

/// Returns the access for writing notes. The file named by the user needs no permission, except in
/// plan mode.
fn accesses(call: &Invocation<'_>) -> Vec<Access> {
    let named = call.context.memory.notes.is_some()
        && call.context.gate.permission_mode() != PermissionMode::Plan;
    if named { Vec::new() } else { vec![Access::Write(call.path.clone())] }
}

/// The tool that writes notes about the workspace.
pub(crate) struct RememberTool;

impl Tool for RememberTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("memory.notes", Effect::Writes)
            .with_path(PathRule::Fixed(|context| context.memory.notes_file(&context.cwd)))
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { access: accesses(call), ..CallScope::writing(Vec::new(), &call.path) }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(remember(call))
    }
}

/// Merges notes into the workspace's file.
async fn remember(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Notes { notes } = call.decode()?;
    if notes.trim().is_empty() {
        return Err(ToolError::invalid("remember: `notes` is empty"));
    }
    let memory = &call.context.memory;
    let result = {
        let _lock = lock(&call.path).await?;
        merge(call, &notes)?
    };
    memory.novelty.notes_taken();
    let index_result = if memory.shared { index(call, &result).await } else { Ok(()) };
    let mut text = match result.added {
        0 => "No change: these notes are already in memory.".to_owned(),
        _ => "Memory updated.".to_owned(),
    };
    text.push_str(&format!(" Size: {}", result.size()));
    if result.added > 0 && result.dropped > 0 {
        text.push_str(&format!(" ({} of the notes were already there)", result.dropped));
    }
    if let Err(reason) = index_result {
        text.push_str(&format!("\n[memory_search will not find them: {reason}]"));
    }
    let metadata = json!({
        "path": call.path, "added": result.added, "dropped": result.dropped,
        "chars": result.text.chars().count(),
    });
    Ok(ToolOutput::success(text).titled(format!("noted {}", result.added)).with(metadata))
}

/// Locks the notes against other g3 processes: locks their directory, which leaves no file there.
/// Blocks on a separate thread.
async fn lock(notes: &Path) -> Result<OwnedFd, ToolError> {
    let dir = notes.parent().unwrap_or(notes).to_owned();
    let display_path = dir.display().to_string();
    let lock_task = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&dir)?;
        let lock_fd = OwnedFd::from(std::fs::File::open(&dir)?);
        rustix::fs::flock(&lock_fd, rustix::fs::FlockOperation::LockExclusive)?;
        Ok::<_, std::io::Error>(lock_fd)
    });
    let lock_task = lock_task.await.map_err(std::io::Error::other).flatten();
    lock_task.map_err(|error| ToolError::io(&format!("cannot lock {display_path}"), &error))
}

/// Updates the user's memories from the notes. If another g3 process changed the notes in the
/// meantime, uses its version.
async fn index(call: &Invocation<'_>, merged: &MergedNotes) -> Result<(), String> {
    let names = names(call);
    let mut text = merged.text.clone();
    for _ in 0..MAX_INDEX_ATTEMPTS {
        call.context.memory.index(&names, &text, &merged.changed_topics).await?;
        match open::read(&call.path).map(|content| String::from_utf8(content.bytes)) {
            Ok(Ok(now)) if now != text => text = now,
            Ok(_) | Err(_) => break,
        }
    }
    Ok(())
}

/// Returns the keys of this workspace's notes among the memories.
fn names(call: &Invocation<'_>) -> NoteNames {
    let memory = &call.context.memory;
    let root = paths::follow(&call.context.root).unwrap_or_else(|_| call.context.root.clone());
    NoteNames::new(memory.notes.as_deref().unwrap_or(&root))
}

fn merge(call: &Invocation<'_>, notes: &str) -> Result<MergedNotes, ToolError> {
    let path = &call.path;
    let file_error = |error: &std::io::Error| {
        ToolError::io(&format!("cannot write the notes in {}", path.display()), error)
    };
    let before = match open::read(path) {
        Ok(content) => content.bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(file_error(&error)),
    };
    let before = String::from_utf8(before).map_err(|_| {
        ToolError::failed(format!("{} is not UTF-8 text; nothing was written", path.display()))
    })?;
    let now = Clock::from_env().now();
    let merged = notes::merge(&before, notes, &format!("{now:.0}"));
    if merged.added == 0 {
        return Ok(MergedNotes { text: before, ..merged });
    }
    let (size, max) = (merged.text.chars().count(), MAX_CHARS as f64 / 1e3);
    if size > MAX_CHARS {
        return Err(ToolError::failed(format!(
            "nothing was noted: {} would have {}, and {max:.0}k fit, because all of it is in \
             every prompt. Make room first: edit the file, drop what no longer holds or what the \
             code itself says, put what is left in fewer words. Then call remember again",
            path.display(),
            merged.size()
        )));
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| file_error(&error))?;
    }
    files::step("g3.memory.notes");
    open::replace(path, merged.text.as_bytes()).map_err(|error| file_error(&error))?;
    read_tracker::record(&call.context.session_dir, path, merged.text.as_bytes());
    Ok(merged)
}

/// The tool that searches the user's memories.
pub(crate) struct MemorySearchTool;

impl Tool for MemorySearchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("memory.search", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("memory")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(search(call))
    }
}

/// Finds memories by words and by vectors.
async fn search(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Search { query, limit } = call.decode()?;
    if query.trim().is_empty() {
        return Err(ToolError::invalid("memory_search: `query` is empty"));
    }
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(MAX_HITS);
    let results = call.context.memory.search(&query, limit).await.map_err(ToolError::failed)?;
    let mut text = match results.hits.len() {
        0 => "No memories found".to_owned(),
        1 => "Found 1 memory:".to_owned(),
        count => format!("Found {count} memories:"),
    };
    for (index, hit) in results.hits.iter().enumerate() {
        let image = if hit.memory.image.is_some() { " [image]" } else { "" };
        let (key, preview) = (&hit.memory.key, preview(&hit.memory.value));
        text.push_str(&format!("\n{}. [{key}] {:.3}{image}\n   {preview}", index + 1, hit.score));
    }
    results.notes.iter().for_each(|note| text.push_str(&format!("\n[note: {note}]")));
    let hits = results.hits.iter().map(|hit| json!({ "key": hit.memory.key, "score": hit.score }));
    let metadata = json!({ "count": results.hits.len(), "hits": hits.collect::<Vec<_>>() });
    Ok(ToolOutput::success(text).with(metadata))
}

/// Returns the start of a value on one line.
fn preview(value: &str) -> String {
    let one_line = value.split_whitespace().collect::<Vec<_>>().join(" ");
    if one_line.chars().count() <= MAX_PREVIEW {
        return one_line;
    }
    format!("{}…", one_line.chars().take(MAX_PREVIEW - 1).collect::<String>())
}

/// The tool that returns one memory.
pub(crate) struct MemoryGetTool;

impl Tool for MemoryGetTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("memory.get", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("memory")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(recall(call))
    }
}

/// Returns one memory in full.
async fn recall(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Key { key } = call.decode()?;
    let key = check_key(&key)?;
    let (requested_key, renamed) = (key.clone(), names(call).current_key(&key));
    let get = move |store: &mut MemoryStore| match (store.get(&requested_key)?, &renamed) {
        (None, Some(renamed)) => store.get(renamed),
        (memo, _) => Ok(memo),
    };
    let result = call.context.memory.with_store(get).await;
    let (memo, notice) = result.map_err(ToolError::failed)?;
    let Some(memo) = memo else {
        let notice = notice.map(|text| format!("\n[note: {text}]")).unwrap_or_default();
        let text = format!("Memory not found: {key}. memory_search finds keys{notice}");
        return Err(ToolError::new(ToolErrorKind::NotFound, text));
    };
    let image = memo.image.as_ref().map(|path| format!("\nImage: {path}")).unwrap_or_default();
    let metadata = json!({
        "key": memo.key, "category": memo.category,
        "created_at": memo.created_at, "updated_at": memo.updated_at,
    });
    Ok(ToolOutput::success(format!("[{}]\n{}{image}", memo.key, memo.value)).with(metadata))
}

/// The tool that stores a memory.
pub(crate) struct MemorySetTool;

impl Tool for MemorySetTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("memory.set", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { access: picture_access(call), ..CallScope::keyed("memory") }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(store_memory(call))
    }
}

/// Stores one memory.
async fn store_memory(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Pair { key, value, image } = call.decode()?;
    let key = check_key(&key)?;
    if value.trim().is_empty() || value.len() > MAX_VALUE {
        return Err(ToolError::invalid(
            "memory_set: `value` must hold something, and 1 MiB at most",
        ));
    }
    let image = match image.filter(|path| !path.trim().is_empty()) {
        Some(_) => Some(call.blocking(keep_picture).await?.text),
        None => None,
    };
    let stored_memory =
        store(&call.context.memory, &key, &value, image).await.map_err(ToolError::failed)?;
    let notes: String =
        stored_memory.notes.iter().map(|note| format!("\n[note: {note}]")).collect();
    let metadata = json!({ "key": key, "new": stored_memory.is_new });
    Ok(ToolOutput::success(format!("Memory stored: {key}{notes}")).with(metadata))
}

/// Returns the access for reading the image of a memory.
fn picture_access(call: &Invocation<'_>) -> Vec<Access> {
    picture(call).map(Access::Read).into_iter().collect()
}

fn picture(call: &Invocation<'_>) -> Option<PathBuf> {
    let raw = call.text("image").trim();
    (!raw.is_empty()).then(|| paths::resolve(&call.context.cwd, raw).ok()).flatten()
}

/// Copies the image to the memory store, so that it outlives the file. Returns its new path.
fn keep_picture(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let image = call.text("image");
    let invalid =
        |error: String| ToolError::invalid(format!("memory_set: `image` {image}: {error}"));
    let file = picture(call).ok_or_else(|| invalid("it cannot be found".to_owned()))?;
    let content =
        open::read_at_most(&file, MAX_PICTURE).map_err(|error| invalid(error.to_string()))?;
    let kind = ImageKind::of(&content.bytes).map_err(invalid)?;
    let extension = kind.media_type().trim_start_matches("image/");
    let kept_path = call.context.memory.store_image(&content.bytes, extension);
    let kept_path = kept_path.map_err(|error| ToolError::io("cannot keep the picture", &error))?;
    Ok(ToolOutput::success(kept_path.display().to_string()))
}

fn check_key(key: &str) -> Result<String, ToolError> {
    let key = key.trim();
    let is_valid =
        !key.is_empty() && key.chars().count() <= MAX_KEY && !key.chars().any(char::is_control);
    let text = "`key` must be one line of 1 to 200 characters";
    is_valid.then(|| key.to_owned()).ok_or_else(|| ToolError::invalid(text))
}

/// The result of storing a memory.
struct Stored {
    is_new: bool,
    notes: Vec<String>,
}

/// Stores a memory with its vector. A memory without a vector is found by its words.
async fn store(
    memory: &Memory,
    key: &str,
    value: &str,
    image: Option<String>,
) -> Result<Stored, String> {
    let mut notes = Vec::new();
    let mut vector = None;
    match memory.embedder(&mut notes).await {
        Ok(embedder) => match embedder.embed(&[text_of(key, value)]).await {
            Ok(vectors) => {
                vector = vectors.into_iter().next().map(|v| (embedder.name().to_owned(), v))
            }
            Err(reason) => notes.push(format!("found by its words only: {reason}")),
        },
        Err(reason) => notes.push(format!("found by its words only: {reason}")),
    }
    let (key, value) = (key.to_owned(), value.to_owned());
    memory.log("SET", &key, &value);
    let now = Clock::from_env().stamp();
    let new = NewMemory { key, value, category: "general", image, vector, now };
    let (is_new, notice) = memory.with_store(move |store| store.set(&new)).await?;
    notes.extend(notice);
    Ok(Stored { is_new, notes })
}
