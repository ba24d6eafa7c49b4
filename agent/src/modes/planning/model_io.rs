//! Asks a model that can only read, and that returns its one result through a tool.

use std::fmt;
use std::sync::{Arc, Mutex};

use base::event::{RunStatus, Usage};
use base::failure::{Failure, Result};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::modes::autonomous::RoundBudget;
use agent_core::bus::Bus;
use agent_core::prompt::Identity;
use agent_core::role::{AgentRole, RoleTool};
use agent_core::run::{AgentSession, AgentSettings, SessionSelector};
use gate::Asker;
use provider::message::{Message, MessageRole as Speaker};
use provider::{self, ProviderChoice, ToolDefinition};
use tools::output::ToolOutput;
use tools::profile::Profile;

/// Parses the arguments of the tool. The error tells the model what is wrong with them.
type Reader = Box<dyn Fn(&Value) -> std::result::Result<String, String> + Send + Sync>;

/// A tool through which a model returns a text.
pub(crate) struct TextTool {
    spec: ToolDefinition,
    read: Reader,
    taken: Mutex<Option<String>>,
}

/// A task for the model.
pub(crate) struct ModelTask {
    /// The system prompt.
    pub identity: &'static str,
    /// The session's title.
    pub title: &'static str,
    /// The message to the model.
    pub message: String,
    /// Whether an answer without reading tools would be worthless.
    pub must_read: bool,
}

/// The event bus, and the asker if there is a user.
pub(crate) type PlanListeners = (Arc<Bus>, Option<Arc<dyn Asker>>);

/// The result of a task.
pub(crate) enum ModelText {
    /// The text.
    Text(String),
    /// The model returned no valid text.
    Nothing(Failure),
    /// The user cancelled.
    Cancelled,
}

impl fmt::Debug for TextTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl TextTool {
    /// Creates a tool whose arguments are parsed by `read`.
    pub(crate) fn by(
        spec: ToolDefinition,
        read: impl Fn(&Value) -> std::result::Result<String, String> + Send + Sync + 'static,
    ) -> TextTool {
        TextTool { spec, read: Box::new(read), taken: Mutex::default() }
    }

    fn taken(&self) -> Option<String> {
        base::sync::lock(&self.taken).clone()
    }

    /// Asks the planner's model and adds the usage to `spent`. Unless it must read, a model that
    /// returns nothing is asked again without its reading tools, and a small model, which gets lost
    /// in reading, never has them.
    pub(crate) async fn ask(
        self,
        settings: &AgentSettings,
        asked: ModelTask,
        listeners: PlanListeners,
        (cancel, spent): (CancellationToken, &mut Usage),
    ) -> Result<ModelText> {
        let choice = choice(settings);
        let small = provider::open(&settings.config, &choice)?.facts().small;
        let tool = Arc::new(self);
        let mut result = ModelText::Cancelled;
        let budget = RoundBudget::new(settings.limits);
        let tries: &[bool] = if asked.must_read { &[true] } else { &[!small, false] };
        for &looks in tries {
            // `--max-turns` means rounds of player and coach here.
            let limits = match budget.remaining(*spent) {
                Ok(limits) => limits,
                Err(limit) => {
                    let failure = Failure::refused(format!("stopped: {limit}"));
                    return Ok(ModelText::Nothing(failure));
                }
            };
            let settings = AgentSettings {
                choice: choice.clone(),
                limits,
                profile: Profile::G3,
                tools: looks,
                role: AgentRole {
                    identity: Identity::Whole(asked.identity.to_owned()),
                    reads_only: true,
                    tool: Some(tool.clone()),
                    ..AgentRole::default()
                },
                ..settings.clone()
            };
            let (bus, asker) = listeners.clone();
            let mut work = AgentSession::begin(
                &settings,
                &SessionSelector::New(asked.title.into()),
                bus,
                asker,
            )?;
            let message = Message::text(Speaker::User, asked.message.clone());
            let ended = work.run_part(message, cancel.clone()).await;
            *spent = spent.plus(work.conversation.usage());
            work.shutdown().finish().await;
            let none = || Failure::failed(format!("the model returned no {}", tool.spec.name));
            let status = ended.status;
            result = match (status, tool.taken()) {
                (RunStatus::Cancelled, _) => return Ok(ModelText::Cancelled),
                (_, Some(text)) => return Ok(ModelText::Text(text)),
                (_, None) => ModelText::Nothing(ended.into_failure().unwrap_or_else(none)),
            };
        }
        Ok(result)
    }
}

impl RoleTool for TextTool {
    fn spec(&self) -> ToolDefinition {
        self.spec.clone()
    }

    fn call(&self, args: &Value) -> ToolOutput {
        match (self.read)(args) {
            Ok(text) => {
                *base::sync::lock(&self.taken) = Some(text);
                ToolOutput::success(format!(
                    "the {} were accepted; the user will review them",
                    self.spec.name
                ))
            }
            Err(error) => ToolOutput::invalid(error),
        }
    }

    fn open_work(&self) -> Option<String> {
        let name = &self.spec.name;
        let message = || format!("the {name} are missing: call the tool `{name}`");
        self.taken().is_none().then(message)
    }
}

/// Selects the provider: that of the command line, else `[providers] planner`, else the default.
pub(crate) fn choice(settings: &AgentSettings) -> ProviderChoice {
    let typed = &settings.choice;
    let planner = settings.config.providers.planner.clone();
    ProviderChoice { reference: typed.reference.clone().or(planner), ..typed.clone() }
}
