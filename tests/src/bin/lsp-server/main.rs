//! A language server on stdin and stdout for a small language, with configurable behavior: normal,
//! slow, or faulty.
//!
//! The language: `def NAME` defines a name, every other word is a use of it, `BAD` is an error. The
//! files of a project end in `.toy` and are below the root.
//!
//! `lsp-server [--log FILE] [--encoding NAME] [--wait FILE] [--crash METHOD] [--mute METHOD]
//! [--without CAPABILITY] [--noise] [--reading N] [--pull] [--quiet] [--ask]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it misbehaves on purpose")]

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use toy::{Project, item, location, path, range, uri};

mod toy;

/// The configured behavior.
#[derive(Default)]
struct ServerBehavior {
    /// Flags with a value.
    values: HashMap<String, String>,
    /// Flags without a value.
    flags: Vec<String>,
}

struct Server {
    behavior: ServerBehavior,
    toys: Project,
    /// Number of requests that are still answered empty, as while reading the project.
    reading: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut behavior = ServerBehavior::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--noise" | "--pull" | "--quiet" | "--ask" => behavior.flags.push(arg),
            "--log" | "--encoding" | "--wait" | "--crash" | "--mute" | "--without"
            | "--reading" => {
                behavior.values.insert(arg, args.next().ok_or("the flag wants a value")?);
            }
            other => return Err(format!("no flag {other}").into()),
        }
    }
    let reading = behavior.values.get("--reading").map_or(Ok(0), |n| n.parse())?;
    let mut server = Server { behavior, toys: Project::default(), reading };
    server.log(&json!({ "started": std::process::id() }))?;
    if server.behavior.has("--noise") {
        println!("Loading plugins ...\nContent of the cache: 3 {{items}}\n");
    }
    let mut input = BufReader::new(std::io::stdin());
    while let Some(message) = read(&mut input)? {
        server.log(&message)?;
        server.hear(&message)?;
    }
    server.log(&json!({ "ended": std::process::id() }))
}

