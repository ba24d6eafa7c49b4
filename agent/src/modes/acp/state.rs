//! What an editor shows of a session besides its conversation: the options that its user can set,
//! the commands, tokens and cost.

use std::sync::{Arc, Mutex};

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, Cost, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelectOption, SessionMode, SessionModeState,
    SessionUpdate, UnstructuredCommandInput, UsageUpdate,
};
use agent_core::run::permission_mode::PermissionModeSwitch;
use agent_core::run::{AgentSession, AgentSettings};
use base::event::Usage;
use gate::permission_mode::PermissionMode;
use provider::model_list::{self, ProviderModel};

use crate::modes::interactive::commands;

/// The id of the option for the permission mode.
pub(crate) const MODE: &str = "mode";
/// The id of the option for the model.
pub(crate) const MODEL: &str = "model";

/// The state of a session; `None` until it is open.
pub(crate) type SharedState = Arc<Mutex<Option<EditorState>>>;

/// The state of a session that its editor shows.
pub(crate) struct EditorState {
    /// The permission mode.
    pub mode: PermissionModeSwitch,
    /// The model in use.
    model: ProviderModel,
    /// The models to choose from; none if the user cannot choose.
    models: Vec<ProviderModel>,
    /// The usage of the whole session.
    usage: Usage,
}

impl EditorState {
    /// Creates the state of a session that was opened with these settings.
    pub(crate) fn new(work: &AgentSession, settings: &AgentSettings) -> EditorState {
        let facts = work.facts();
        let model =
            ProviderModel { provider: facts.provider.clone(), model: Some(facts.model.clone()) };
        let mut models = model_list::configured_and(&settings.config, &model);
        let others = model_list::others(&settings.config, &model, &models);
        models.extend(
            others
                .into_iter()
                .map(|name| ProviderModel { provider: model.provider.clone(), model: Some(name) }),
        );
        let usage = work.conversation.usage();
        EditorState { mode: work.permission_mode_switch(), model, models, usage }
    }

    /// Leaves the models out, because the configuration selects them for player and coach.
    #[must_use]
    pub(crate) fn without_models(self) -> EditorState {
        EditorState { models: Vec::new(), ..self }
    }

    /// Returns all options with their current values.
    pub(crate) fn options(&self) -> Vec<SessionConfigOption> {
        let mode = |mode: PermissionMode| {
            SessionConfigSelectOption::new(mode.id(), mode.id())
                .description(mode.description().to_owned())
        };
        let modes: Vec<_> = PermissionMode::ALL.into_iter().map(mode).collect();
        let mode = SessionConfigOption::select(MODE, "Mode", self.mode.mode().id(), modes)
            .description("What runs without a question".to_owned())
            .category(SessionConfigOptionCategory::Mode);
        let model = |listed: &ProviderModel| {
            let name = listed.model.clone().unwrap_or_else(|| listed.provider.clone());
            SessionConfigSelectOption::new(model_id(listed), name)
                .description(listed.provider.clone())
        };
        let models: Vec<_> = self.models.iter().map(model).collect();
        let has_models = !models.is_empty();
        let model = SessionConfigOption::select(MODEL, "Model", model_id(&self.model), models)
            .category(SessionConfigOptionCategory::Model);
        [Some(mode), Some(model).filter(|_| has_models)].into_iter().flatten().collect()
    }

    /// Returns the modes and the current one, for editors that know no options.
    pub(crate) fn modes(&self) -> SessionModeState {
        let mode = |mode: PermissionMode| {
            SessionMode::new(mode.id(), mode.id()).description(mode.description().to_owned())
        };
        SessionModeState::new(
            self.mode.mode().id(),
            PermissionMode::ALL.into_iter().map(mode).collect(),
        )
    }

    /// Adds the usage of a request.
    pub(crate) fn add(&mut self, usage: Usage) {
        self.usage = self.usage.plus(usage);
    }

    /// Returns the update about the context and the cost.
    pub(crate) fn usage_update(&self, used: u64, size: u64) -> SessionUpdate {
        let cost = self.usage.cost_usd.map(|usd| Cost::new(usd, "USD"));
        SessionUpdate::UsageUpdate(UsageUpdate::new(used, size).cost(cost))
    }
}

/// Returns the value of a model: what `/model` accepts.
fn model_id(listed: &ProviderModel) -> String {
    match &listed.model {
        Some(model) => format!("{} {model}", listed.provider),
        None => listed.provider.clone(),
    }
}

/// Returns the update about the commands that a prompt can consist of.
pub(crate) fn available_commands() -> SessionUpdate {
    let in_editors = commands::TABLE.iter().filter(|it| it.about_conversation().is_some());
    let command = |command: &commands::SlashCommand| {
        let (does, hint) = command.does.split_once(": /").unwrap_or((command.does, ""));
        // `restore a moved turn: /rehydrate ID`: the word after the name is the argument.
        let hint = hint.split_once(' ').map(|(_, hint)| UnstructuredCommandInput::new(hint));
        AvailableCommand::new(command.name.trim_start_matches('/'), does)
            .input(hint.map(AvailableCommandInput::Unstructured))
    };
    let all = in_editors.map(command).collect();
    SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(all))
}
