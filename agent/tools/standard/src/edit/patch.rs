//! Applies a patch: all of it or nothing, or step by step if requested.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;

use super::apply_patch::{self, FileStep, Patch};
use super::atomic::{AtomicEdit, EditedFile, FileStatus};
use super::chunk;
use super::text::not_written;
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
    patch_request(call).map(|request| request.files()).unwrap_or_default()
}

fn patch_request(call: &Invocation<'_>) -> Result<PatchRequest, ToolError> {
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
    apply(call, &patch_request(call)?)
}

/// Applies a patch.
pub(crate) fn apply(
    call: &Invocation<'_>,
    request: &PatchRequest,
) -> Result<ToolOutput, ToolError> {
    let read = apply_patch::read(&request.patch);
    let Patch { steps, mut notes } = read.map_err(|error| ToolError::invalid(error.message()))?;
    let mut draft = AtomicEdit::new(call);
    let mut failure = None;
    for step in &steps {
        match apply_step(request, &mut draft, step) {
            Ok(step_notes) => notes.extend(step_notes),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    notes.append(&mut draft.notes);
    match failure {
        Some(error) if request.mode == PatchMode::Atomic => {
            Err(ToolError::new(error.kind, not_written(&error.text)))
        }
        Some(error) => {
            let output = report(call, &draft.commit()?, &notes);
            let text = format!("{}. The steps before it were made:\n{}", error.text, output.text);
            Ok(ToolOutput { ok: false, error_kind: Some(error.kind), text, ..output })
        }
        None => Ok(report(call, &draft.commit()?, &notes)),
    }
}

/// Applies one step and returns the tolerated deviations.
fn apply_step(
    request: &PatchRequest,
    draft: &mut AtomicEdit<'_, '_>,
    step: &FileStep,
) -> Result<Vec<String>, ToolError> {
    let resolve = |raw: &str| {
        paths::resolve(&request.from, raw)
            .map_err(|error| ToolError::io(&format!("`{raw}`"), &error))
    };
    match step {
        FileStep::Add { path, text } => {
            let path = resolve(path)?;
            // A directory of that name is an error already here.
            draft.exists(&path)?;
            draft.write_new(&path, text.clone())?;
            Ok(Vec::new())
        }
        FileStep::Delete { path: raw } => {
            let path = resolve(raw)?;
            if !draft.exists(&path)? {
                return match request.skip_missing {
                    true => Ok(vec![format!("Skipped: {raw} is not there")]),
                    false => Err(missing("delete", raw)),
                };
            }
            draft.remove(&path)?;
            Ok(Vec::new())
        }
        FileStep::Update { path: raw, to, chunks } => {
            let path = resolve(raw)?;
            let Some(text) = draft.text(&path)? else { return Err(missing("update", raw)) };
            let changed = chunk::apply(&text, chunks).map_err(|error| {
                ToolError::failed(draft.explain(&path, format!("{raw}: {error}")))
            })?;
            let fit = if changed.notes.is_empty() { EditFit::Exact } else { EditFit::Loose };
            let notes = changed.notes.into_iter().map(|note| format!("{raw}: {note}")).collect();
            match to {
                Some(to) => draft.rename(&path, &resolve(to)?, (changed.text, fit))?,
                None => draft.edit(&path, changed.text, fit)?,
            }
            Ok(notes)
        }
    }
}

fn missing(what: &str, raw: &str) -> ToolError {
    ToolError::new(ToolErrorKind::NotFound, format!("cannot {what} {raw}: no such file"))
}

fn report(call: &Invocation<'_>, changed: &[EditedFile], notes: &[String]) -> ToolOutput {
    let sum_of = |of: fn(&EditedFile) -> usize| changed.iter().map(of).sum::<usize>();
    let (additions, deletions) =
        (sum_of(|file| file.difference.additions), sum_of(|file| file.difference.deletions));
    let title = format!("Updated {} file(s) (+{additions} -{deletions})", changed.len());
    let mut text = format!("Success. {title}");
    for file in changed {
        text.push_str(&format!(
            "\n{} {}",
            status_letter(file.status),
            call.display_path(&file.path)
        ));
    }
    notes.iter().for_each(|note| text.push_str(&format!("\n[note: {note}]")));
    let count = |status| changed.iter().filter(|file| file.status == status).count();
    let row = |file: &EditedFile| {
        json!({
            "path": file.path, "status": status_letter(file.status),
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

fn status_letter(status: FileStatus) -> &'static str {
    match status {
        FileStatus::Added => "A",
        FileStatus::Modified => "M",
        FileStatus::Deleted => "D",
    }
}
