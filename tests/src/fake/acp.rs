//! The fake agent over ACP: JSON-RPC on stdio, written by hand so that it does not share code with
//! the client.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use serde_json::{Value, json};

use crate::fake::script::{self, ScriptStage};

/// The file that stores a loadable conversation.
const MEMORY: &str = ".g3/fake-conversation";

/// The variable with the options, modes and models of a session, as in the response that opens one.
const OFFERS: &str = "FAKE_ACP_OFFERS";
/// The file with the requests that set one of them.
const SETTINGS: &str = "settings.txt";

fn offered() -> Value {
    let text = std::env::var(OFFERS).unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str(&text).expect("the offers are JSON")
}

/// Serves until the end of stdin; `loads` is whether conversations can be loaded again.
pub fn serve(loads: bool) -> ExitCode {
    let cancelled = Arc::new(AtomicBool::new(false));
    let (send, messages) = mpsc::channel::<Value>();
    let flag = cancelled.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            if message["method"] == "session/cancel" {
                flag.store(true, Ordering::SeqCst);
            } else if send.send(message).is_err() {
                return;
            }
        }
    });
    let mut talk = AcpConnection { messages, cancelled, session: String::new(), asked: 0 };
    while let Ok(message) = talk.messages.recv() {
        talk.answer(&message, loads);
    }
    ExitCode::SUCCESS
}

/// A connection.
struct AcpConnection {
    messages: mpsc::Receiver<Value>,
    cancelled: Arc<AtomicBool>,
    session: String,
    asked: u64,
}

impl AcpConnection {
    fn answer(&mut self, message: &Value, loads: bool) {
        let id = message["id"].clone();
        match message["method"].as_str() {
            Some("initialize") => {
                let able = json!({"loadSession": loads});
                reply(&id, &json!({"protocolVersion": 1, "agentCapabilities": able}));
            }
            Some("session/new") => {
                self.session = format!("fake-{}", std::process::id());
                if loads {
                    let _ = std::fs::create_dir_all(".g3");
                    std::fs::write(MEMORY, &self.session).expect("the worktree is writable");
                }
                let mut response = offered();
                response["sessionId"] = json!(self.session);
                reply(&id, &response);
            }
            Some("session/load") => {
                let wanted = message["params"]["sessionId"].as_str().unwrap_or_default();
                if std::fs::read_to_string(MEMORY).is_ok_and(|known| known == wanted) {
                    self.session = wanted.to_owned();
                    self.update("history that is no news");
                    reply(&id, &offered());
                } else {
                    fail(&id, "there is no such conversation");
                }
            }
            Some(
                method @ ("session/set_config_option" | "session/set_mode" | "session/set_model"),
            ) if std::env::var_os(OFFERS).is_some() => {
                let line = format!("{method} {}\n", message["params"]);
                let mut all = std::fs::read_to_string(SETTINGS).unwrap_or_default();
                all.push_str(&line.replace(&self.session, "ID"));
                std::fs::write(SETTINGS, all).expect("the worktree is writable");
                reply(&id, &json!({"configOptions": offered()["configOptions"]}));
            }
            Some("session/prompt") => self.turn(&id, message),
            Some(_) => fail(&id, "the method is not known"),
            None => {}
        }
    }

    fn turn(&mut self, id: &Value, message: &Value) {
        self.cancelled.store(false, Ordering::SeqCst);
        let text = message["params"]["prompt"][0]["text"].as_str().unwrap_or_default().to_owned();
        for step in text.split(['\n', ';']).map(str::trim) {
            if let Some(event) = step.strip_prefix("event ") {
                let event: Value = serde_json::from_str(event).expect("an event is JSON");
                let params = json!({"sessionId": self.session, "event": event});
                write(&json!({"jsonrpc": "2.0", "method": "_g3/event", "params": params}));
            } else if let Some(call) = step.strip_prefix("request ") {
                let call: Value = serde_json::from_str(call).expect("a call is JSON");
                self.request(&[call]);
            } else if let Some(all) = step.strip_prefix("askall ") {
                let calls: Vec<Value> =
                    all.split('|').map(|it| json!({"title": it.trim()})).collect();
                self.request(&calls);
            } else if let Some(why) = step.strip_prefix("fail ") {
                return fail(id, why);
            } else if script::play(step, self) != ExitCode::SUCCESS {
                if self.is_cancelled() {
                    break;
                }
                std::process::exit(7);
            }
        }
        let stop = if self.is_cancelled() { "cancelled" } else { "end_turn" };
        reply(id, &json!({"stopReason": stop}));
    }

    fn update(&self, text: &str) {
        let update = json!({
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": text},
        });
        let params = json!({"sessionId": self.session, "update": update});
        write(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }
}

impl AcpConnection {
    /// Requests permission for these calls, all at once; writes the chosen option for each, and the
    /// reason of a denial, to `answers.txt`. Returns the last answer.
    fn request(&mut self, calls: &[Value]) -> bool {
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
        let mut waits: Vec<(String, String)> = Vec::new();
        for call in calls {
            self.asked += 1;
            let id = format!("ask-{}", self.asked);
            let mut call = call.clone();
            call["toolCallId"] = json!(id);
            let title = call["title"].as_str().unwrap_or_default().to_owned();
            let params = json!({
                "sessionId": self.session,
                "toolCall": call,
                "options": [option("yes", "allow_once"), option("always", "allow_always"),
                            option("no", "reject_once")],
            });
            write(&json!({
                "jsonrpc": "2.0", "id": id, "method": "session/request_permission",
                "params": params,
            }));
            waits.push((id, title));
        }
        let mut last = false;
        while !waits.is_empty() {
            let Ok(message) = self.messages.recv() else { return false };
            let Some(at) = waits.iter().position(|(id, _)| message["id"] == json!(id)) else {
                continue;
            };
            let (_, title) = waits.remove(at);
            let result = &message["result"];
            let chosen = result["outcome"]["optionId"].as_str().unwrap_or("cancelled");
            let why = result["_meta"]["g3"]["denied"].as_str().unwrap_or_default();
            let line = format!("{title}: {chosen} {why}");
            let mut all = std::fs::read_to_string("answers.txt").unwrap_or_default();
            all.push_str(line.trim_end());
            all.push('\n');
            std::fs::write("answers.txt", all).expect("the worktree is writable");
            last = ["yes", "always"].contains(&chosen);
        }
        last
    }
}

impl ScriptStage for AcpConnection {
    fn say(&mut self, text: &str) {
        // In two chunks, as models stream.
        let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        self.update(&text[..middle]);
        self.update(&text[middle..]);
    }

    fn ask(&mut self, what: &str) -> bool {
        self.request(&[json!({"title": what})])
    }

    fn is_cancelled(&mut self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
}

fn reply(id: &Value, result: &Value) {
    write(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn fail(id: &Value, why: &str) {
    let error = json!({"code": -32000, "message": why});
    write(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
}

fn write(message: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}
