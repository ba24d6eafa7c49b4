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
    empty_window: ContextWindow,
}

impl BoundModel {
    /// Binds an open model, for a session that started on this day.
    pub(crate) fn new(
        settings: &AgentSettings,
        provider: Box<dyn Provider>,
        date: &str,
        skill_set: &SkillSet,
    ) -> BoundModel {
        let facts = provider.facts();
        let mut offered = Vec::new();
        let (switches, skills) = setup::switches(settings, facts, skill_set);
        if settings.tools {
            offered = tool_switches::offered_tools(settings.profile, switches);
            offered.retain(|spec| setup::is_usable(settings.profile, &spec.name));
            let escalation =
                escalation::reference(settings, facts).and(profile::of_switch(escalation::SWITCH));
            offered.extend(escalation.map(ProfileTool::spec));
        }
        // A role without other tools still has its own.
        let offered = settings.role.offered(settings.profile, offered);
        let (skills, notes) = (skills.as_deref(), settings.notes.file.as_deref());
        let skills = skills.filter(|_| !settings.role.reads_only);
        let (cwd, has_tools, identity) =
            (&settings.cwd, !offered.is_empty(), &settings.role.identity);
        let context = PromptContext { cwd, date, tools: has_tools, skills, notes, identity };
        let system = prompt::system(facts, &context);
        let empty_window =
            setup::window(&settings.config, facts, turn::overhead(&system, &offered));
        BoundModel { provider, profile: settings.profile, offered, system, empty_window }
    }

    /// Offers more tools, for the rest of the session.
    pub(crate) fn add_tools(&mut self, settings: &AgentSettings, tools: Vec<ToolDefinition>) {
        self.offered.extend(tools);
        let overhead = turn::overhead(&self.system, &self.offered);
        self.empty_window = setup::window(&settings.config, self.facts(), overhead);
    }

    /// Replaces all tools for which `is_replaced` is true.
    pub(crate) fn replace_tools(
        &mut self,
        is_replaced: impl Fn(&str) -> bool,
        tools: Vec<ToolDefinition>,
    ) {
        self.offered.retain(|spec| !is_replaced(&spec.name));
        self.offered.extend(tools);
    }

    /// Returns the model's facts.
    pub(crate) fn facts(&self) -> &ProviderFacts {
        self.provider.facts()
    }

    /// Returns its context window with this conversation.
    pub(crate) fn window(&self, messages: &[Message]) -> ContextWindow {
        let mut window = self.empty_window;
        if !messages.is_empty() {
            window.restart(messages);
        }
        window
    }
}
