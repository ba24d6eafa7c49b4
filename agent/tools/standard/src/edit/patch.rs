//! Applies a patch: all of it or nothing, or step by step if requested.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;

use super::apply_patch::{self, FileStep, Patch};
use super::atomic::{AtomicEdit, EditedFile, FileStatus};
use super::chunk;
use super::text::unwritten;
use gate::paths;
use tools::call::Invocation;
use tools::fs::read_tracker::EditFit;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    patch: String,
    #[serde(default)]
    mode: PatchMode,
    /// Whether deleting a missing file is ignored.
    #[serde(default)]
    skip_missing: bool,
}

/// A request to apply a patch.
pub(crate) struct PatchRequest {
    /// The patch as written.
    pub patch: String,
    /// The base of relative paths.
    pub from: PathBuf,
    /// Whether it is applied atomically.
    pub mode: PatchMode,
    /// Whether deleting a missing file is ignored.
    pub skip_missing: bool,
}

/// What happens to the steps before one that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PatchMode {
    /// They are not applied either.
    #[default]
    Atomic,
    /// They are applied.
    Sequential,
}

/// Returns the files of a call.
fn files(call: &Invocation<'_>) -> Vec<PathBuf> {
    order(call).map(|order| order.files()).unwrap_or_default()
}

fn order(call: &Invocation<'_>) -> Result<PatchRequest, ToolError> {
    let Args { patch, mode, skip_missing } = call.decode()?;
    Ok(PatchRequest { patch, from: call.path.clone(), mode, skip_missing })
}

impl PatchRequest {
    /// Returns the files that it writes; none if the patch is invalid.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let Ok(patch) = apply_patch::read(&self.patch) else { return Vec::new() };
        let all = patch.steps.iter().flat_map(FileStep::paths);
        let mut files: Vec<PathBuf> =
            all.filter_map(|path| paths::resolve(&self.from, path).ok()).collect();
        files.sort();
        files.dedup();
        files
    }
}

/// The tool that applies a patch to several files.
pub(crate) struct PatchTool;

impl Tool for PatchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("edit.patch", Effect::Writes).with_preview()
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::writing(files(call), &call.path)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(call.blocking(run))
    }
}

/// Applies the patch of a call.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    apply(call, &order(call)?)
}

/// Applies a patch.
pub(crate) fn apply(call: &Invocation<'_>, order: &PatchRequest) -> Result<ToolOutput, ToolError> {
    let read = apply_patch::read(&order.patch);
    let Patch { steps, mut notes } = read.map_err(|wrong| ToolError::invalid(wrong.told()))?;
    let mut draft = AtomicEdit::new(call);
    let mut failed = None;
    for step in &steps {
        match take(order, &mut draft, step) {
            Ok(more) => notes.extend(more),
            Err(why) => {
                failed = Some(why);
                break;
            }
        }
    }
    notes.append(&mut draft.notes);
    match failed {
        Some(why) if order.mode == PatchMode::Atomic => {
            Err(ToolError::new(why.kind, unwritten(&why.text)))
        }
        Some(why) => {
            let done = told(call, &draft.commit()?, &notes);
            let text = format!("{}. The steps before it were made:\n{}", why.text, done.text);
            Ok(ToolOutput { ok: false, error_kind: Some(why.kind), text, ..done })
        }
        None => Ok(told(call, &draft.commit()?, &notes)),
    }
}

/// Applies one step and returns the tolerated deviations.
fn take(
    order: &PatchRequest,
    draft: &mut AtomicEdit<'_, '_>,
    step: &FileStep,
) -> Result<Vec<String>, ToolError> {
    let place = |raw: &str| {
        paths::resolve(&order.from, raw).map_err(|why| ToolError::io(&format!("`{raw}`"), &why))
    };
    match step {
        FileStep::Add { path, text } => {
            let path = place(path)?;
            // A directory of that name is an error already here.
            draft.exists(&path)?;
            draft.put(&path, text.clone())?;
            Ok(Vec::new())
        }
        FileStep::Delete { path: raw } => {
            let path = place(raw)?;
            if !draft.exists(&path)? {
                return match order.skip_missing {
                    true => Ok(vec![format!("Skipped: {raw} is not there")]),
                    false => Err(missing("delete", raw)),
                };
            }
            draft.remove(&path)?;
            Ok(Vec::new())
        }
        FileStep::Update { path: raw, to, chunks } => {
            let path = place(raw)?;
            let Some(text) = draft.text(&path)? else { return Err(missing("update", raw)) };
            let made = chunk::apply(&text, chunks)
                .map_err(|why| ToolError::failed(draft.explain(&path, format!("{raw}: {why}"))))?;
            let fit = if made.notes.is_empty() { EditFit::Exact } else { EditFit::Loose };
            let notes = made.notes.into_iter().map(|note| format!("{raw}: {note}")).collect();
            match to {
                Some(to) => draft.rename(&path, &place(to)?, (made.text, fit))?,
                None => draft.edit(&path, made.text, fit)?,
            }
            Ok(notes)
        }
    }
}

fn missing(what: &str, raw: &str) -> ToolError {
    ToolError::new(ToolErrorKind::NotFound, format!("cannot {what} {raw}: no such file"))
}

fn told(call: &Invocation<'_>, changed: &[EditedFile], notes: &[String]) -> ToolOutput {
    let sum = |of: fn(&EditedFile) -> usize| changed.iter().map(of).sum::<usize>();
    let (additions, deletions) =
        (sum(|file| file.difference.additions), sum(|file| file.difference.deletions));
    let title = format!("Updated {} file(s) (+{additions} -{deletions})", changed.len());
    let mut text = format!("Success. {title}");
    for file in changed {
        text.push_str(&format!("\n{} {}", letter(file.status), call.display_path(&file.path)));
    }
    notes.iter().for_each(|note| text.push_str(&format!("\n[note: {note}]")));
    let count = |status| changed.iter().filter(|file| file.status == status).count();
    let row = |file: &EditedFile| {
        json!({
            "path": file.path, "status": letter(file.status),
            "additions": file.difference.additions, "deletions": file.difference.deletions,
        })
    };
    let metadata = json!({
        "added": count(FileStatus::Added),
        "modified": count(FileStatus::Modified),
        "deleted": count(FileStatus::Deleted),
        "additions": additions,
        "deletions": deletions,
        "files": changed.iter().map(row).collect::<Vec<_>>(),
        "notes": notes,
    });
    ToolOutput::success(text).titled(title).with(metadata)
}

fn letter(status: FileStatus) -> &'static str {
    match status {
        FileStatus::Added => "A",
        FileStatus::Modified => "M",
        FileStatus::Deleted => "D",
    }
}
