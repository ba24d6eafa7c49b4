//! A request that the scripted model received, with accessors for tests.

use std::collections::BTreeMap;

use serde_json::Value;

/// The wire format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestWire {
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1/chat/completions`.
    OpenaiChat,
    /// `POST /serving-endpoints/NAME/invocations`: an Anthropic model behind chat completions.
    Databricks,
    /// `POST /v1/responses`.
    OpenaiResponses,
    /// `POST /v1beta/models/MODEL:streamGenerateContent`, or `:generateContent`.
    Gemini,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The path, including the query.
    pub path: String,
    /// Header names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body as sent.
    pub raw: Vec<u8>,
    /// The body as JSON; `null` if it is not JSON.
    pub body: Value,
}

impl ReceivedRequest {
    /// Returns the wire format, derived from the path; `None` for an unknown path.
    pub fn wire(&self) -> Option<RequestWire> {
        let path = self.path.split('?').next().unwrap_or_default();
        if path.ends_with("/v1/messages") {
            return Some(RequestWire::Anthropic);
        }
        if path.ends_with("/responses") {
            return Some(RequestWire::OpenaiResponses);
        }
        if path.contains("/v1beta/models/") && path.ends_with("enerateContent") {
            return Some(RequestWire::Gemini);
        }
        if path.starts_with("/serving-endpoints/") && path.ends_with("/invocations") {
            return Some(RequestWire::Databricks);
        }
        path.ends_with("/chat/completions").then_some(RequestWire::OpenaiChat)
    }

    /// Returns whether a stream is requested.
    pub fn is_streamed(&self) -> bool {
        self.body["stream"] == true || self.path.contains(":streamGenerateContent")
    }

    /// Returns a header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// Returns the messages as sent; the items of the responses wire format, the contents of
    /// Gemini.
    pub fn messages(&self) -> &[Value] {
        let lists = ["messages", "input", "contents"].iter();
        let list = lists.filter_map(|key| self.body[*key].as_array()).next();
        list.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the system prompt's text.
    pub fn system(&self) -> String {
        let inside = self.messages().iter().filter(|m| is_role(m, "system"));
        let texts = inside.map(|m| text_of(&m["content"]));
        let outside = [&self.body["system"], &self.body["instructions"]].map(text_of);
        let gemini = text_of(&self.body["systemInstruction"]["parts"]);
        outside.into_iter().chain([gemini]).chain(texts).collect()
    }

    /// Returns all text of the conversation, including tool results, one message per line.
    pub fn text(&self) -> String {
        self.messages().iter().map(words_of).collect::<Vec<_>>().join("\n")
    }

    /// Returns the text of the first user message.
    pub fn first_user(&self) -> String {
        let first = self.messages().iter().find(|m| is_role(m, "user"));
        first.map(words_of).unwrap_or_default()
    }

    /// Returns the text of the last message.
    pub fn last(&self) -> String {
        self.messages().last().map(words_of).unwrap_or_default()
    }

    /// Returns the number of the model's turns.
    pub fn assistant_messages(&self) -> usize {
        let spoken = |m: &&Value| is_role(m, "assistant") || is_role(m, "model");
        if self.wire() != Some(RequestWire::OpenaiResponses) {
            return self.messages().iter().filter(spoken).count();
        }
        // Items of one reply are adjacent.
        let ours = |m: &Value| m["role"] == "user" || m["type"] == "function_call_output";
        let turns = self.messages().chunk_by(|a, b| ours(a) == ours(b));
        turns.filter(|turn| turn.first().is_some_and(|first| !ours(first))).count()
    }

    /// Returns the names of the offered tools.
    pub fn tool_names(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let declared = tools.iter().filter_map(|tool| tool["functionDeclarations"].as_array());
        let names = tools
            .iter()
            .chain(declared.flatten())
            .map(|tool| [&tool["name"], &tool["function"]["name"]]);
        names
            .filter_map(|places| places.into_iter().find_map(Value::as_str))
            .map(str::to_owned)
            .collect()
    }

    /// Returns the tool results of the whole conversation, in order: call id (the tool's name for
    /// Gemini, which has no ids) and text.
    pub fn tool_results(&self) -> Vec<(String, String)> {
        let mut results = Vec::new();
        for message in self.messages() {
            if message["type"] == "function_call_output" {
                results.push((id_of(&message["call_id"]), text_of(&message["output"])));
            }
            for part in message["parts"].as_array().into_iter().flatten() {
                let (name, said) = (&part["functionResponse"]["name"], &part["functionResponse"]);
                let said = &said["response"];
                if let Some(text) = said["output"].as_str().or_else(|| said["error"].as_str()) {
                    results.push((id_of(name), text.to_owned()));
                }
            }
            if is_role(message, "tool") {
                results.push((id_of(&message["tool_call_id"]), text_of(&message["content"])));
            }
            for block in message["content"].as_array().into_iter().flatten() {
                if block["type"] == "tool_result" {
                    results.push((id_of(&block["tool_use_id"]), text_of(&block["content"])));
                }
            }
        }
        results
    }

    /// Returns whether it is a request without tools whose text mentions a commit message.
    pub fn asks_for_commit_message(&self) -> bool {
        let all = format!("{}\n{}", self.system(), self.text()).to_lowercase();
        self.tool_names().is_empty() && all.contains("commit message")
    }
}

fn is_role(message: &Value, role: &str) -> bool {
    message["role"] == role
}

/// Returns the text of a message in any wire format.
fn words_of(message: &Value) -> String {
    let parts = message["parts"].as_array().into_iter().flatten();
    let results = parts.map(|part| &part["functionResponse"]["response"]);
    let results = results.flat_map(|said| [said["output"].as_str(), said["error"].as_str()]);
    let results: String = results.flatten().collect();
    [&message["content"], &message["parts"], &message["output"]].map(text_of).concat() + &results
}

fn id_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the text of a content: a string, or the joined texts of its blocks (including nested
/// ones).
fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    blocks
        .map(|block| match block["text"].as_str() {
            Some(text) => text.to_owned(),
            None => text_of(&block["content"]),
        })
        .collect()
}
