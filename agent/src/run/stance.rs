//! How much a session may do by itself: kept over starts, told to the model once.

use crate::session_tools::plan;
use gate::stance::Stance;
use provider::ToolSpec;
use provider::message::{Message, Part};
use tools::profile;

use super::Work;
use super::mind::Mind;

/// What the model is told when planning begins.
const PLANNING: &str = "[Plan mode: look around with the tools that read, ask what you must know, \
then call propose_plan. Nothing can be written or run before I approve the plan.]";

/// What the model is told when planning ends without a plan.
const FREE: &str = "[Plan mode is over: you may write and run again.]";

impl Work {
    /// The stance in which this session works now.
    pub fn stance(&self) -> Stance {
        self.place.gate.stance()
    }

    /// From now on the session works in this stance.
    pub fn take_stance(&mut self, stance: Stance) -> std::io::Result<()> {
        let before = self.stance();
        base::files::replace(&self.stance_file(), stance.id().as_bytes())?;
        self.place.gate.take(stance);
        match (before, stance) {
            (Stance::Plan, Stance::Plan) => {}
            (_, Stance::Plan) => {
                self.offer_plan();
                self.tell_with_next(PLANNING.to_owned());
            }
            (Stance::Plan, Stance::Auto | Stance::Ask) => self.tell_with_next(FREE.to_owned()),
            (Stance::Auto | Stance::Ask, Stance::Auto | Stance::Ask) => {}
        }
        Ok(())
    }

    /// The stance in which the session was left; planning is over once the plan was approved.
    pub(super) fn find_stance(&mut self) {
        let text = std::fs::read_to_string(self.stance_file()).unwrap_or_default();
        let Some(stance) = Stance::parse(text.trim()) else { return };
        let plans = stance == Stance::Plan;
        if plans {
            self.offer_plan();
        }
        let approved = plans && plan::is_approved(&self.session.dir);
        self.place.gate.take(if approved { Stance::Auto } else { stance });
    }

    fn stance_file(&self) -> std::path::PathBuf {
        self.session.dir.join("stance")
    }

    /// The tool for plans is offered from now on, to the end of the session.
    fn offer_plan(&mut self) {
        let Some(face) = profile::switched("plan mode") else { return };
        let offered = &mut self.mind.offered;
        if !offered.iter().any(|spec| spec.name == face.name) && !offered.is_empty() {
            offered.push(face.spec());
        }
    }

    /// What a model is offered here: its tools, and the one for plans where this session has it.
    pub(super) fn offered_to(&self, mind: &Mind) -> Vec<ToolSpec> {
        let mut offered = mind.offered.clone();
        let plan = profile::switched("plan mode").map(|face| face.name.as_str());
        let own = self.mind.offered.iter().filter(|spec| Some(spec.name.as_str()) == plan);
        let missing = own.filter(|spec| !mind.offered.contains(spec)).cloned();
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
            message.parts.insert(0, Part::Text { text: format!("{note}\n\n") });
        }
        message
    }
}
