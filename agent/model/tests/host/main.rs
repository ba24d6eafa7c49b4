//! Tests of the model host through its protocol. Those that need a real model use the default one
//! in `$G3_MODELS` or `~/.g3/models` (`./scripts/fetch-model`).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod needs_model_file {
    mod replies;
    mod running;
    mod vectors;
}
mod refusals;

use std::path::PathBuf;
use std::time::Duration;

use base::model_host::connection::Connection;
use base::model_host::socket_path;
use base::model_host::wire::{
    HostChat, HostMessage, HostRequest, HostResponse, HostStatus, HostStopReason, HostTool,
    HostToolCall, ReplyUsage, ToolCallMode,
};
use base::process::{Running, Stream};
use serde_json::{Value, json};
use testkit::env::{TestEnv, until};

const FILE: &str = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf";

/// Returns the path of the default model.
pub fn model() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("HOME").map(|home| home.join(".g3/models"));
    let places = [variable("G3_MODELS"), home];
    let mut files = places.into_iter().flatten().map(|dir| dir.join(FILE));
    files.find(|path| path.is_file()).expect("the model file is missing: ./scripts/fetch-model")
}

/// A separate host and a connection to it. Stopped on drop.
pub struct Host {
    /// The process.
    pub running: Running,
    /// A connection to it.
    pub connection: Connection,
    /// Its socket.
    pub socket: PathBuf,
}

/// The reply to a chat.
#[derive(Debug, Default)]
pub struct ChatReply {
    /// The text.
    pub text: String,
    /// Name, arguments, and whether the limit truncated it.
    pub calls: Vec<(String, Value, bool)>,
    /// Why it ended.
    pub stop: Option<HostStopReason>,
    /// The usage.
    pub usage: ReplyUsage,
}

impl Host {
    /// Starts a host with one thread and these options.
    pub fn start(env: &TestEnv, options: &[&str]) -> Host {
        Host::start_with(env, &[&["--threads", "1"], options].concat())
    }

    /// Starts a host with these options.
    pub fn start_with(env: &TestEnv, options: &[&str]) -> Host {
        let socket = env.home().join("run/host.sock");
        let _ = std::fs::remove_file(&socket);
        let model = model();
        let job = env
            .command(env!("CARGO_BIN_EXE_g3-model"), env.home())
            .arg("--model")
            .arg(model)
            .arg("--socket")
            .arg(&socket)
            .args(["--context", "2048"])
            .args(options);
        let running = job.stdout(Stream::Null).stderr(Stream::Inherit).spawn().unwrap();
        let connected = until("the host listens", || socket_path::connect(&socket).ok());
        let connection = Connection::new(connected).unwrap();
        connection.hello().unwrap();
        Host { running, connection, socket }
    }

    /// Opens another connection.
    pub fn connect(&self) -> Connection {
        Connection::new(socket_path::connect(&self.socket).unwrap()).unwrap()
    }

    /// Sends a chat and reads the reply to its end.
    pub fn hear(&self, chat: HostChat) -> ChatReply {
        hear(&self.connection, chat)
    }

    /// Returns the status of the host.
    pub fn status(&self) -> HostStatus {
        match self.connection.ask(HostRequest::Status).wait() {
            HostResponse::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the host exits.
    pub fn ends(mut self) {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        let status = self.running.wait_until(Some(until)).unwrap();
        assert!(status.expect("the host did not end").success());
    }
}

/// Sends a chat and reads the reply to its end.
pub fn hear(connection: &Connection, chat: HostChat) -> ChatReply {
    let mut answers = connection.chat(chat);
    let mut heard = ChatReply::default();
    loop {
        match answers.wait() {
            HostResponse::Text { text } => heard.text.push_str(&text),
            HostResponse::Call { name, args, truncated_at_cap } => {
                heard.calls.push((name, args, truncated_at_cap));
            }
            HostResponse::Progress { .. } => {}
            HostResponse::Done { stop, usage } => {
                return ChatReply { stop: Some(stop), usage, ..heard };
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Creates a chat request.
pub fn chat(conversation: &str, text: &str) -> HostChat {
    HostChat {
        conversation: conversation.into(),
        system: "You are a careful assistant. You answer with as few words as you can, and you \
                 always do exactly what the user says, in the order in which the user says it, \
                 without any explanation of what you are doing and without asking back. You never \
                 say hello, you never say that you are sorry, and you write plain text without any \
                 marks."
            .into(),
        messages: vec![HostMessage::User { text: text.into() }],
        tools: Vec::new(),
        mode: ToolCallMode::Auto,
        max_tokens: 24,
        temperature: 0.0,
        seed: 0,
        act: false,
    }
}

/// Continues a conversation after a reply.
pub fn then(mut chat: HostChat, heard: &ChatReply, text: &str) -> HostChat {
    let calls = heard
        .calls
        .iter()
        .map(|(name, args, _)| HostToolCall { name: name.clone(), args: args.clone() });
    chat.messages.push(HostMessage::Assistant { text: heard.text.clone(), calls: calls.collect() });
    chat.messages.push(HostMessage::User { text: text.into() });
    chat
}

/// Returns two tools with several types of parameters.
pub fn tools() -> Vec<HostTool> {
    let tool = |name: &str, description: &str, parameters: Value| HostTool {
        name: name.into(),
        description: description.into(),
        parameters,
    };
    vec![
        tool(
            "write_file",
            "Writes a file.",
            json!({
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                "required": ["path", "content"],
            }),
        ),
        tool(
            "search",
            "Searches files.",
            json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string"},
                    "limit": {"type": "integer", "minimum": 1},
                    "case": {"enum": ["smart", "exact"]},
                    "paths": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["pattern", "case"],
            }),
        ),
    ]
}
