//! Who answers in a session, and what it is told and given.

use base::failure::Result;

use super::Settings;
use super::help;
use crate::context::window::{Policy, Window};
use crate::message::Message;
use crate::prompt::{self, Place};
use crate::provider::{self, Choice, Facts, Provider, ToolSpec};
use crate::tools::profile::{self, Face};
use crate::tools::{self, Switches};
use crate::turn;

/// A model with its prompt and its tools; they stay the same as long as it answers.
pub struct Mind {
    /// The model.
    pub provider: Box<dyn Provider>,
    /// What it may do.
    pub offered: Vec<ToolSpec>,
    /// What it is told.
    pub system: String,
    /// Its context window while nothing is said.
    room: Window,
}

impl Mind {
    /// Opens the model that is chosen, for a session that began on this day.
    pub fn open(settings: &Settings, choice: &Choice, date: &str) -> Result<Mind> {
        Ok(Mind::of(settings, provider::open(&settings.config, choice)?, date))
    }

    /// As [`Mind::open`], with a model that is open.
    pub fn of(settings: &Settings, provider: Box<dyn Provider>, date: &str) -> Mind {
        let facts = provider.facts();
        let mut offered = Vec::new();
        if settings.tools {
            let switches = Switches { small: facts.small, acd: settings.acd, plan: false };
            offered = tools::offered(settings.profile, switches);
            let help = help::reference(settings, facts).and(profile::switched(help::SWITCH));
            offered.extend(help.map(Face::spec));
            offered = settings.role.offered(settings.profile, offered);
        }
        let identity = &settings.role.identity;
        let place = Place { cwd: &settings.cwd, date, tools: settings.tools, identity };
        let system = prompt::system(facts, &place);
        let room = room(settings, facts, turn::overhead(&system, &offered));
        Mind { provider, offered, system, room }
    }

    /// The model's facts.
    pub fn facts(&self) -> &Facts {
        self.provider.facts()
    }

    /// The account of its context with this conversation in it.
    pub fn window(&self, messages: &[Message]) -> Window {
        let mut window = self.room;
        if !messages.is_empty() {
            window.restart(messages);
        }
        window
    }
}

fn room(settings: &Settings, facts: &Facts, overhead: u64) -> Window {
    let agent = &settings.config.agent;
    let most = agent.max_context_length.map_or(facts.context, u64::from);
    let policy = Policy {
        thin_from: u64::from(agent.thinning_floor_percent),
        compact_at: agent.auto_compact.then_some(80),
    };
    Window::new(facts.context.min(most), overhead).with(policy)
}
