//! Help for a local model: when it asks for that, the configured remote model answers for the rest
//! of the user's turn, with the conversation so far.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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

/// What switches the tool on by which a model asks for help.
pub(crate) const SWITCH: &str = "providers.escalation";

/// A stronger model that waits to be asked for.
pub(crate) struct Escalation {
    settings: AgentSettings,
    choice: ProviderChoice,
    date: String,
    shelf: Arc<SkillSet>,
    model: OnceLock<BoundModel>,
    wanted: Mutex<Option<String>>,
}

/// Who helps a model: the configured provider, when the model is local or small and not that
/// provider itself.
pub(crate) fn reference<'s>(settings: &'s AgentSettings, facts: &ProviderFacts) -> Option<&'s str> {
    let reference = settings.config.providers.escalation.as_deref()?;
    let is_local = facts.provider.split('.').next() == Some("embedded");
    let can_ask = settings.tools && (is_local || facts.small);
    (can_ask && facts.provider != reference).then_some(reference)
}

impl AgentSession {
    /// Answers the user; a model that asks for help is replaced for the rest of the turn.
    pub(super) async fn answer(&mut self, cancel: CancellationToken) -> TurnResult<TurnEnd> {
        let account = self.options.account.as_ref();
        let mut spent = account.map_or_else(UsageMeter::default, UsageMeter::shared);
        let finish = self.act(AgentAction::Drive, &mut spent, cancel.clone()).await;
        // Taken whatever the end is: what was asked for in this turn does not hold in the next.
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
    /// The help for a model in a session that began on this day; it is opened when it is needed.
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

    /// What came of a call: one that suggests a stronger model is remembered where there is one,
    /// and the model is told where there is none.
    pub(crate) async fn heard(escalation: Option<&Escalation>, outcome: ToolOutput) -> ToolOutput {
        let Some(reason) = outcome.escalate.clone() else { return outcome };
        let opened = match escalation {
            Some(escalation) => Some((escalation, escalation.opened_now().await)),
            None => None,
        };
        let no = match opened {
            Some((escalation, Ok(_))) => {
                *escalation.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
                // What a small model is told to do next is not for the strong one.
                return ToolOutput { next: None, ..outcome };
            }
            Some((_, Err(failure))) => failure.sentence(),
            None => "no other model is configured".to_owned(),
        };
        // A tool that failed has said so already.
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
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The stronger model, once it was asked for.
    pub(crate) fn model(&self) -> Option<&BoundModel> {
        self.model.get()
    }

    /// Takes the reason for which it was asked for.
    fn take(&self) -> Option<String> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
