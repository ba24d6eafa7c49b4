//! Sends events as ACP updates, and the gate's questions as permission requests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ConfigOptionUpdate, CreateElicitationRequest, ElicitationAction,
    ElicitationFormMode, ElicitationSchema, ElicitationSessionScope, PermissionOption,
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionNotification,
    SessionUpdate, ToolCallId, ToolCallLocation, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use agent_client_protocol::{Client, JsonRpcNotification};
use base::event::{Event, EventKind};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::convert;
use super::state::SharedState;
use crate::ui::ask;
use agent_core::bus::{Bus, EventSink};
use agent_core::current_call;
use gate::form::{FormAnswer, UserForm};
use gate::{Asker, PermissionAnswer, PermissionQuestion};

/// g3's own events, sent in addition to the protocol's: they include cost.
#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcNotification)]
#[notification(method = "_g3/event")]
#[serde(rename_all = "camelCase")]
struct OwnEvent {
    session_id: String,
    event: Event,
}

/// The key in `_meta` of the data that g3 and its orchestrator exchange in addition to the
/// protocol.
const META: &str = "g3";

/// A session's id, which its first event sets.
pub(crate) type SessionName = Arc<OnceLock<String>>;

/// Sends updates of one session.
#[derive(Clone)]
pub(crate) struct EditorUpdates {
    session: SessionName,
    client: ConnectionTo<Client>,
}

impl EditorUpdates {
    /// Creates it for a session that is about to start; its `start` event sets the id.
    pub(crate) fn new(client: ConnectionTo<Client>) -> EditorUpdates {
        EditorUpdates { session: SessionName::default(), client }
    }

    /// Returns the session's id, which may not be set yet.
    pub(crate) fn session(&self) -> SessionName {
        self.session.clone()
    }

    /// Sends one update. The connection itself reports that the editor has exited.
    pub(crate) fn send(&self, update: SessionUpdate) {
        if let Some(id) = self.session.get() {
            let _ = self.client.send_notification(SessionNotification::new(id.clone(), update));
        }
    }
}

/// Sends events to the editor.
pub(crate) struct UpdateSink {
    /// The updates of the session.
    pub updates: EditorUpdates,
    /// The state of the session.
    pub state: SharedState,
    /// The directory of the session.
    pub cwd: PathBuf,
    /// Whether the editor shows notices.
    pub has_notices: bool,
    /// Whether g3's own events are sent.
    pub has_events: bool,
    /// The output of each running call so far: an update replaces the one before it.
    pub output: HashMap<String, String>,
}

/// Maximum number of bytes shown of a running call's output.
const OUTPUT: usize = 8 << 10;

impl UpdateSink {
    /// Returns the event itself, except that output is preceded by the call's earlier output.
    fn gathered(&mut self, what: &EventKind) -> EventKind {
        match what {
            EventKind::ToolOutput { id, text } => {
                let all = self.output.entry(id.clone()).or_default();
                all.push_str(text);
                *all = base::text::tail(all, OUTPUT).to_owned();
                EventKind::ToolOutput { id: id.clone(), text: all.clone() }
            }
            EventKind::ToolEnd { id, .. } => {
                self.output.remove(id);
                what.clone()
            }
            other => other.clone(),
        }
    }

    /// Sends what follows from the session's state.
    fn send_state(&self, what: &EventKind) {
        let mut state = base::sync::lock(&self.state);
        let Some(state) = state.as_mut() else { return };
        match what {
            EventKind::Usage { usage } => state.add(*usage),
            EventKind::Context { used, limit } => {
                self.updates.send(state.usage_update(*used, *limit));
            }
            EventKind::Plan { plan } if plan["approved"] == true => {
                let options = ConfigOptionUpdate::new(state.options());
                self.updates.send(SessionUpdate::ConfigOptionUpdate(options));
            }
            _ => {}
        }
    }
}

impl EventSink for UpdateSink {
    fn on_event(&mut self, event: &Event) {
        if let EventKind::Start { session, .. } = &event.what {
            let _ = self.updates.session.set(session.clone());
        }
        if let Some(update) = convert::update(&self.gathered(&event.what), &self.cwd) {
            self.updates.send(update);
        }
        self.send_state(&event.what);
        if let Some(notice) = convert::notice(&event.what).filter(|_| self.has_notices) {
            self.updates.send(SessionUpdate::Notice(notice));
        }
        if let Some(id) = self.updates.session.get().filter(|_| self.has_events) {
            let notification = OwnEvent { session_id: id.clone(), event: event.clone() };
            let _ = self.updates.client.send_notification(notification);
        }
    }
}

