//! Renders a server's answers as text, with positions as `path:line:col` counted from 1 in
//! characters, and builds the responses to requests of the server.

use super::client::LspClient;
use super::document;
use super::operation::LspOperation;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tools::call::Invocation;

/// Maximum number of lines of an answer.
const LINES: usize = 200;
/// Maximum length of a hover text in bytes.
const LONGEST: usize = 20_000;
/// Maximum length of a symbol's name in bytes.
const NAME: usize = 300;
/// The protocol's kinds of symbols, from 1.
const KINDS: [&str; 26] = [
    "File",
    "Module",
    "Namespace",
    "Package",
    "Class",
    "Method",
    "Property",
    "Field",
    "Constructor",
    "Enum",
    "Interface",
    "Function",
    "Variable",
    "Constant",
    "String",
    "Number",
    "Boolean",
    "Array",
    "Object",
    "Key",
    "Null",
    "EnumMember",
    "Struct",
    "Event",
    "Operator",
    "TypeParameter",
];

/// An answer as text.
pub(crate) struct RenderedAnswer {
    /// The text for the model; empty if nothing was found.
    pub text: String,
    /// Number of results.
    pub count: usize,
    /// The positions, for programs.
    pub places: Vec<Value>,
}

/// Renders a server's answers for a call.
pub(crate) struct AnswerRenderer<'a, 'c> {
    client: &'a LspClient,
    call: &'a Invocation<'c>,
    texts: HashMap<PathBuf, Option<String>>,
}

impl<'a, 'c> AnswerRenderer<'a, 'c> {
    /// Creates a renderer for the answers of this server.
    pub(crate) fn new(client: &'a LspClient, call: &'a Invocation<'c>) -> AnswerRenderer<'a, 'c> {
        AnswerRenderer { client, call, texts: HashMap::new() }
    }

    /// Renders an answer.
    pub(crate) fn render(&mut self, operation: LspOperation, answer: &Value) -> RenderedAnswer {
        match operation {
            LspOperation::Definition | LspOperation::Implementation | LspOperation::References => {
                self.locations(answer, operation == LspOperation::References)
            }
            LspOperation::Symbols => symbols(answer),
            LspOperation::WorkspaceSymbol => self.named(answer, |item| item),
            LspOperation::Hover => hover(answer),
            LspOperation::CallHierarchy => self.named(answer, |item| item),
            LspOperation::IncomingCalls => self.named(answer, |item| &item["from"]),
            LspOperation::OutgoingCalls => self.named(answer, |item| &item["to"]),
        }
    }

    /// Renders a location, several locations, or links to locations.
    fn locations(&mut self, answer: &Value, sorted: bool) -> RenderedAnswer {
        let all: Vec<&Value> = match answer {
            Value::Array(all) => all.iter().collect(),
            Value::Null => Vec::new(),
            Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![answer],
        };
        let place = |location: &&Value| match location.get("targetUri") {
            Some(uri) => {
                let range =
                    location.get("targetSelectionRange").unwrap_or(&location["targetRange"]);
                self.place(uri, &range["start"])
            }
            None => self.place(&location["uri"], &location["range"]["start"]),
        };
        let mut places: Vec<ShownPlace> = all.iter().map(place).collect();
        if sorted {
            places.sort();
        }
        places.dedup();
        let lines = places.iter().map(ShownPlace::render).collect();
        rendered(lines, places.iter().map(ShownPlace::json).collect())
    }

    /// Renders items with a kind, a name and a location.
    fn named(&mut self, answer: &Value, item: fn(&Value) -> &Value) -> RenderedAnswer {
        let (mut lines, mut places) = (Vec::new(), Vec::new());
        for symbol in answer.as_array().into_iter().flatten().map(item) {
            let location = symbol.get("location").unwrap_or(symbol);
            let range = symbol.get("selectionRange").unwrap_or(&location["range"]);
            let start = range.get("start");
            let place = self.place(&location["uri"], start.unwrap_or(&Value::Null));
            let text = if start.is_some() { place.render() } else { place.path.clone() };
            lines.push(format!("{} {} {text}", kind(symbol), name(symbol)));
            places.push(place.json());
        }
        rendered(lines, places)
    }

