//! A request as the scripted model got it, and questions that tests ask about it.

use std::collections::BTreeMap;

use serde_json::Value;

/// The wire format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1/chat/completions`.
    OpenaiChat,
    /// `POST /v1/responses`.
    OpenaiResponses,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// The path with its query.
    pub path: String,
    /// Header names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body as sent.
    pub raw: Vec<u8>,
    /// The body as JSON; `null` when it is none.
    pub body: Value,
}

impl Request {
    /// The wire format, told by the path; `None` for a path that none knows.
    pub fn wire(&self) -> Option<Wire> {
        let path = self.path.split('?').next().unwrap_or_default();
        if path.ends_with("/v1/messages") {
            return Some(Wire::Anthropic);
        }
        if path.ends_with("/responses") {
            return Some(Wire::OpenaiResponses);
        }
        path.ends_with("/chat/completions").then_some(Wire::OpenaiChat)
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// The messages as sent.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The system prompt's text.
    pub fn system(&self) -> String {
        let inside = self.messages().iter().filter(|m| is_role(m, "system"));
        let texts = inside.map(|m| text_of(&m["content"]));
        std::iter::once(text_of(&self.body["system"])).chain(texts).collect()
    }

    /// All text of the conversation, tool results included, one message a line.
    pub fn text(&self) -> String {
        self.messages().iter().map(|m| text_of(&m["content"])).collect::<Vec<_>>().join("\n")
    }

    /// The text of the first user message.
    pub fn first_user(&self) -> String {
        let first = self.messages().iter().find(|m| is_role(m, "user"));
        first.map(|m| text_of(&m["content"])).unwrap_or_default()
    }

    /// The text of the last message.
    pub fn last(&self) -> String {
        self.messages().last().map(|m| text_of(&m["content"])).unwrap_or_default()
    }

    /// How many times the model has spoken.
    pub fn assistant_messages(&self) -> usize {
        self.messages().iter().filter(|m| is_role(m, "assistant")).count()
    }

    /// The names of the offered tools.
    pub fn tool_names(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = tools.iter().map(|tool| [&tool["name"], &tool["function"]["name"]]);
        names
            .filter_map(|places| places.into_iter().find_map(Value::as_str))
            .map(str::to_owned)
            .collect()
    }

    /// The tool results of the whole conversation, in order: call id and text.
    pub fn tool_results(&self) -> Vec<(String, String)> {
        let mut results = Vec::new();
        for message in self.messages() {
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

    /// Whether it asks one question without tools whose text speaks of a commit message.
    pub fn asks_for_commit_message(&self) -> bool {
        let all = format!("{}\n{}", self.system(), self.text()).to_lowercase();
        self.tool_names().is_empty() && all.contains("commit message")
    }
}

fn is_role(message: &Value, role: &str) -> bool {
    message["role"] == role
}

fn id_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The text of a content: a string, or blocks whose texts (and nested contents) are joined.
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