fn read(input: &mut impl BufRead) -> Result<Option<Value>, Box<dyn Error>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("Content-Length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

fn send(message: &Value) -> std::io::Result<()> {
    let body = message.to_string();
    let mut out = std::io::stdout().lock();
    write!(out, "Content-Length: {}\r\n\r\n{body}", body.len())?;
    out.flush()
}

impl ServerBehavior {
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    fn says(&self, flag: &str, value: &str) -> bool {
        self.values.get(flag).is_some_and(|it| it == value)
    }
}

impl Server {
    fn log(&self, message: &Value) -> Result<(), Box<dyn Error>> {
        let Some(file) = self.behavior.values.get("--log") else { return Ok(()) };
        let mut file = fs::File::options().append(true).create(true).open(file)?;
        // One write, because servers of several roots share the file.
        Ok(file.write_all(format!("{message}\n").as_bytes())?)
    }

    fn hear(&mut self, message: &Value) -> Result<(), Box<dyn Error>> {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if self.behavior.says("--crash", &method) {
            eprintln!("I cannot go on");
            std::process::exit(3);
        }
        if self.behavior.says("--mute", &method) {
            return Ok(());
        }
        let params = &message["params"];
        match (message.get("id"), method.as_str()) {
            (_, "") => Ok(()),
            (None, "exit") => std::process::exit(0),
            (None, method) => self.learn(method, params),
            (Some(id), method) => {
                let result = self.answer(method, params)?;
                Ok(send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))?)
            }
        }
    }

    fn learn(&mut self, method: &str, params: &Value) -> Result<(), Box<dyn Error>> {
        let document = &params["textDocument"];
        let path = path(&document["uri"]);
        match method {
            "initialized" if self.behavior.has("--ask") => {
                for (id, method) in [
                    "workspace/configuration",
                    "client/registerCapability",
                    "window/workDoneProgress/create",
                    "workspace/applyEdit",
                    "window/showMessageRequest",
                    "made/up",
                ]
                .iter()
                .enumerate()
                {
                    let params = json!({ "items": [{}, {}] });
                    let id = format!("ask-{id}");
                    send(
                        &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }),
                    )?;
                }
                Ok(())
            }
            "initialized" if self.reading > 0 => self.progress("begin"),
            "textDocument/didOpen" => {
                let text = document["text"].as_str().unwrap_or_default().to_owned();
                self.toys
                    .open
                    .insert(path.clone(), (document["version"].as_i64().unwrap_or(0), text));
                self.publish(&path)
            }
            "textDocument/didChange" => {
                let text = params["contentChanges"][0]["text"].as_str().unwrap_or_default();
                let version = document["version"].as_i64().unwrap_or(0);
                self.toys.open.insert(path.clone(), (version, text.to_owned()));
                self.publish(&path)
            }
            "textDocument/didClose" => {
                self.toys.open.remove(&path);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn progress(&self, kind: &str) -> Result<(), Box<dyn Error>> {
        let value = json!({ "kind": kind, "title": "reading" });
        let params = json!({ "token": "r", "value": value });
        Ok(send(&json!({ "jsonrpc": "2.0", "method": "$/progress", "params": params }))?)
    }

    fn publish(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        if self.behavior.has("--pull") || self.behavior.has("--quiet") {
            return Ok(());
        }
        let version = self.toys.open.get(path).map(|(version, _)| *version);
        let publish = |diagnostics: Value| {
            let uri = uri(path);
            let params = json!({ "uri": uri, "version": version, "diagnostics": diagnostics });
            let method = "textDocument/publishDiagnostics";
            send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
        };
        // Two notifications, as from servers that check quickly first and thoroughly afterwards.
        publish(json!([]))?;
        Ok(publish(self.wrong(path))?)
    }

    fn wrong(&self, path: &Path) -> Value {
        let text = self.toys.text(path);
        let bad = self.toys.words(&text).into_iter().filter(|word| word.text == "BAD");
        let warning = json!({
            "range": range(0, 0, 1), "severity": 2, "message": "this is only a warning",
        });
        let errors = bad.map(|word| {
            let message = format!("BAD is not allowed\n  on line {}", word.line + 1);
            json!({ "range": word.range(), "severity": 1, "message": message })
        });
        errors.chain([warning]).collect()
    }

    fn answer(&mut self, method: &str, params: &Value) -> Result<Value, Box<dyn Error>> {
        let file = path(&params["textDocument"]["uri"]);
        let at = &params["position"];
        if method.starts_with("textDocument/") && self.reading > 0 {
            self.reading -= 1;
            if self.reading == 0 {
                self.progress("end")?;
            }
            return Ok(Value::Null);
        }
        Ok(match method {
            "initialize" => self.hello(params),
            "textDocument/definition" => self
                .toys
                .named(&file, at)
                .and_then(|name| self.toys.definition(&name))
                .map_or(Value::Null, |(path, word)| {
                    json!([{ "targetUri": uri(&path), "targetSelectionRange": word.range(),
                             "targetRange": range(word.line, 0, word.end) }])
                }),
            "textDocument/references" => {
                let with = params["context"]["includeDeclaration"] != false;
                let name = self.toys.named(&file, at).unwrap_or_default();
                self.toys.uses(&name, with).iter().rev().map(location).collect()
            }
            "textDocument/implementation" => {
                let name = self.toys.named(&file, at).unwrap_or_default();
                self.toys.definition(&name).map_or(Value::Null, |found| location(&found))
            }
            "textDocument/hover" => match self.toys.named(&file, at) {
                Some(name) if name == "environment" => {
                    let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                    json!({ "contents": names.join(" ") })
                }
                Some(name) => self.toys.definition(&name).map_or(Value::Null, |_| {
                    let value = format!("`{name}` is a toy");
                    json!({ "contents": { "kind": "markdown", "value": value } })
                }),
                None => Value::Null,
            },
            "textDocument/documentSymbol" => self.toys.symbols(&file),
            "textDocument/diagnostic" => json!({ "kind": "full", "items": self.wrong(&file) }),
            "textDocument/prepareCallHierarchy" => {
                let name = self.toys.named(&file, at).unwrap_or_default();
                self.toys
                    .definition(&name)
                    .map_or(Value::Null, |found| json!([item(&name, &found)]))
            }
            "callHierarchy/incomingCalls" => {
                let name = params["item"]["name"].as_str().unwrap_or_default();
                let uses = self.toys.uses(name, false);
                uses.iter().map(|found| json!({ "from": item("caller", found) })).collect()
            }
            "callHierarchy/outgoingCalls" => json!([]),
            "workspace/symbol" => {
                let query = params["query"].as_str().unwrap_or_default();
                let mut all = Vec::new();
                for path in self.toys.files() {
                    let text = self.toys.text(&path);
                    let words = self.toys.words(&text).into_iter();
                    all.extend(words.filter(|it| it.defines && it.text.contains(query)).map(|it| {
                        json!({ "name": it.text, "kind": 12, "location": location(&(path.clone(), it)) })
                    }));
                }
                json!(all)
            }
            _ => Value::Null,
        })
    }

    fn hello(&mut self, params: &Value) -> Value {
        if let Some(file) = self.behavior.values.get("--wait") {
            while !Path::new(file).exists() {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
        self.toys.root = path(&params["rootUri"]);
        let mut capabilities = json!({
            "textDocumentSync": { "openClose": true, "change": 1, "save": true },
            "definitionProvider": true, "referencesProvider": true, "hoverProvider": {},
            "documentSymbolProvider": true, "workspaceSymbolProvider": true,
            "implementationProvider": true, "callHierarchyProvider": true,
        });
        if self.behavior.has("--pull") {
            capabilities["diagnosticProvider"] = json!({ "interFileDependencies": false });
        }
        if let Some(name) = self.behavior.values.get("--encoding") {
            capabilities["positionEncoding"] = json!(name);
            self.toys.encoding.clone_from(name);
        }
        if let Some(name) = self.behavior.values.get("--without") {
            capabilities[name.as_str()] = json!(false);
        }
        json!({ "capabilities": capabilities })
    }
}