    fn place(&mut self, uri: &Value, start: &Value) -> ShownPlace {
        let uri = uri.as_str().unwrap_or_default();
        let (path, encoding) = (document::path(uri), self.client.encoding);
        let text = path.as_deref().and_then(|path| self.text(path));
        let position = encoding.of_server(text, start);
        let path = path.map_or_else(|| uri.to_owned(), |path| self.call.display_path(&path));
        ShownPlace { path, line: position.line + 1, column: position.column + 1 }
    }

    /// Returns the text of a file as the server knows it, or else as it is on disk.
    fn text(&mut self, path: &Path) -> Option<&str> {
        let client = self.client;
        let read = || {
            let known = base::sync::lock(&client.documents);
            known.text(path).map(str::to_owned).or_else(|| document::read(path))
        };
        self.texts.entry(path.to_owned()).or_insert_with(read).as_deref()
    }
}

/// A position as it is shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ShownPlace {
    path: String,
    line: usize,
    column: usize,
}

impl ShownPlace {
    fn render(&self) -> String {
        format!("{}:{}:{}", self.path, self.line, self.column)
    }

    fn json(&self) -> Value {
        json!({ "path": self.path, "line": self.line, "column": self.column })
    }
}

fn rendered(mut lines: Vec<String>, mut places: Vec<Value>) -> RenderedAnswer {
    let count = lines.len();
    lines.truncate(LINES);
    places.truncate(LINES);
    if count > LINES {
        lines.push(format!("... and {} more", count - LINES));
    }
    RenderedAnswer { text: lines.join("\n"), count, places }
}

/// Renders the symbols of a file: a tree, or the list of older servers.
fn symbols(answer: &Value) -> RenderedAnswer {
    let mut lines = Vec::new();
    for symbol in answer.as_array().into_iter().flatten() {
        add_symbol(symbol, 0, &mut lines);
    }
    rendered(lines, Vec::new())
}

fn add_symbol(symbol: &Value, depth: usize, lines: &mut Vec<String>) {
    let range = symbol.get("selectionRange").unwrap_or(&symbol["location"]["range"]);
    let line = range["start"]["line"].as_u64().unwrap_or(0) + 1;
    let indent = "  ".repeat(depth);
    lines.push(format!("{indent}{} {} (line {line})", kind(symbol), name(symbol)));
    for child in symbol["children"].as_array().into_iter().flatten() {
        add_symbol(child, depth + 1, lines);
    }
}

fn kind(symbol: &Value) -> &'static str {
    let number = symbol["kind"].as_u64().and_then(|kind| usize::try_from(kind).ok());
    let known = number.and_then(|number| KINDS.get(number.checked_sub(1)?));
    known.copied().unwrap_or("Symbol")
}

fn name(symbol: &Value) -> &str {
    base::text::head(symbol["name"].as_str().unwrap_or("?"), NAME)
}

/// Renders the contents of a hover, in any form that the protocol allows.
fn hover(answer: &Value) -> RenderedAnswer {
    let contents = &answer["contents"];
    let parts: Vec<String> = match contents {
        Value::Array(parts) => parts.iter().filter_map(marked).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            marked(contents).into_iter().collect()
        }
    };
    let whole = parts.join("\n\n");
    let mut text = base::text::head(whole.trim(), LONGEST).to_owned();
    let missing = whole.trim().len() - text.len();
    if missing > 0 {
        text.push_str(&format!("\n[{missing} bytes left out]"));
    }
    RenderedAnswer { count: usize::from(!text.is_empty()), text, places: Vec::new() }
}

