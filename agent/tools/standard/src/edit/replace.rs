//! Replaces a string in a file: exactly, or with tolerance if the profile allows it.

use serde::Deserialize;
use serde_json::json;

use super::fuzzy::{self, FuzzyMatch, FuzzyMiss, MatchStrategy};
use super::locate;
use super::text::{FileText, TextChange, load, store};
use tools::call::Invocation;
use tools::kind::{Effect, ToolKind};
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::profile::OutputStyle;
use tools::text_diff::{Difference, difference};
use tools::tool::{CallScope, PathRule, Tool, ToolFuture, ToolSpec};

/// A replacement.
#[derive(Deserialize)]
pub(crate) struct Replacement {
    /// The text to replace.
    pub old: String,
    /// The new text.
    pub new: String,
    /// Whether to replace all occurrences.
    #[serde(default)]
    pub all: bool,
    /// Whether only exact matches count, including line endings.
    #[serde(default)]
    pub strict: bool,
}

/// Why nothing was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplaceError {
    miss: FuzzyMiss,
    /// Whether the new text already exists.
    is_already_made: bool,
}

/// The tool that replaces a string in a file.
pub(crate) struct ReplaceTool;

impl Tool for ReplaceTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("edit.replace", Effect::Writes)
            .with_path(PathRule::ExistingFile)
            .with_preview()
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::writing(vec![call.path.clone()], &call.path)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(call.blocking(run))
    }
}

/// Makes the replacement.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let replacement: Replacement = call.decode()?;
    let (old_key, new_key) = key_names(call);
    if replacement.old == replacement.new {
        let text = format!("`{old_key}` and `{new_key}` are identical: nothing to change");
        return Err(ToolError::invalid(text));
    }
    if replacement.old.is_empty() {
        return create(call, &replacement.new);
    }
    let loaded = load(call, &call.path)?;
    match apply(loaded.text.clone(), &replacement) {
        Ok((text, hit)) => {
            let note = loaded.check(call, &call.path, hit.fit())?;
            store(call, &call.path, &text)?;
            let mut output = report(call, &hit, &loaded.text, &text);
            output.text.extend(note.map(|note| format!("\n[note: {note}]")));
            Ok(output)
        }
        Err(replace_error) => {
            let display_path = call.display_own_path();
            let message =
                loaded.explain(call, &call.path, replace_error.message(call, &display_path));
            let mut output = ToolOutput::failed(ToolErrorKind::Failed, message);
            let is_lost = call.profile_tool.style == OutputStyle::Egirl
                && replace_error.miss == FuzzyMiss::Nowhere;
            output.escalate = is_lost
                .then(|| format!("text not found in {display_path}: the context may be incorrect"));
            Ok(output)
        }
    }
}

/// Returns the text with the replacement made, and the match.
pub(crate) fn apply(
    raw: String,
    request: &Replacement,
) -> Result<(String, FuzzyMatch), ReplaceError> {
    let file = if request.strict { FileText::exact(raw) } else { FileText::new(raw) };
    let normalize =
        |text: &str| if request.strict { text.to_owned() } else { text.replace("\r\n", "\n") };
    let (old, new) = (normalize(&request.old), normalize(&request.new));
    let result = if request.strict {
        fuzzy::exact(file.plain(), &old, request.all)
    } else {
        fuzzy::find(file.plain(), &old, request.all)
    };
    let hit = result
        .map_err(|miss| ReplaceError { miss, is_already_made: is_made(file.plain(), &new) })?;
    let new_text = replacement(&hit, &new);
    let change =
        |span: &std::ops::Range<usize>| TextChange { span: span.clone(), by: new_text.clone() };
    let text = file.apply_changes(hit.spans.iter().map(change).collect());
    Ok((text, hit))
}

/// Whether the new text may already be the result of this edit: it occurs exactly once and is
/// distinctive, since a brace alone is everywhere.
fn is_made(text: &str, new: &str) -> bool {
    locate::is_distinctive(new) && text.matches(new).count() == 1
}

