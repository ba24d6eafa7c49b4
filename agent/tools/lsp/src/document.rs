//! The files that a server knows, with their versions and contents, and the URIs of files.

use super::client::LspClient;
use reqwest::Url;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum size in bytes of a file that is sent to a server.
pub(crate) const LARGEST: u64 = 8 << 20;

/// The files that a server knows.
#[derive(Default)]
pub(crate) struct Documents(BTreeMap<PathBuf, Document>);

struct Document {
    version: i64,
    text: String,
    language: String,
    /// Its modification time and length when it was last checked.
    stamp: Option<(SystemTime, u64)>,
}

impl Documents {
    /// Sends the current content of a file to the server, and returns the version that the server
    /// then knows. If the content is new, the server is also notified that the file was written and
    /// saved.
    pub(crate) fn update(
        &mut self,
        to: &LspClient,
        path: &Path,
        language: &str,
        text: &str,
    ) -> i64 {
        let stamp = stamp(path);
        if let Some(known) = self.0.get_mut(path) {
            known.stamp = stamp;
            if known.text != text {
                known.version += 1;
                text.clone_into(&mut known.text);
                to.connection.notify(
                    "textDocument/didChange",
                    json!({
                        "textDocument": { "uri": of(path), "version": known.version },
                        "contentChanges": [{ "text": text }],
                    }),
                );
                watched(to, path, 2);
                saved(to, path, text);
            }
            return known.version;
        }
        let document =
            Document { version: 1, text: text.to_owned(), language: language.to_owned(), stamp };
        self.0.insert(path.to_owned(), document);
        let item = json!({
            "uri": of(path),
            "languageId": language,
            "version": 1,
            "text": text,
        });
        to.connection.notify("textDocument/didOpen", json!({ "textDocument": item }));
        1
    }

    /// Notifies the server of files that other programs have changed or removed since the last
    /// check.
    pub(crate) fn refresh(&mut self, to: &LspClient) {
        let differs = |(path, known): (&PathBuf, &Document)| {
            (stamp(path) != known.stamp).then(|| (path.clone(), known.language.clone()))
        };
        let changed: Vec<(PathBuf, String)> = self.0.iter().filter_map(differs).collect();
        for (path, language) in changed {
            match read(&path) {
                Some(text) => {
                    self.update(to, &path, &language, &text);
                }
                None => self.forget(to, &path),
            }
        }
    }

    /// Notifies the server that a file was removed.
    pub(crate) fn forget(&mut self, to: &LspClient, path: &Path) {
        if self.0.remove(path).is_some() {
            closed(to, path);
            watched(to, path, 3);
        }
    }

    /// Returns the text of a file as the server knows it.
    pub(crate) fn text(&self, path: &Path) -> Option<&str> {
        self.0.get(path).map(|known| known.text.as_str())
    }

    /// Closes all files.
    pub(crate) fn close(&mut self, to: &LspClient) {
        for path in std::mem::take(&mut self.0).into_keys() {
            closed(to, &path);
        }
    }
}

/// Notifies the server of a file that may be new, before it is opened.
pub(crate) fn created(to: &LspClient, path: &Path) {
    watched(to, path, 1);
}

/// Reads a file; `None` if a server cannot read it, because it is too large or not UTF-8 text.
pub(crate) fn read(path: &Path) -> Option<String> {
    let small = std::fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() <= LARGEST);
    small.then(|| base::files::read_text(path).ok()).flatten()
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

fn watched(to: &LspClient, path: &Path, kind: u32) {
    let change = json!({ "uri": of(path), "type": kind });
    to.connection.notify("workspace/didChangeWatchedFiles", json!({ "changes": [change] }));
}

fn saved(to: &LspClient, path: &Path, text: &str) {
    let Some(with_text) = to.save_includes_text() else { return };
    let mut params = json!({ "textDocument": { "uri": of(path) } });
    if with_text {
        params["text"] = json!(text);
    }
    to.connection.notify("textDocument/didSave", params);
}

fn closed(to: &LspClient, path: &Path) {
    to.connection.notify("textDocument/didClose", json!({ "textDocument": { "uri": of(path) } }));
}

/// Returns the URI of an absolute path.
pub(crate) fn of(path: &Path) -> String {
    // A relative path has no URI; callers pass absolute ones.
    Url::from_file_path(path).map(String::from).unwrap_or_default()
}

/// Returns the path of a URI; `None` if it is not a file.
pub(crate) fn path(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok().filter(|uri| uri.scheme() == "file")?.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_special_characters_survive_the_conversion() {
        for name in ["/a b/ä%20#?.rs", "/x/[y]/😀.rs"] {
            assert_eq!(path(&of(Path::new(name))).as_deref(), Some(Path::new(name)));
        }
        assert_eq!(path("jdt://contents/x"), None);
    }
}