fn marked(part: &Value) -> Option<String> {
    let text = part.as_str().or_else(|| part["value"].as_str())?;
    let text = match part["language"].as_str() {
        Some(language) => format!("```{language}\n{text}\n```"),
        None => text.to_owned(),
    };
    (!text.trim().is_empty()).then_some(text)
}

/// The protocol's error code for an unknown method.
const UNKNOWN: i64 = -32601;

/// Builds the response to a request of the server.
pub(crate) fn to(id: &Value, method: &str, params: &Value, root: &Path) -> Value {
    let result = match method {
        "workspace/configuration" => {
            params["items"].as_array().into_iter().flatten().map(settings).collect()
        }
        "workspace/workspaceFolders" => folders(root),
        "workspace/applyEdit" => {
            json!({ "applied": false, "failureReason": "g3 edits files with its own tools" })
        }
        "client/registerCapability"
        | "client/unregisterCapability"
        | "window/workDoneProgress/create"
        | "window/showMessageRequest"
        | "workspace/codeLens/refresh"
        | "workspace/diagnostic/refresh"
        | "workspace/inlayHint/refresh"
        | "workspace/semanticTokens/refresh" => Value::Null,
        "window/showDocument" => json!({ "success": false }),
        _ => {
            let error = json!({ "code": UNKNOWN, "message": format!("g3 has no `{method}`") });
            return json!({ "jsonrpc": "2.0", "id": id, "error": error });
        }
    };
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Returns the settings for an item of a request: none. Editors return an object for a whole
/// section, and some servers (prisma) fail without one.
fn settings(item: &Value) -> Value {
    match item["section"].as_str() {
        Some(section) if !section.is_empty() && !section.contains('.') => json!({}),
        Some(_) | None => Value::Null,
    }
}

/// Returns the folders of a workspace: its root.
pub(crate) fn folders(root: &Path) -> Value {
    let name = root.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
    json!([{ "uri": document::of(root), "name": name }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_a_tree_or_a_list() {
        let at = |line: u32| json!({ "start": { "line": line, "character": 0 } });
        let method = json!({ "name": "go", "kind": 6, "selectionRange": at(4) });
        let class =
            json!({ "name": "A", "kind": 5, "selectionRange": at(3), "children": [method] });
        let flat = json!({ "name": "x", "kind": 99, "location": { "range": at(0) } });
        let rendered = symbols(&json!([class, flat]));
        assert_eq!(rendered.text, "Class A (line 4)\n  Method go (line 5)\nSymbol x (line 1)");
        assert_eq!(rendered.count, 3);
        assert_eq!(symbols(&Value::Null).count, 0);
    }

    #[test]
    fn hover_has_many_forms() {
        let says = |contents: Value| hover(&json!({ "contents": contents })).text;
        assert_eq!(says(json!("a")), "a");
        assert_eq!(says(json!({ "kind": "markdown", "value": "*a*" })), "*a*");
        assert_eq!(says(json!([{ "language": "x", "value": "a" }, "b", ""])), "```x\na\n```\n\nb");
        assert_eq!(hover(&Value::Null).count, 0);
        let long = says(json!("ä".repeat(LONGEST)));
        assert!(long.ends_with(&format!("[{LONGEST} bytes left out]")), "{}", long.len());
    }

    #[test]
    fn every_request_of_the_server_gets_a_response() {
        let to = |method: &str, params: Value| to(&json!(7), method, &params, Path::new("/r"));
        let items = json!([{}, { "section": "toy" }, { "section": "toy.indent" }]);
        let asked = to("workspace/configuration", json!({ "items": items }));
        assert_eq!(asked, json!({ "jsonrpc": "2.0", "id": 7, "result": [null, {}, null] }));
        assert_eq!(to("workspace/applyEdit", json!({}))["result"]["applied"], false);
        assert_eq!(to("workspace/workspaceFolders", Value::Null)["result"][0]["name"], "r");
        assert_eq!(to("window/workDoneProgress/create", json!({}))["result"], Value::Null);
        assert_eq!(to("made/up", json!({}))["error"]["code"], UNKNOWN);
    }
}
