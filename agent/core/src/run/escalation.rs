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
    shelf: Arc<SkillSet>,
    model: OnceLock<BoundModel>,
    wanted: Mutex<Option<String>>,
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
        let account = self.options.account.as_ref();
        let mut spent = account.map_or_else(UsageMeter::default, UsageMeter::shared);
        let finish = self.act(AgentAction::Drive, &mut spent, cancel.clone()).await;
        // Taken in any case: a request made in this turn does not apply to the next one.
        let stronger = self
            .escalation
            .as_ref()
            .and_then(|escalation| Some((escalation.take()?, escalation.model()?)));
        let Some((why, stronger)) = stronger.filter(|_| matches!(finish, Ok(TurnEnd::HandedOver)))
        else {
            return finish;
        };
        let (facts, own) = (stronger.facts(), &self.facts().model);
        self.warn(format!(
            "{own} asks for help ({why}): {} on {} continues this turn",
            facts.model, facts.provider
        ));
        stronger.provider.turn_begins();
        self.talk.window = stronger.window(self.talk.messages());
        let finish = self.act(AgentAction::GoOn, &mut spent, cancel).await;
        self.talk.window = self.model.window(self.talk.messages());
        finish
    }
}

impl Escalation {
    /// Creates the escalation for a model in a session that started on this day. The stronger model
    /// is opened on first use.
    pub(crate) fn of(
        settings: &AgentSettings,
        facts: &ProviderFacts,
        date: &str,
        shelf: Arc<SkillSet>,
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
            shelf,
            model: OnceLock::new(),
            wanted: Mutex::new(None),
        })
    }

    /// Handles the outcome of a call that may suggest escalation: records the request if there is a
    /// stronger model, otherwise tells the model that there is none.
    pub(crate) async fn heard(escalation: Option<&Escalation>, outcome: ToolOutput) -> ToolOutput {
        let Some(reason) = outcome.escalate.clone() else { return outcome };
        let opened = match escalation {
            Some(escalation) => Some((escalation, escalation.opened_now().await)),
            None => None,
        };
        let no = match opened {
            Some((escalation, Ok(_))) => {
                *base::sync::lock(&escalation.wanted) = Some(reason);
                // The next step is advice for a small model, not for the stronger one.
                return ToolOutput { next: None, ..outcome };
            }
            Some((_, Err(failure))) => failure.sentence(),
            None => "no other model is configured".to_owned(),
        };
        // A failed tool already has an error message.
        match outcome.ok {
            true => ToolOutput::failed(
                ToolErrorKind::Failed,
                format!("{no}; continue with the task yourself"),
            ),
            false => outcome,
        }
    }

    async fn opened_now(&self) -> Result<&BoundModel> {
        if let Some(bound) = self.model.get() {
            return Ok(bound);
        }
        let (config, choice) = (self.settings.config.clone(), self.choice.clone());
        let provider = off_loop(move || provider::open(&config, &choice)).await?;
        let bound = BoundModel::of(&self.settings, provider, &self.date, &self.shelf);
        Ok(self.model.get_or_init(|| bound))
    }

    /// Whether the model asked for help.
    pub(crate) fn is_wanted(&self) -> bool {
        base::sync::lock(&self.wanted).is_some()
    }

    /// Returns the stronger model once it is open.
    pub(crate) fn model(&self) -> Option<&BoundModel> {
        self.model.get()
    }

    /// Takes the reason of the request.
    fn take(&self) -> Option<String> {
        base::sync::lock(&self.wanted).take()
    }
}
