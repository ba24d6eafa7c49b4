//! Escalation from a local model: when it asks for help, the configured remote model answers for
//! the rest of the user turn, with the conversation so far.

use std::sync::{Arc, Mutex, OnceLock};

use base::failure::Result;
use tokio_util::sync::CancellationToken;

use super::actions::AgentAction;
use super::model::BoundModel;
use super::{AgentSession, AgentSettings};
use crate::limits::UsageMeter;
use crate::turn::{TurnEnd, TurnResult};
use provider::{self, ProviderChoice, ProviderFacts, off_loop};
use skills::SkillSet;
use tools::output::{ToolErrorKind, ToolOutput};

/// The setting that enables the tool with which a model asks for help.
pub(crate) const SWITCH: &str = "providers.escalation";

/// A stronger model that can be asked for.
pub(crate) struct Escalation {
    settings: AgentSettings,
    choice: ProviderChoice,
    date: String,
    skills: Arc<SkillSet>,
    model: OnceLock<BoundModel>,
    request: Mutex<Option<String>>,
}

/// Returns the configured escalation provider, if the model is local or small and not that provider
/// itself.
pub(crate) fn reference<'s>(settings: &'s AgentSettings, facts: &ProviderFacts) -> Option<&'s str> {
    let reference = settings.config.providers.escalation.as_deref()?;
    let is_local = facts.provider.split('.').next() == Some("embedded");
    let can_ask = settings.tools && (is_local || facts.small);
    (can_ask && facts.provider != reference).then_some(reference)
}

impl AgentSession {
    /// Answers the user. A model that asks for help is replaced for the rest of the turn.
    pub(super) async fn answer(&mut self, cancel: CancellationToken) -> TurnResult<TurnEnd> {
        let meter = self.options.meter.as_ref();
        let mut meter = meter.map_or_else(UsageMeter::default, UsageMeter::shared);
        let end = self.act(AgentAction::Drive, &mut meter, cancel.clone()).await;
        // Taken in any case: a request made in this turn does not apply to the next one.
        let stronger_model = self
            .escalation
            .as_ref()
            .and_then(|escalation| Some((escalation.take()?, escalation.model()?)));
        let Some((reason, stronger_model)) =
            stronger_model.filter(|_| matches!(end, Ok(TurnEnd::HandedOver)))
        else {
            return end;
        };
        let (facts, own_model) = (stronger_model.facts(), &self.facts().model);
        self.warn(format!(
            "{own_model} asks for help ({reason}): {} on {} continues this turn",
            facts.model, facts.provider
        ));
        stronger_model.provider.turn_begins();
        self.conversation.window = stronger_model.window(self.conversation.messages());
        let end = self.act(AgentAction::GoOn, &mut meter, cancel).await;
        self.conversation.window = self.model.window(self.conversation.messages());
        end
    }
}

impl Escalation {
    /// Creates the escalation for a model in a session that started on this day. The stronger model
    /// is opened on first use.
    pub(crate) fn new(
        settings: &AgentSettings,
        facts: &ProviderFacts,
        date: &str,
        skills: Arc<SkillSet>,
    ) -> Option<Escalation> {
        let reference = Some(reference(settings, facts)?.to_owned());
        Some(Escalation {
            settings: settings.clone(),
            choice: ProviderChoice {
                reference,
                budget: settings.choice.budget,
                ..ProviderChoice::default()
            },
            date: date.to_owned(),
            skills,
            model: OnceLock::new(),
            request: Mutex::new(None),
        })
    }

    /// Handles the outcome of a call that may suggest escalation: records the request if there is a
    /// stronger model, otherwise tells the model that there is none.
    pub(crate) async fn handle_output(
        escalation: Option<&Escalation>,
        outcome: ToolOutput,
    ) -> ToolOutput {
        let Some(reason) = outcome.escalate.clone() else { return outcome };
        let opened = match escalation {
            Some(escalation) => Some((escalation, escalation.open_model().await)),
            None => None,
        };
        let problem = match opened {
            Some((escalation, Ok(_))) => {
                *base::sync::lock(&escalation.request) = Some(reason);
                // The next step is advice for a small model, not for the stronger one.
                return ToolOutput { hint: None, ..outcome };
            }
            Some((_, Err(failure))) => failure.sentence(),
            None => "no other model is configured".to_owned(),
        };
        // A failed tool already has an error message.
        match outcome.ok {
            true => ToolOutput::failed(
                ToolErrorKind::Failed,
                format!("{problem}; continue with the task yourself"),
            ),
            false => outcome,
        }
    }

    async fn open_model(&self) -> Result<&BoundModel> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let (config, choice) = (self.settings.config.clone(), self.choice.clone());
        let provider = off_loop(move || provider::open(&config, &choice)).await?;
        let model = BoundModel::new(&self.settings, provider, &self.date, &self.skills);
        Ok(self.model.get_or_init(|| model))
    }

    /// Whether the model asked for help.
    pub(crate) fn is_requested(&self) -> bool {
        base::sync::lock(&self.request).is_some()
    }

    /// Returns the stronger model once it is open.
    pub(crate) fn model(&self) -> Option<&BoundModel> {
        self.model.get()
    }

    /// Takes the reason of the request.
    fn take(&self) -> Option<String> {
        base::sync::lock(&self.request).take()
    }
}
