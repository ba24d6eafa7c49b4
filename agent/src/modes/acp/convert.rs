//! Converts between g3's types and those of the protocol. Pure: no connection, no session.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, CurrentModeUpdate, Diff, EmbeddedResourceResource, McpServer, Plan,
    PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionInfo, SessionUpdate, TextContent,
    ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use base::config::mcp::McpServerConfig as Definition;
use base::event::{EventKind, TodoItem};
use base::secret::Secret;
use serde_json::Value;

use agent_core::call_line::call_line;
use agent_core::session::{self, export, snapshot::SessionSnapshot};
use gate::permission_mode::PermissionMode;
use provider::message::{ContentPart, Image, Message, MessageRole};

/// Converts a prompt into the user's message.
pub(crate) fn message(blocks: Vec<ContentBlock>) -> Message {
    Message { role: MessageRole::User, parts: blocks.into_iter().filter_map(part).collect() }
}

fn part(block: ContentBlock) -> Option<ContentPart> {
    let text = match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => {
            let (media_type, data) = (image.mime_type, image.data);
            return Some(ContentPart::Image(Image { media_type, data }));
        }
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        ContentBlock::Resource(embedded) => match embedded.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                format!("<file uri=\"{}\">\n{}\n</file>", it.uri, it.text)
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(ContentPart::Text { text })
}

/// Converts an MCP server of the editor into its configuration; `None` for a transport that g3 did
/// not offer.
pub(crate) fn server(server: McpServer) -> Option<(String, Definition)> {
    match server {
        McpServer::Stdio(it) => {
            let program = it.command.to_string_lossy().into_owned();
            let command = std::iter::once(program).chain(it.args).collect();
            let env = it.env.into_iter().map(|var| (var.name, Secret::new(var.value))).collect();
            Some((it.name, Definition { command, env, ..Definition::default() }))
        }
        McpServer::Http(it) => {
            let header = it.headers.into_iter().map(|it| (it.name, Secret::new(it.value)));
            let (url, headers) = (Some(it.url), header.collect());
            Some((it.name, Definition { url, headers, ..Definition::default() }))
        }
        _ => None,
    }
}

/// Converts an event into an update; `None` if the protocol has none for it.
pub(crate) fn update(what: &EventKind, cwd: &Path) -> Option<SessionUpdate> {
    Some(match what {
        EventKind::Text { text } => SessionUpdate::AgentMessageChunk(chunk(text)),
        EventKind::Reasoning { text } => SessionUpdate::AgentThoughtChunk(chunk(text)),
        EventKind::ToolStart { id, name, args } => {
            let call = started(id, name, args, cwd).status(ToolCallStatus::InProgress);
            SessionUpdate::ToolCall(call)
        }
        EventKind::ToolOutput { id, text } => {
            let fields = ToolCallUpdateFields::new().content(vec![text_content(text)]);
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.clone(), fields))
        }
        EventKind::ToolEnd { id, ok, text, .. } => {
            let status = if *ok { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
            let fields =
                ToolCallUpdateFields::new().status(status).content(vec![text_content(text)]);
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.clone(), fields))
        }
        EventKind::Todo { items } => SessionUpdate::Plan(plan(items)),
        EventKind::Plan { plan } if plan["approved"] == true => {
            SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(PermissionMode::Auto.id()))
        }
        EventKind::Start { .. }
        | EventKind::Turn { .. }
        | EventKind::Usage { .. }
        | EventKind::Context { .. }
        | EventKind::Plan { .. }
        | EventKind::Retry { .. }
        | EventKind::Thinned { .. }
        | EventKind::Compacted { .. }
        | EventKind::Notice { .. }
        | EventKind::Ask { .. }
        | EventKind::Error { .. }
        | EventKind::End { .. } => return None,
    })
}

/// Returns the entry of a session for the list of sessions.
pub(crate) fn listed(cwd: &Path, id: &base::id::Id) -> SessionInfo {
    let dir = session::sessions_dir(cwd).join(id.as_str());
    let snapshot = SessionSnapshot::read(&dir, id.as_str());
    let title = snapshot.task.lines().next().unwrap_or_default();
    SessionInfo::new(id.to_string(), cwd)
        .title(base::text::cut_columns(title, 80))
        .updated_at(Some(snapshot.updated_at).filter(|time| !time.is_empty()))
}

