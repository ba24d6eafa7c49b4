//! Diagnostics after an edit: notifies the servers that know the file, and reports the errors that
//! they find.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::config::lsp::Diagnostics;
use serde_json::{Value, json};

use super::client::LspClient;
use super::document;
use super::pool::{LspPool, ServerKey};
use tools::call::Invocation;
use tools::output::ToolOutput;

/// How long an edit waits for diagnostics.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long after the last diagnostics they count as complete.
const CALM: Duration = Duration::from_millis(150);
/// Maximum number of errors that are reported of a file.
const MOST: usize = 20;
/// Maximum length of an error message in bytes.
const LONGEST: usize = 500;
/// The protocol's severity of an error.
const ERROR: u64 = 1;

/// An error at a position, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileFinding {
    line: usize,
    column: usize,
    message: String,
}

/// Returns the outcome of a call with the errors of the files that it wrote.
pub(crate) async fn with_errors(
    hub: &LspPool,
    call: &Invocation<'_>,
    files: &[PathBuf],
    mut outcome: ToolOutput,
) -> ToolOutput {
    let end = Instant::now() + PATIENCE;
    let mut reported = Vec::new();
    for file in files {
        let result = call.context.cancel.run_until_cancelled(errors(hub, call, file, end)).await;
        let Some(Some(errors)) =
            result.filter(|errors| errors.as_ref().is_some_and(|it| !it.is_empty()))
        else {
            continue;
        };
        let display_path = call.display_path(file);
        outcome.text.push_str(&block(&display_path, &errors));
        reported.extend(errors.iter().map(|it| {
            json!({ "path": display_path, "line": it.line, "column": it.column, "message": it.message })
        }));
    }
    if let (false, Some(metadata)) = (reported.is_empty(), outcome.metadata.as_object_mut()) {
        metadata.insert("diagnostics".to_owned(), json!(reported));
    }
    outcome
}

/// Returns the errors that a server finds in a file soon after it was written; `None` if no server
/// reports anything in time.
async fn errors(
    hub: &LspPool,
    call: &Invocation<'_>,
    file: &Path,
    end: Instant,
) -> Option<Vec<FileFinding>> {
    let wanted = hub.find(file, call.context).ok()?;
    let client = match (hub.running_for(&wanted), hub.diagnostics) {
        (Some(client), _) => client,
        (None, Diagnostics::Running | Diagnostics::Off) => return None,
        (None, Diagnostics::Start) => {
            let started = hub.start(&wanted, call.context);
            tokio::time::timeout(remaining(end), started).await.ok()?.ok()?
        }
    };
    let written = SyncedFile::send(&client, &wanted, file)?;
    if hub.diagnostics == Diagnostics::Off {
        return None;
    }
    let mut all = written.diagnostics(&client, end).await?;
    all.sort();
    all.dedup();
    Some(all)
}

fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// A file whose content was sent to a server.
struct SyncedFile {
    path: PathBuf,
    text: String,
    version: i64,
    time: Instant,
}

impl SyncedFile {
    /// Sends the current content of the file to the server, or the notification that it was
    /// removed.
    fn send(client: &Arc<LspClient>, wanted: &ServerKey<'_>, file: &Path) -> Option<SyncedFile> {
        let mut known = base::sync::lock(&client.documents);
        let Some(text) = document::read(file) else {
            known.forget(client, file);
            return None;
        };
        let time = Instant::now();
        if known.text(file).is_none() {
            document::created(client, file);
        }
        let version = known.update(client, file, wanted.id, &text);
        Some(SyncedFile { path: file.to_owned(), text, version, time })
    }

    /// Returns the diagnostics that the server pushes, and those that it returns on request.
    async fn diagnostics(&self, client: &LspClient, end: Instant) -> Option<Vec<FileFinding>> {
        let asked = client.can("textDocument/diagnostic", "diagnosticProvider");
        let pulled = if asked { self.pull(client, end).await } else { None };
        // A server that answers requests has reported most of it.
        let until = if pulled.is_some() { end.min(Instant::now() + CALM) } else { end };
        let pushed = self.pushed(client, until).await;
        if pulled.is_none() && pushed.is_none() {
            return None;
        }
        let all = pulled.into_iter().chain(pushed).flatten();
        Some(all.filter_map(|item| self.wrong(client, &item)).collect())
    }

    async fn pull(&self, client: &LspClient, end: Instant) -> Option<Vec<Value>> {
        let params = json!({ "textDocument": { "uri": super::document::of(&self.path) } });
        let answer = client
            .connection
            .request("textDocument/diagnostic", params, remaining(end))
            .await
            .ok()?;
        answer["items"].as_array().cloned()
    }

    /// Returns the diagnostics that were pushed for this version of the file, once no more have
    /// arrived for a moment.
    async fn pushed(&self, client: &LspClient, end: Instant) -> Option<Vec<Value>> {
        let mut changes = client.connection.watch();
        let mut items = None;
        loop {
            let now = client
                .connection
                .notifications(|notifications| notifications.published.get(&self.path).cloned());
            let now = now
                .filter(|it| it.time >= self.time && it.version.is_none_or(|v| v >= self.version));
            let pause = match &now {
                Some(it) => (it.time + CALM).saturating_duration_since(Instant::now()),
                None => remaining(end),
            };
            items = now.map(|it| it.items).or(items);
            let pause = pause.min(remaining(end));
            if pause.is_zero() || client.connection.gone().is_some() {
                return items;
            }
            let _ = tokio::time::timeout(pause, changes.changed()).await;
        }
    }

    fn wrong(&self, client: &LspClient, item: &Value) -> Option<FileFinding> {
        if item["severity"].as_u64().unwrap_or(ERROR) != ERROR {
            return None;
        }
        let position = client.encoding.of_server(Some(&self.text), &item["range"]["start"]);
        let words = base::text::printable_output(item["message"].as_str().unwrap_or_default());
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = base::text::cut_columns(&words, LONGEST);
        Some(FileFinding { line: position.line + 1, column: position.column + 1, message })
    }
}

fn block(display_path: &str, errors: &[FileFinding]) -> String {
    let mut text = format!(
        "\n\nThe language server finds errors in {display_path}; please fix them:\n<diagnostics \
         file=\"{display_path}\">\n"
    );
    for FileFinding { line, column, message } in errors.iter().take(MOST) {
        text.push_str(&format!("ERROR [{line}:{column}] {message}\n"));
    }
    if errors.len() > MOST {
        text.push_str(&format!("... and {} more\n", errors.len() - MOST));
    }
    text.push_str("</diagnostics>");
    text
}
