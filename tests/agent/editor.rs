//! A client of the Agent Client Protocol that sends raw JSON-RPC lines.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc;
use std::time::Duration;

use base::process::Running;
use serde_json::{Value, json};

use crate::agent_env::{G3, Stage};

/// An editor connected to g3.
pub struct Editor {
    g3: Running,
    lines: mpsc::Receiver<Value>,
    /// Messages that were received but not expected yet.
    pub kept: VecDeque<Value>,
    next: u64,
}

impl Editor {
    pub fn open(stage: &Stage) -> Editor {
        Editor::offering(stage, json!({}))
    }

    /// Disconnects, and waits for g3 to exit.
    pub fn leave(mut self) {
        drop(self.g3.child.stdin.take());
        self.g3.wait_until(None).unwrap();
    }

    /// Waits until g3 exited by itself, or was killed.
    pub fn wait_for_end(mut self) {
        self.g3.wait_until(None).unwrap();
    }

    /// Creates an editor with these capabilities.
    pub fn offering(stage: &Stage, able: Value) -> Editor {
        Editor::before(stage, &["acp"], able)
    }

    /// Creates an editor for g3 with these arguments.
    pub fn before(stage: &Stage, args: &[&str], able: Value) -> Editor {
        let mut g3 = stage.env.start(G3, stage.env.home(), args);
        let stdout = g3.child.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value: Value = serde_json::from_str(&line).expect("stdout carries only JSON");
                assert_eq!(value["jsonrpc"], "2.0", "stdout carries only JSON-RPC: {line}");
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut editor = Editor { g3, lines, kept: VecDeque::new(), next: 1 };
        let params = json!({"protocolVersion": 1, "clientCapabilities": able});
        let reply = editor.request("initialize", params);
        assert_eq!(reply["protocolVersion"], 1);
        assert_eq!(reply["agentCapabilities"]["loadSession"], true);
        editor
    }

    pub fn send(&mut self, message: Value) {
        let stdin = self.g3.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request and returns its id.
    pub fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Returns the first message, kept or new, that matches; keeps the others.
    pub fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at).unwrap();
        }
        loop {
            let Ok(message) = self.lines.recv_timeout(Duration::from_secs(30)) else {
                panic!("no {what}; so far: {:#?}", self.kept);
            };
            if fits(&message) {
                return message;
            }
            self.kept.push_back(message);
        }
    }

    pub fn answer(&mut self, id: u64) -> Value {
        self.wait("answer", |m| m["id"] == id && m.get("method").is_none())
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method} failed: {answer}");
        answer["result"].clone()
    }

    /// Answers the next request of g3 for this method.
    pub fn serve(&mut self, method: &str, result: Value) -> Value {
        let asked = self.wait(method, |m| m["method"] == method && m.get("id").is_some());
        self.send(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        asked["params"].clone()
    }

    pub fn new_session(&mut self, cwd: &std::path::Path) -> String {
        let result = self.request("session/new", json!({"cwd": cwd, "mcpServers": []}));
        result["sessionId"].as_str().unwrap().to_owned()
    }

    pub fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.begin("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    /// Returns the updates received so far, by kind.
    pub fn updates(&self, kind: &str) -> Vec<&Value> {
        let updates = self.kept.iter().filter(|m| m["method"] == "session/update");
        let updates = updates.map(|m| &m["params"]["update"]);
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }

    pub fn own_events(&self) -> Vec<&Value> {
        let own = self.kept.iter().filter(|m| m["method"] == "_g3/event");
        own.map(|m| &m["params"]).collect()
    }
}