/// Converts a conversation into the updates that a client would have received.
pub(crate) fn history(messages: &[Message]) -> Vec<SessionUpdate> {
    let mut updates = Vec::new();
    for message in messages {
        for part in &message.parts {
            updates.extend(match (message.role, part) {
                (MessageRole::User, ContentPart::Text { text }) => {
                    Some(SessionUpdate::UserMessageChunk(chunk(text)))
                }
                (MessageRole::Assistant, ContentPart::Text { text }) => {
                    Some(SessionUpdate::AgentMessageChunk(chunk(text)))
                }
                (_, ContentPart::Reasoning { text, .. }) if !text.is_empty() => {
                    Some(SessionUpdate::AgentThoughtChunk(chunk(text)))
                }
                (_, ContentPart::Call(call)) => {
                    let call = started(&call.id, &call.name, &call.args, Path::new("/"));
                    Some(SessionUpdate::ToolCall(call.status(ToolCallStatus::InProgress)))
                }
                (_, ContentPart::Result(result)) => {
                    let (id, name) = (result.call_id.clone(), result.name.clone());
                    let (ok, text) = (result.ok, result.text.clone());
                    let end = EventKind::ToolEnd { id, name, ok, text, ms: 0, diff: None };
                    update(&end, Path::new("/"))
                }
                (
                    _,
                    ContentPart::Note(_) | ContentPart::Reasoning { .. } | ContentPart::Image(_),
                ) => None,
            });
        }
    }
    updates
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// Formats the details of a question as a code block; a unified diff is highlighted as such.
pub(crate) fn details(details: &str) -> ToolCallContent {
    let language = if details.starts_with("--- ") { "diff" } else { "" };
    let mut text = String::new();
    export::push_code_block(&mut text, language, details);
    text_content(text.trim_start())
}

fn text_content(text: &str) -> ToolCallContent {
    ToolCallContent::from(ContentBlock::Text(TextContent::new(text)))
}

/// Returns a call at its start: its title, its file, and the change that it proposes.
fn started(id: &str, name: &str, args: &Value, cwd: &Path) -> ToolCall {
    let mut call = ToolCall::new(id.to_owned(), call_line(name, args))
        .name(name.to_owned())
        .kind(kind(name))
        .raw_input(args.clone());
    let Some(path) = path_of(args, cwd) else { return call };
    call = call.locations(vec![ToolCallLocation::new(path.clone())]);
    let text = |keys: [&str; 3]| keys.iter().find_map(|key| args[*key].as_str());
    let new = text(["content", "newString", "new_string"]);
    let old = text(["oldString", "old_string", "old_text"]);
    if let Some(new) = new {
        let diff = Diff::new(path, new).old_text(old.map(str::to_owned));
        call = call.content(vec![ToolCallContent::Diff(diff)]);
    }
    call
}

fn path_of(args: &Value, cwd: &Path) -> Option<PathBuf> {
    let keys = ["file_path", "filePath", "path"];
    keys.iter().find_map(|key| args[*key].as_str()).map(|path| cwd.join(path))
}

/// Returns the kind of a tool, for its icon, by the verbs in its name.
fn kind(name: &str) -> ToolKind {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["read", "list", "view"]) {
        ToolKind::Read
    } else if has(&["write", "edit", "replace", "patch"]) {
        ToolKind::Edit
    } else if has(&["grep", "glob", "search", "find"]) {
        ToolKind::Search
    } else if has(&["shell", "bash", "process", "exec"]) {
        ToolKind::Execute
    } else if has(&["fetch", "web"]) {
        ToolKind::Fetch
    } else {
        ToolKind::Other
    }
}

fn plan(items: &[TodoItem]) -> Plan {
    let entry = |item: &TodoItem| {
        let priority = match item.priority.as_str() {
            "high" => PlanEntryPriority::High,
            "low" => PlanEntryPriority::Low,
            _ => PlanEntryPriority::Medium,
        };
        let status = match item.status.as_str() {
            "completed" | "cancelled" => PlanEntryStatus::Completed,
            "in_progress" => PlanEntryStatus::InProgress,
            _ => PlanEntryStatus::Pending,
        };
        PlanEntry::new(item.content.clone(), priority, status)
    };
    Plan::new(items.iter().map(entry).collect())
}