/// Returns the parameter names that the caller used.
fn key_names<'c>(call: &'c Invocation<'_>) -> (&'c str, &'c str) {
    // These are parameters of each edit, not of the call.
    if call.profile_tool.kind == ToolKind::MULTI_EDIT {
        return ("oldString", "newString");
    }
    (call.profile_tool.parameter_name("old"), call.profile_tool.parameter_name("new"))
}

/// Returns the new text with the indentation of the match.
fn replacement(hit: &FuzzyMatch, new: &str) -> String {
    match hit.strategy {
        MatchStrategy::LineTrimmed | MatchStrategy::IndentationFlexible => {
            let lines: Vec<String> = new.split('\n').map(|line| hit.shift.apply(line)).collect();
            lines.join("\n")
        }
        MatchStrategy::Exact
        | MatchStrategy::BlockAnchor
        | MatchStrategy::WhitespaceNormalized
        | MatchStrategy::EscapeNormalized
        | MatchStrategy::TrimmedBoundary
        | MatchStrategy::ContextAware => new.to_owned(),
    }
}

/// Creates a file: without an old text, a missing or empty file gets the new text.
fn create(call: &Invocation<'_>, new: &str) -> Result<ToolOutput, ToolError> {
    let (old_key, _) = key_names(call);
    let display_path = call.display_own_path();
    let is_not_empty = std::fs::metadata(&call.path).is_ok_and(|metadata| metadata.len() > 0);
    if call.profile_tool.style == OutputStyle::Egirl || is_not_empty {
        return Err(ToolError::invalid(format!(
            "`{old_key}` is empty; to replace all of {display_path}, write the file"
        )));
    }
    call.create_parents(&call.path)
        .map_err(|e| ToolError::io(&format!("cannot write {display_path}"), &e))?;
    store(call, &call.path, new)?;
    Ok(ToolOutput::success(format!("created {display_path}"))
        .with(json!({ "path": call.path, "replaced": 0 })))
}

impl ReplaceError {
    /// Describes the error with a hint.
    pub(crate) fn message(self, call: &Invocation<'_>, display_path: &str) -> String {
        let (old_key, new_key) = key_names(call);
        match self.miss {
            FuzzyMiss::Nowhere if self.is_already_made => format!(
                "`{old_key}` is not found in {display_path}, but `{new_key}` is there: was the edit \
                 already applied?"
            ),
            FuzzyMiss::Nowhere => format!(
                "`{old_key}` is not found in {display_path}. Read the file again and copy the text \
                 exactly as it stands there, whitespace included"
            ),
            FuzzyMiss::Several(count) => format!(
                "`{old_key}` is found {count} times in {display_path} (multiple matches). Add more \
                 context lines so that it fits one place only{}",
                if call.profile_tool.style == OutputStyle::Egirl {
                    ""
                } else {
                    ", or set `replaceAll`"
                }
            ),
        }
    }
}

fn report(call: &Invocation<'_>, hit: &FuzzyMatch, before: &str, after: &str) -> ToolOutput {
    let display_path = call.display_own_path();
    let Difference { unified, additions, deletions } = difference(before, after);
    let times = hit.spans.len();
    let strategy = hit.strategy.name();
    let text = match call.profile_tool.style {
        OutputStyle::Egirl => format!("Successfully edited {display_path}"),
        OutputStyle::G3 | OutputStyle::ToolsApi | OutputStyle::Core if call.context.plain => {
            format!("edited {display_path}")
        }
        OutputStyle::G3 | OutputStyle::ToolsApi | OutputStyle::Core => {
            let mut text = format!("Edit applied successfully to {display_path}");
            if times > 1 {
                text.push_str(&format!(" in {times} places"));
            }
            text.extend(hit.note().map(|note| format!("\n[note: {note}]")));
            format!("{text}\n{unified}")
        }
    };
    let metadata = json!({
        "path": call.path,
        "additions": additions,
        "deletions": deletions,
        "replaced": times,
        "strategy": strategy,
    });
    ToolOutput::success(text).titled(format!("edited {display_path}")).with(metadata)
}
