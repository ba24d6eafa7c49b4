//! How much a session may do by itself: kept over starts, told to the model once.

use crate::session_tools::plan;
use gate::permission_mode::PermissionMode;
use provider::ToolDefinition;
use provider::message::{ContentPart, Message};
use tools::profile;

use super::AgentSession;
use super::model::BoundModel;

/// What the model is told when planning begins.
const PLANNING: &str = "[Plan mode: look around with the tools that read, ask what you must know, \
then call propose_plan. Nothing can be written or run before I approve the plan.]";

/// What the model is told when planning ends without a plan.
const FREE: &str = "[Plan mode is over: you may write and run again.]";

impl AgentSession {
    /// The mode in which this session works now.
    pub fn permission_mode(&self) -> PermissionMode {
        self.place.gate.permission_mode()
    }

    /// From now on the session works in this mode.
    pub fn set_permission_mode(&mut self, mode: PermissionMode) -> std::io::Result<()> {
        let before = self.permission_mode();
        base::files::replace(&self.permission_mode_file(), mode.id().as_bytes())?;
        self.place.gate.set_permission_mode(mode);
        match (before, mode) {
            (PermissionMode::Plan, PermissionMode::Plan) => {}
            (_, PermissionMode::Plan) => {
                self.offer_plan();
                self.tell_with_next(PLANNING.to_owned());
            }
            (PermissionMode::Plan, PermissionMode::Auto | PermissionMode::Ask) => {
                self.tell_with_next(FREE.to_owned())
            }
            (
                PermissionMode::Auto | PermissionMode::Ask,
                PermissionMode::Auto | PermissionMode::Ask,
            ) => {}
        }
        Ok(())
    }

    /// The mode in which the session was left; planning is over once the plan was approved.
    pub(super) fn restore_permission_mode(&mut self) {
        let text = std::fs::read_to_string(self.permission_mode_file()).unwrap_or_default();
        let Some(mode) = PermissionMode::parse(text.trim()) else { return };
        let plans = mode == PermissionMode::Plan;
        if plans {
            self.offer_plan();
        }
        let approved = plans && plan::is_approved(&self.session.dir);
        self.place.gate.set_permission_mode(if approved { PermissionMode::Auto } else { mode });
    }

    fn permission_mode_file(&self) -> std::path::PathBuf {
        self.session.dir.join("stance")
    }

    /// The tool for plans is offered from now on, to the end of the session.
    fn offer_plan(&mut self) {
        let Some(face) = profile::switched("plan mode") else { return };
        let offered = &mut self.model.offered;
        if !offered.iter().any(|spec| spec.name == face.name) && !offered.is_empty() {
            offered.push(face.spec());
        }
    }

    /// What a model is offered here: its tools, and the one for plans where this session has it.
    pub(super) fn offered_to(&self, bound: &BoundModel) -> Vec<ToolDefinition> {
        let mut offered = bound.offered.clone();
        let plan = profile::switched("plan mode").map(|face| face.name.as_str());
        let own = self.model.offered.iter().filter(|spec| Some(spec.name.as_str()) == plan);
        let missing = own.filter(|spec| !bound.offered.contains(spec)).cloned();
        offered.extend(missing);
        offered
    }

    /// Tells the model something with the user's next words.
    pub fn tell_with_next(&mut self, note: String) {
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
