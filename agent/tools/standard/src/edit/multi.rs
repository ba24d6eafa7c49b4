//! Several replacements in one or more files: all of them, or none.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::atomic::{AtomicEdit, EditedFile};
use super::replace::{self, Replacement};
use super::text::not_written;
use gate::paths;
use tools::call::Invocation;
use tools::fs::read_tracker::EditFit;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    edits: Vec<Value>,
    path: Option<String>,
}

/// A replacement, with the parameter names that models of other agents use as well.
#[derive(Deserialize)]
struct Edit {
    #[serde(rename = "filePath", alias = "file_path", alias = "path")]
    path: Option<String>,
    #[serde(rename = "oldString", alias = "old_string", alias = "old_text")]
    old: String,
    #[serde(rename = "newString", alias = "new_string", alias = "new_text")]
    new: String,
    #[serde(default, rename = "replaceAll", alias = "replace_all")]
    all: Value,
}

/// Returns the files of a call.
fn files(call: &Invocation<'_>) -> Vec<PathBuf> {
    let Ok(edits) = edits(call) else { return Vec::new() };
    let mut files: Vec<PathBuf> = edits.into_iter().map(|(path, _)| path).collect();
    files.sort();
    files.dedup();
    files
}

fn edits(call: &Invocation<'_>) -> Result<Vec<(PathBuf, Replacement)>, ToolError> {
    let Args { edits, path: default_path } = call.decode()?;
    let total = edits.len();
    if edits.is_empty() {
        return Err(ToolError::invalid("`edits` is empty: nothing to change"));
    }
    let parse_edit = |(index, edit): (usize, Value)| {
        let invalid =
            |error: String| ToolError::invalid(format!("Edit {} of {total}: {error}", index + 1));
        let edit: Edit =
            serde_json::from_value(edit).map_err(|error| invalid(error.to_string()))?;
        let raw_path = edit.path.or_else(|| default_path.clone());
        let raw_path = raw_path.ok_or_else(|| invalid("`filePath` is missing".to_owned()))?;
        let all = match &edit.all {
            Value::Null => false,
            Value::Bool(all) => *all,
            other => other.as_str().is_some_and(|text| text == "true"),
        };
        let replacement = Replacement { old: edit.old, new: edit.new, all, strict: false };
        if replacement.old == replacement.new {
            return Err(invalid("`oldString` and `newString` are identical".to_owned()));
        }
        let path = resolve_path(call, &raw_path).map_err(|error| invalid(error.to_string()))?;
        Ok((path, replacement))
    };
    edits.into_iter().enumerate().map(parse_edit).collect()
}

/// Resolves a path relative to the working directory, otherwise to the root of the work tree.
fn resolve_path(call: &Invocation<'_>, raw: &str) -> std::io::Result<PathBuf> {
    let path = paths::resolve(&call.context.cwd, raw)?;
    let from_root = || paths::resolve(&call.context.root, raw).ok().filter(|path| path.exists());
    Ok(if path.exists() { path } else { from_root().unwrap_or(path) })
}

/// The tool that makes several replacements.
pub(crate) struct MultiEditTool;

impl Tool for MultiEditTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("edit.multi", Effect::Writes).with_preview()
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::writing(files(call), &call.path)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(call.blocking(run))
    }
}

/// Makes all replacements; each one sees the result of the previous ones.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let edits = edits(call)?;
    let total = edits.len();
    let mut draft = AtomicEdit::new(call);
    let mut notes = Vec::new();
    for (index, (path, replacement)) in edits.iter().enumerate() {
        let display_path = call.display_path(path);
        let edit_error = |error: ToolError| {
            let text = not_written(&format!("Edit {} of {total}: {}", index + 1, error.text));
            ToolError::new(error.kind, text)
        };
        let before = draft.text(path).map_err(edit_error)?;
        let (text, fit) = match before {
            None if replacement.old.is_empty() => (replacement.new.clone(), EditFit::Exact),
            None => {
                let message = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(edit_error(ToolError::io(&display_path, &message)));
            }
            Some(raw) => {
                let (text, hit) = replace::apply(raw, replacement).map_err(|miss| {
                    let message = draft.explain(path, miss.message(call, &display_path));
                    edit_error(ToolError::failed(message))
                })?;
                notes.extend(hit.note().map(|note| format!("edit {}: {note}", index + 1)));
                (text, hit.fit())
            }
        };
        draft.edit(path, text, fit).map_err(edit_error)?;
    }
    notes.append(&mut draft.notes);
    Ok(report(call, &draft.commit()?, total, &notes))
}

fn report(
    call: &Invocation<'_>,
    changed_files: &[EditedFile],
    edits: usize,
    notes: &[String],
) -> ToolOutput {
    let title = format!("Edited {} file(s) with {edits} edit(s)", changed_files.len());
    let mut text = title.clone();
    notes.iter().for_each(|note| text.push_str(&format!("\n[note: {note}]")));
    for file in changed_files {
        text.push_str(&format!("\n{}\n{}", call.display_path(&file.path), file.difference.unified));
    }
    let sum_of = |count: fn(&EditedFile) -> usize| changed_files.iter().map(count).sum::<usize>();
    let metadata = json!({
        "files": changed_files.len(),
        "edits": edits,
        "additions": sum_of(|file| file.difference.additions),
        "deletions": sum_of(|file| file.difference.deletions),
        "paths": changed_files.iter().map(|file| &file.path).collect::<Vec<_>>(),
        "notes": notes,
    });
    ToolOutput::success(text).titled(title).with(metadata)
}