/// Asks the user of the editor.
pub(crate) struct AcpAsker {
    client: ConnectionTo<Client>,
    session: SessionName,
    bus: OnceLock<Arc<Bus>>,
    /// Whether the editor shows forms.
    shows_forms: bool,
}

impl AcpAsker {
    /// Creates an asker for this session of this connection.
    pub(crate) fn new(
        client: ConnectionTo<Client>,
        session: SessionName,
        able: &ClientCapabilities,
    ) -> AcpAsker {
        let forms = able.elicitation.as_ref().and_then(|it| it.form.as_ref());
        AcpAsker { client, session, bus: OnceLock::new(), shows_forms: forms.is_some() }
    }

    /// Sets a bus that receives the questions as well.
    pub(crate) fn set_bus(&self, bus: &Arc<Bus>) {
        let _ = self.bus.set(bus.clone());
    }
}

impl Asker for AcpAsker {
    fn ask<'a>(&'a self, question: &'a PermissionQuestion) -> BoxFuture<'a, PermissionAnswer> {
        Box::pin(async move {
            let id = current_call::call_id();
            let Some(session) = self.session.get().cloned() else { return PermissionAnswer::No };
            if let Some(bus) = self.bus.get() {
                bus.emit(ask::event(&id, question));
            }
            let title = format!("{} ({})", question.what, question.reason);
            let mut fields = ToolCallUpdateFields::new().title(title);
            if let Some(file) = &question.writes {
                let location = ToolCallLocation::new(file.clone());
                fields = fields.kind(ToolKind::Edit).locations(vec![location]);
            }
            if let Some(details) = &question.details {
                fields = fields.content(vec![convert::details(details)]);
            }
            let always = match &question.host {
                Some(host) => format!("Always allow {host}"),
                None => "Allow in this session".to_owned(),
            };
            let rule = serde_json::json!({ "rule": question.rule });
            let meta = serde_json::Map::from_iter([(META.to_owned(), rule)]);
            let call = ToolCallUpdate::new(id, fields).meta(meta);
            let options = vec![
                PermissionOption::new("once", "Allow once", PermissionOptionKind::AllowOnce),
                PermissionOption::new("always", always, PermissionOptionKind::AllowAlways),
                PermissionOption::new("no", "Reject", PermissionOptionKind::RejectOnce),
            ];
            let request = RequestPermissionRequest::new(session, call, options);
            let response = self.client.send_request(request).block_task().await;
            // An orchestrator may deny without asking, and says why.
            let denied = response.as_ref().ok().and_then(|response| response.meta.as_ref());
            if let Some(reason) = denied.and_then(|meta| meta.get(META)?["denied"].as_str()) {
                return PermissionAnswer::Unasked(reason.to_owned());
            }
            match response.map(|response| response.outcome) {
                Ok(RequestPermissionOutcome::Selected(selected)) => {
                    match selected.option_id.0.as_ref() {
                        "once" => PermissionAnswer::Once,
                        "always" => PermissionAnswer::Always,
                        _ => PermissionAnswer::No,
                    }
                }
                Ok(_) | Err(_) => PermissionAnswer::No,
            }
        })
    }

    fn can_show_forms(&self) -> bool {
        self.shows_forms
    }

    fn fill<'a>(&'a self, form: &'a UserForm) -> BoxFuture<'a, FormAnswer> {
        Box::pin(async move {
            let id = current_call::call_id();
            let Some(session) = self.session.get().cloned() else { return FormAnswer::Cancelled };
            let schema = serde_json::from_value::<ElicitationSchema>(form.schema.clone());
            let Ok(schema) = schema else { return FormAnswer::Declined };
            if let Some(bus) = self.bus.get() {
                bus.emit(ask::form_event(&id, form));
            }
            let scope = ElicitationSessionScope::new(session).tool_call_id(ToolCallId::new(id));
            let message = format!("{} asks: {}", form.source, form.message);
            let mode = ElicitationFormMode::new(scope, schema);
            let request = CreateElicitationRequest::new(mode, message);
            let response = self.client.send_request(request).block_task().await;
            match response.map(|response| response.action) {
                Ok(ElicitationAction::Accept(accepted)) => {
                    let values = serde_json::to_value(accepted.content.unwrap_or_default());
                    let values = values.ok().and_then(|values| values.as_object().cloned());
                    values.map_or(FormAnswer::Cancelled, FormAnswer::Filled)
                }
                Ok(ElicitationAction::Decline) => FormAnswer::Declined,
                Ok(_) | Err(_) => FormAnswer::Cancelled,
            }
        })
    }
}
