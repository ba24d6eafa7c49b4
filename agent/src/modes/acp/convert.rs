//! Converts between g3's types and those of the protocol. Pure: no connection, no session.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, CurrentModeUpdate, Diff, EmbeddedResourceResource, ImageContent,
    McpServer, Notice, NoticeSeverity, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    SessionInfo, SessionUpdate, TextContent, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use base::config::mcp::McpServerConfig as Definition;
use base::event::{EventKind, NoticeLevel, TodoItem};
use base::secret::Secret;
use serde_json::Value;

use crate::ui;
use crate::ui::diff::{self, ChangedLines};
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
        ContentBlock::Audio(audio) => {
            format!("[audio ({}), its content is not included]", audio.mime_type)
        }
        ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
        ContentBlock::Resource(embedded) => match embedded.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                format!("<file uri=\"{}\">\n{}\n</file>", it.uri, it.text)
            }
            EmbeddedResourceResource::BlobResourceContents(it) => {
                let media_type = it.mime_type.unwrap_or_default();
                if media_type.starts_with("image/") {
                    return Some(ContentPart::Image(Image { media_type, data: it.blob }));
                }
                format!("[{}](binary file, its content is not included)", it.uri)
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
        EventKind::ToolEnd { id, ok, text, diff, .. } => {
            let changes = diff.as_deref().map(|diff| changes(diff, cwd)).unwrap_or_default();
            // The content replaces that of the start, which showed what the call asked for.
            let content = if changes.is_empty() { vec![text_content(text)] } else { changes };
            let fields = ToolCallUpdateFields::new().status(status(*ok)).content(content);
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

/// Converts what the user of an editor should know about the run.
pub(crate) fn notice(what: &EventKind) -> Option<Notice> {
    let (severity, text) = match what {
        EventKind::Notice { level: NoticeLevel::Info, text } => {
            (NoticeSeverity::Info, text.clone())
        }
        EventKind::Notice { level: NoticeLevel::Warning, text } => {
            (NoticeSeverity::Warning, text.clone())
        }
        EventKind::Retry { why, after_ms, .. } => {
            (NoticeSeverity::Info, ui::retry_line(why, *after_ms))
        }
        EventKind::Compacted { .. } => (NoticeSeverity::Info, ui::COMPACTED.to_owned()),
        _ => return None,
    };
    let (title, more) = text.split_once('\n').unwrap_or((&text, ""));
    let more = Some(more.to_owned()).filter(|more| !more.is_empty());
    Some(Notice::new(severity, title).description(more))
}

/// Returns the title of a session with this first request.
pub(crate) fn title(request: &str) -> String {
    base::text::cut_columns(request.trim().lines().next().unwrap_or_default(), 80)
}

/// Returns the entry of a session for the list of sessions.
pub(crate) fn listed(cwd: &Path, id: &base::id::Id) -> SessionInfo {
    let dir = session::sessions_dir(cwd).join(id.as_str());
    let snapshot = SessionSnapshot::read(&dir, id.as_str());
    SessionInfo::new(id.to_string(), cwd)
        .title(title(&snapshot.task))
        .updated_at(Some(snapshot.updated_at).filter(|time| !time.is_empty()))
}

/// Converts a conversation into the updates that a client would have received.
pub(crate) fn history(messages: &[Message], cwd: &Path) -> Vec<SessionUpdate> {
    let mut updates = Vec::new();
    // The calls whose start shows a change.
    let mut changing = HashSet::new();
    for message in messages {
        for part in &message.parts {
            updates.extend(match (message.role, part) {
                (MessageRole::User, ContentPart::Text { text }) => {
                    Some(SessionUpdate::UserMessageChunk(chunk(text)))
                }
                (MessageRole::User, ContentPart::Image(image)) => {
                    let (data, media_type) = (image.data.clone(), image.media_type.clone());
                    let image = ContentBlock::Image(ImageContent::new(data, media_type));
                    Some(SessionUpdate::UserMessageChunk(ContentChunk::new(image)))
                }
                (MessageRole::Assistant, ContentPart::Text { text }) => {
                    Some(SessionUpdate::AgentMessageChunk(chunk(text)))
                }
                (_, ContentPart::Reasoning { text, .. }) if !text.is_empty() => {
                    Some(SessionUpdate::AgentThoughtChunk(chunk(text)))
                }
                (_, ContentPart::Call(call)) => {
                    let start = started(&call.id, &call.name, &call.args, cwd);
                    if !start.content.is_empty() {
                        changing.insert(call.id.clone());
                    }
                    Some(SessionUpdate::ToolCall(start.status(ToolCallStatus::InProgress)))
                }
                (_, ContentPart::Result(result)) => {
                    let id = result.call_id.clone();
                    let keeps_change = result.ok && changing.contains(&id);
                    let content = (!keeps_change).then(|| vec![text_content(&result.text)]);
                    let fields = ToolCallUpdateFields::new().status(status(result.ok));
                    let update = ToolCallUpdate::new(id, fields.content(content));
                    Some(SessionUpdate::ToolCallUpdate(update))
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

fn status(ok: bool) -> ToolCallStatus {
    if ok { ToolCallStatus::Completed } else { ToolCallStatus::Failed }
}

/// Converts a unified diff into the changes that an editor shows.
fn changes(diff: &str, cwd: &Path) -> Vec<ToolCallContent> {
    let change = |hunk: ChangedLines| {
        ToolCallContent::Diff(Diff::new(cwd.join(hunk.file), hunk.new).old_text(hunk.old))
    };
    diff::hunks(diff).into_iter().map(change).collect()
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// Formats the details of a question as a code block; a unified diff is highlighted as such.
pub(crate) fn details(details: &str) -> ToolCallContent {
    let language = if details.starts_with("--- ") { "diff" } else { "" };
    text_content(&code_block(language, details))
}

/// Formats the answer of a command for an editor, which shows Markdown: lines stay lines.
pub(crate) fn command_answer(text: String) -> String {
    if text.contains('\n') { code_block("", &text) } else { text }
}

fn code_block(language: &str, content: &str) -> String {
    let mut text = String::new();
    export::push_code_block(&mut text, language, content);
    text.trim_start().to_owned()
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
    if has(&["todo", "plan"]) {
        ToolKind::Think
    } else if has(&["process"]) {
        ToolKind::Execute
    } else if has(&["read", "list", "view"]) {
        ToolKind::Read
    } else if has(&["write", "edit", "replace", "patch"]) {
        ToolKind::Edit
    } else if has(&["grep", "glob", "search", "find"]) {
        ToolKind::Search
    } else if has(&["shell", "bash", "exec"]) {
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
