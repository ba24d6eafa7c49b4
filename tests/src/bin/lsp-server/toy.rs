//! The language of the tests' language server: a project of `.toy` files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A project, as the server sees it.
#[derive(Default)]
pub struct Project {
    /// The root directory.
    pub root: PathBuf,
    /// The position encoding; UTF-16 by default.
    pub encoding: String,
    /// Open files, with version and text.
    pub open: BTreeMap<PathBuf, (i64, String)>,
}

impl Project {
    /// Returns the paths of the project's files.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().filter_map(Result::ok);
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        all.retain(|path| path.extension().is_some_and(|ending| ending == "toy"));
        all.sort();
        all
    }

    /// Returns the content of a file: the opened version, else that on disk.
    pub fn text(&self, path: &Path) -> String {
        let open = self.open.get(path).map(|(_, text)| text.clone());
        open.unwrap_or_else(|| fs::read_to_string(path).unwrap_or_default())
    }

    /// Returns the length of a text in units of the negotiated encoding.
    fn units(&self, text: &str) -> usize {
        match self.encoding.as_str() {
            "utf-8" => text.len(),
            "utf-32" => text.chars().count(),
            _ => text.encode_utf16().count(),
        }
    }

    /// Returns the words of a text.
    pub fn words(&self, text: &str) -> Vec<Token> {
        let mut found = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut before = "";
            let mut from = 0;
            for word in line.split(' ') {
                let start = self.units(&line[..from]);
                let end = start + self.units(word);
                let defines = before == "def";
                found.push(Token { text: word.to_owned(), line: number, start, end, defines });
                before = word;
                from += word.len() + 1;
            }
        }
        found
    }

    /// Returns the word at a position of an open file; `None` for a file that is not open.
    pub fn named(&self, path: &Path, at: &Value) -> Option<String> {
        let (_, text) = self.open.get(path)?;
        let here = |word: &Token| {
            at["line"] == word.line
                && at["character"]
                    .as_u64()
                    .is_some_and(|unit| (word.start as u64..=word.end as u64).contains(&unit))
        };
        self.words(text).into_iter().find(here).map(|word| word.text)
    }

    /// Returns the definition of a name.
    pub fn definition(&self, name: &str) -> Option<(PathBuf, Token)> {
        let mut all = self.uses(name, true).into_iter();
        all.find(|(_, word)| word.defines)
    }

    /// Returns the uses of a name.
    pub fn uses(&self, name: &str, with_definition: bool) -> Vec<(PathBuf, Token)> {
        let mut all = Vec::new();
        for path in self.files() {
            let words = self.words(&self.text(&path)).into_iter();
            let fits = |word: &Token| word.text == name && (with_definition || !word.defines);
            all.extend(words.filter(fits).map(|word| (path.clone(), word)));
        }
        all
    }

    /// Returns the symbols of a file; definitions on indented lines are children of the one above.
    pub fn symbols(&self, path: &Path) -> Value {
        let text = self.text(path);
        let mut all: Vec<Value> = Vec::new();
        for word in self.words(&text).into_iter().filter(|word| word.defines) {
            let mut symbol = json!({ "name": word.text, "kind": 12, "selectionRange": word.range(),
                                     "range": word.range(), "children": [] });
            let inside = text.lines().nth(word.line).is_some_and(|line| line.starts_with(' '));
            match all.last_mut().filter(|_| inside) {
                Some(above) => {
                    symbol["kind"] = json!(6);
                    if let Some(children) = above["children"].as_array_mut() {
                        children.push(symbol);
                    }
                }
                None => all.push(symbol),
            }
        }
        json!(all)
    }
}

/// A word and its position.
pub struct Token {
    /// The text.
    pub text: String,
    /// The line.
    pub line: usize,
    start: usize,
    /// The end, in units of the encoding.
    pub end: usize,
    /// Whether it is a definition.
    pub defines: bool,
}

impl Token {
    /// Returns the range of the word.
    pub fn range(&self) -> Value {
        range(self.line, self.start, self.end)
    }
}

/// Returns a range within a line.
pub fn range(line: usize, start: usize, end: usize) -> Value {
    json!({ "start": { "line": line, "character": start },
            "end": { "line": line, "character": end } })
}

/// Returns a location of the protocol.
pub fn location((path, word): &(PathBuf, Token)) -> Value {
    json!({ "uri": uri(path), "range": word.range() })
}

/// Returns an item of a call hierarchy.
pub fn item(name: &str, (path, word): &(PathBuf, Token)) -> Value {
    let range = word.range();
    json!({ "name": name, "kind": 12, "uri": uri(path), "range": range, "selectionRange": range })
}

/// Returns the URI of a path; only for plain names, as in tests.
pub fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Returns the path of a URI.
pub fn path(uri: &Value) -> PathBuf {
    PathBuf::from(uri.as_str().unwrap_or_default().trim_start_matches("file://"))
}
