//! The files that a server was told of: their versions, and what of them it knows.

use super::client::LspClient;
use reqwest::Url;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The largest file that a server is told of, in bytes.
pub(crate) const LARGEST: u64 = 8 << 20;

/// What a server knows of files.
#[derive(Default)]
pub(crate) struct Documents(BTreeMap<PathBuf, Document>);

struct Document {
    version: i64,
    text: String,
    language: String,
    /// When it was last written and how long it was, as it was last looked at.
    stamp: Option<(SystemTime, u64)>,
}

impl Documents {
    /// Tells the server what stands in a file now; gives the version that it knows then. Where
    /// that is new, the server hears that it was written, too.
    pub(crate) fn tell(&mut self, to: &LspClient, path: &Path, language: &str, text: &str) -> i64 {
        let stamp = stamp(path);
        if let Some(known) = self.0.get_mut(path) {
            known.stamp = stamp;
            if known.text != text {
                known.version += 1;
                text.clone_into(&mut known.text);
                to.line.notify(
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
        to.line.notify("textDocument/didOpen", json!({ "textDocument": item }));
        1
    }

    /// Tells of files that somebody else changed or removed since they were last looked at.
    pub(crate) fn look_again(&mut self, to: &LspClient) {
        let differs = |(path, known): (&PathBuf, &Document)| {
            (stamp(path) != known.stamp).then(|| (path.clone(), known.language.clone()))
        };
        let changed: Vec<(PathBuf, String)> = self.0.iter().filter_map(differs).collect();
        for (path, language) in changed {
            match read(&path) {
                Some(text) => {
                    self.tell(to, &path, &language, &text);
                }
                None => self.forget(to, &path),
            }
        }
    }

    /// A file is gone.
    pub(crate) fn forget(&mut self, to: &LspClient, path: &Path) {
        if self.0.remove(path).is_some() {
            closed(to, path);
            watched(to, path, 3);
        }
    }

    /// The text that the server knows of a file.
    pub(crate) fn text(&self, path: &Path) -> Option<&str> {
        self.0.get(path).map(|known| known.text.as_str())
    }

    /// Closes all.
    pub(crate) fn close(&mut self, to: &LspClient) {
        for path in std::mem::take(&mut self.0).into_keys() {
            closed(to, &path);
        }
    }
}

/// Tells of a file that may be new, before it is opened.
pub(crate) fn created(to: &LspClient, path: &Path) {
    watched(to, path, 1);
}

/// The text of a file; `None` where it is none that a server could read.
pub(crate) fn read(path: &Path) -> Option<String> {
    let small = std::fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() <= LARGEST);
    small.then(|| std::fs::read_to_string(path).ok()).flatten()
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

fn watched(to: &LspClient, path: &Path, kind: u32) {
    let change = json!({ "uri": of(path), "type": kind });
    to.line.notify("workspace/didChangeWatchedFiles", json!({ "changes": [change] }));
}

fn saved(to: &LspClient, path: &Path, text: &str) {
    let Some(with_text) = to.hears_saves() else { return };
    let mut params = json!({ "textDocument": { "uri": of(path) } });
    if with_text {
        params["text"] = json!(text);
    }
    to.line.notify("textDocument/didSave", params);
}

fn closed(to: &LspClient, path: &Path) {
    to.line.notify("textDocument/didClose", json!({ "textDocument": { "uri": of(path) } }));
}

/// The address of an absolute path.
pub(crate) fn of(path: &Path) -> String {
    // A relative path has no address, and none gets here.
    Url::from_file_path(path).map(String::from).unwrap_or_default()
}

/// The path of an address; `None` where it is no file.
pub(crate) fn path(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok().filter(|uri| uri.scheme() == "file")?.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_odd_characters_come_back() {
        for name in ["/a b/ä%20#?.rs", "/x/[y]/😀.rs"] {
            assert_eq!(path(&of(Path::new(name))).as_deref(), Some(Path::new(name)));
        }
        assert_eq!(path("jdt://contents/x"), None);
    }
}
