//! The model of a session with its system prompt and tools.

use super::AgentSettings;
use super::{escalation, setup};
use crate::context::window::ContextWindow;
use crate::prompt::{self, PromptContext};
use crate::turn;
use provider::message::Message;
use provider::{Provider, ProviderFacts, ToolDefinition};
use skills::SkillSet;
use tools::profile::Profile;
use tools::profile::{self, ProfileTool};
use tools::tool_switches;

/// A model with its prompt and tools, which do not change while it answers.
pub(crate) struct BoundModel {
    /// The model.
    pub provider: Box<dyn Provider>,
    /// The profile of its tools.
    pub profile: Profile,
    /// The tools it is offered.
    pub offered: Vec<ToolDefinition>,
    /// The system prompt.
    pub system: String,
    /// Its context window with an empty conversation.
    room: ContextWindow,
}

impl BoundModel {
    /// Binds an open model, for a session that started on this day.
    pub(crate) fn of(
        settings: &AgentSettings,
        provider: Box<dyn Provider>,
        date: &str,
        shelf: &SkillSet,
    ) -> BoundModel {
        let facts = provider.facts();
        let mut offered = Vec::new();
        let (switches, skills) = setup::switches(settings, facts, shelf);
        if settings.tools {
            offered = tool_switches::offered(settings.profile, switches);
            offered.retain(|spec| setup::works_here(settings.profile, &spec.name));
            let escalation =
                escalation::reference(settings, facts).and(profile::switched(escalation::SWITCH));
            offered.extend(escalation.map(ProfileTool::spec));
        }
        // A role without other tools still has its own.
        let offered = settings.role.offered(settings.profile, offered);
        let (skills, notes) = (skills.as_deref(), settings.notes.file.as_deref());
        let skills = skills.filter(|_| !settings.role.reads_only);
        let (cwd, tools, identity) = (&settings.cwd, !offered.is_empty(), &settings.role.identity);
        let place = PromptContext { cwd, date, tools, skills, notes, identity };
        let system = prompt::system(facts, &place);
        let room = setup::window(&settings.config, facts, turn::overhead(&system, &offered));
        BoundModel { provider, profile: settings.profile, offered, system, room }
    }

    /// Offers more tools, for the rest of the session.
    pub(crate) fn give(&mut self, settings: &AgentSettings, more: Vec<ToolDefinition>) {
        self.offered.extend(more);
        let overhead = turn::overhead(&self.system, &self.offered);
        self.room = setup::window(&settings.config, self.facts(), overhead);
    }

    /// Replaces all tools for which `theirs` is true.
    pub(crate) fn offer_instead(
        &mut self,
        theirs: impl Fn(&str) -> bool,
        more: Vec<ToolDefinition>,
    ) {
        self.offered.retain(|spec| !theirs(&spec.name));
        self.offered.extend(more);
    }

    /// Returns the model's facts.
    pub(crate) fn facts(&self) -> &ProviderFacts {
        self.provider.facts()
    }

    /// Returns its context window with this conversation.
    pub(crate) fn window(&self, messages: &[Message]) -> ContextWindow {
        let mut window = self.room;
        if !messages.is_empty() {
            window.restart(messages);
        }
        window
    }
}
