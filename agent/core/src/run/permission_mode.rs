//! The permission mode of a session: persisted across restarts, and announced to the model once.

use std::path::PathBuf;
use std::sync::Arc;

use crate::session_tools::plan;
use gate::Gate;
use gate::permission_mode::PermissionMode;
use provider::ToolDefinition;
use provider::message::{ContentPart, Message};
use tools::profile;

use super::AgentSession;
use super::model::BoundModel;

/// The note for the model when plan mode starts.
const PLAN_MODE_STARTED: &str = "[Plan mode: look around with the tools that read, ask what you must know, \
then call propose_plan. Nothing can be written or run before I approve the plan.]";

/// The note for the model when plan mode ends without a plan.
const PLAN_MODE_ENDED: &str = "[Plan mode is over: you may write and run again.]";

/// Reads and sets the permission mode of a session, also while a turn runs.
#[derive(Clone)]
pub struct PermissionModeSwitch {
    gate: Arc<Gate>,
    file: PathBuf,
}

impl PermissionModeSwitch {
    /// Returns the current permission mode.
    pub fn mode(&self) -> PermissionMode {
        self.gate.permission_mode()
    }

    /// Sets the permission mode for the next call. Returns false, and does nothing, if plan mode
    /// would begin or end: the model is told so with the next user message
    /// ([`AgentSession::set_permission_mode`]).
    pub fn set(&self, mode: PermissionMode) -> std::io::Result<bool> {
        let is_about_plan = (mode == PermissionMode::Plan) != (self.mode() == PermissionMode::Plan);
        if !is_about_plan {
            self.store(mode)?;
        }
        Ok(!is_about_plan)
    }

    fn store(&self, mode: PermissionMode) -> std::io::Result<()> {
        base::files::replace(&self.file, mode.id().as_bytes())?;
        self.gate.set_permission_mode(mode);
        Ok(())
    }
}

impl AgentSession {
    /// Returns the current permission mode.
    pub fn permission_mode(&self) -> PermissionMode {
        self.context.gate.permission_mode()
    }

    /// Returns access to the permission mode that does not need the session.
    pub fn permission_mode_switch(&self) -> PermissionModeSwitch {
        let (gate, file) = (self.context.gate.clone(), self.permission_mode_file());
        PermissionModeSwitch { gate, file }
    }

    /// Sets the permission mode.
    pub fn set_permission_mode(&mut self, mode: PermissionMode) -> std::io::Result<()> {
        let before = self.permission_mode();
        self.permission_mode_switch().store(mode)?;
        match (before, mode) {
            (PermissionMode::Plan, PermissionMode::Plan) => {}
            (_, PermissionMode::Plan) => {
                self.offer_plan();
                self.queue_note(PLAN_MODE_STARTED.to_owned());
            }
            (PermissionMode::Plan, PermissionMode::Auto | PermissionMode::Ask) => {
                self.queue_note(PLAN_MODE_ENDED.to_owned())
            }
            (
                PermissionMode::Auto | PermissionMode::Ask,
                PermissionMode::Auto | PermissionMode::Ask,
            ) => {}
        }
        Ok(())
    }

    /// Restores the stored mode. Plan mode ends once the plan was approved.
    pub(super) fn restore_permission_mode(&mut self) {
        let text = base::files::read_text(&self.permission_mode_file()).unwrap_or_default();
        let Some(mode) = PermissionMode::parse(text.trim()) else { return };
        let is_plan = mode == PermissionMode::Plan;
        if is_plan {
            self.offer_plan();
        }
        let approved = is_plan && plan::is_approved(&self.session.dir);
        self.context.gate.set_permission_mode(if approved { PermissionMode::Auto } else { mode });
    }

    fn permission_mode_file(&self) -> PathBuf {
        self.session.dir.join("stance")
    }

    /// Offers the plan tool for the rest of the session.
    fn offer_plan(&mut self) {
        let Some(tool) = profile::of_switch("plan mode") else { return };
        let offered = &mut self.model.offered;
        if !offered.iter().any(|spec| spec.name == tool.name) && !offered.is_empty() {
            offered.push(tool.spec());
        }
    }

    /// Returns the tools offered to a model here: its own, and the plan tool if this session has
    /// it.
    pub(super) fn offered_to(&self, model: &BoundModel) -> Vec<ToolDefinition> {
        let mut offered = model.offered.clone();
        let plan = profile::of_switch("plan mode").map(|tool| tool.name.as_str());
        let plan_tool = self.model.offered.iter().filter(|spec| Some(spec.name.as_str()) == plan);
        let missing = plan_tool.filter(|spec| !model.offered.contains(spec)).cloned();
        offered.extend(missing);
        offered
    }

    /// Adds a note for the model to the next user message.
    pub fn queue_note(&mut self, note: String) {
        self.note = Some(match self.note.take() {
            Some(before) => format!("{before}\n{note}"),
            None => note,
        });
    }

    pub(super) fn with_note(&mut self, mut message: Message) -> Message {
        if let Some(note) = self.note.take() {
            message.parts.insert(0, ContentPart::context(format!("{note}\n\n")));
        }
        message
    }
}
