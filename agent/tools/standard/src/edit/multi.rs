//! Several replacements in one or more files: all of them, or none.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::atomic::{AtomicEdit, EditedFile};
use super::replace::{self, Replacement};
use super::text::unwritten;
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
    let Args { edits, path: common } = call.decode()?;
    let total = edits.len();
    if edits.is_empty() {
        return Err(ToolError::invalid("`edits` is empty: nothing to change"));
    }
    let one = |(at, edit): (usize, Value)| {
        let wrong = |why: String| ToolError::invalid(format!("Edit {} of {total}: {why}", at + 1));
        let edit: Edit = serde_json::from_value(edit).map_err(|why| wrong(why.to_string()))?;
        let raw = edit.path.or_else(|| common.clone());
        let raw = raw.ok_or_else(|| wrong("`filePath` is missing".to_owned()))?;
        let all = match &edit.all {
            Value::Null => false,
            Value::Bool(all) => *all,
            other => other.as_str().is_some_and(|text| text == "true"),
        };
        let wish = Replacement { old: edit.old, new: edit.new, all, strict: false };
        if wish.old == wish.new {
            return Err(wrong("`oldString` and `newString` are identical".to_owned()));
        }
        let path = resolved(call, &raw).map_err(|why| wrong(why.to_string()))?;
        Ok((path, wish))
    };
    edits.into_iter().enumerate().map(one).collect()
}

/// Resolves a path relative to the working directory, otherwise to the root of the work tree.
fn resolved(call: &Invocation<'_>, raw: &str) -> std::io::Result<PathBuf> {
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
    for (at, (path, wish)) in edits.iter().enumerate() {
        let shown = call.display_path(path);
        let failed = |trouble: ToolError| {
            let text = unwritten(&format!("Edit {} of {total}: {}", at + 1, trouble.text));
            ToolError::new(trouble.kind, text)
        };
        let before = draft.text(path).map_err(failed)?;
        let (text, fit) = match before {
            None if wish.old.is_empty() => (wish.new.clone(), EditFit::Exact),
            None => {
                let why = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(failed(ToolError::io(&shown, &why)));
            }
            Some(raw) => {
                let (text, hit) = replace::apply(raw, wish).map_err(|miss| {
                    let why = draft.explain(path, miss.told(call, &shown));
                    failed(ToolError::failed(why))
                })?;
                notes.extend(hit.note().map(|note| format!("edit {}: {note}", at + 1)));
                (text, hit.fit())
            }
        };
        draft.edit(path, text, fit).map_err(failed)?;
    }
    notes.append(&mut draft.notes);
    Ok(told(call, &draft.commit()?, total, &notes))
}

fn told(
    call: &Invocation<'_>,
    changed: &[EditedFile],
    edits: usize,
    notes: &[String],
) -> ToolOutput {
    let title = format!("Edited {} file(s) with {edits} edit(s)", changed.len());
    let mut text = title.clone();
    notes.iter().for_each(|note| text.push_str(&format!("\n[note: {note}]")));
    for file in changed {
        text.push_str(&format!("\n{}\n{}", call.display_path(&file.path), file.difference.unified));
    }
    let sum = |of: fn(&EditedFile) -> usize| changed.iter().map(of).sum::<usize>();
    let metadata = json!({
        "files": changed.len(),
        "edits": edits,
        "additions": sum(|file| file.difference.additions),
        "deletions": sum(|file| file.difference.deletions),
        "paths": changed.iter().map(|file| &file.path).collect::<Vec<_>>(),
        "notes": notes,
    });
    ToolOutput::success(text).titled(title).with(metadata)
}
