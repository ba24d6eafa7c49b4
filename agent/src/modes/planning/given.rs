//! A model that can only look, and gives its one result by a tool of its own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use base::event::{Status, Usage};
use base::failure::{Failure, Result};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::modes::autonomous::Purse;
use crate::prompt::Identity;
use crate::role::{OwnTool, Role};
use crate::run::{AgentSession, SessionSelector, Settings};
use crate::tools::output::ToolOutput;
use crate::tools::profile::Profile;
use crate::ui::Bus;
use gate::Asker;
use provider::message::{Message, Role as Speaker};
use provider::{self, Choice, ToolSpec};

/// Reads the arguments of the tool; the error tells the model what is wrong with them.
type Reader = Box<dyn Fn(&Value) -> std::result::Result<String, String> + Send + Sync>;

/// A tool by which a model gives a text.
pub struct Given {
    spec: ToolSpec,
    read: Reader,
    taken: Mutex<Option<String>>,
}

/// Who is asked for what.
pub struct Asked {
    /// How the model is told to work.
    pub identity: &'static str,
    /// The session's title.
    pub title: &'static str,
    /// What it is asked.
    pub message: String,
}

/// Who hears what happens, and who can be asked.
pub type Heard = (Arc<Bus>, Option<Arc<dyn Asker>>);

/// What came of it.
pub enum Came {
    /// The text.
    Text(String),
    /// There is none that counts.
    Nothing(Failure),
    /// The user cancelled.
    Cancelled,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Given {
    /// A tool whose arguments are read so.
    pub fn by(
        spec: ToolSpec,
        read: impl Fn(&Value) -> std::result::Result<String, String> + Send + Sync + 'static,
    ) -> Given {
        Given { spec, read: Box::new(read), taken: Mutex::default() }
    }

    fn taken(&self) -> Option<String> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the planner's model and adds what that cost. One that gives nothing is asked once more, without anything to
    /// look at; a small one, which gets lost in looking, begins with that.
    pub async fn ask(
        self,
        settings: &Settings,
        asked: Asked,
        heard: Heard,
        (cancel, spent): (CancellationToken, &mut Usage),
    ) -> Result<Came> {
        let choice = choice(settings);
        let small = provider::open(&settings.config, &choice)?.facts().small;
        let tool = Arc::new(self);
        let mut came = Came::Cancelled;
        let purse = Purse::new(settings.limits);
        for looks in [!small, false] {
            // The turns that were typed are rounds of player and coach.
            let limits = match purse.left(*spent) {
                Ok(left) => left,
                Err(limit) => {
                    let failure = Failure::refused(format!("stopped: {limit}"));
                    return Ok(Came::Nothing(failure));
                }
            };
            let settings = Settings {
                choice: choice.clone(),
                limits,
                profile: Profile::G3,
                tools: looks,
                role: Role {
                    identity: Identity::Whole(asked.identity.to_owned()),
                    reads_only: true,
                    own: Some(tool.clone()),
                    ..Role::default()
                },
                ..settings.clone()
            };
            let (bus, asker) = heard.clone();
            let mut work = AgentSession::begin(
                &settings,
                &SessionSelector::New(asked.title.into()),
                bus,
                asker,
            )?;
            let message = Message::text(Speaker::User, asked.message.clone());
            let ended = work.part(message, cancel.clone()).await;
            *spent = spent.plus(work.talk.usage());
            work.shutdown().finish().await;
            let none = || Failure::failed(format!("the model gave no {}", tool.spec.name));
            let status = ended.status;
            came = match (status, tool.taken()) {
                (Status::Cancelled, _) => return Ok(Came::Cancelled),
                (_, Some(text)) => return Ok(Came::Text(text)),
                (_, None) => Came::Nothing(ended.into_failure().unwrap_or_else(none)),
            };
        }
        Ok(came)
    }
}

impl OwnTool for Given {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, args: &Value) -> ToolOutput {
        match (self.read)(args) {
            Ok(text) => {
                *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                ToolOutput::done(format!(
                    "the {} are taken; the user will look at them",
                    self.spec.name
                ))
            }
            Err(why) => ToolOutput::invalid(why),
        }
    }

    fn left(&self) -> Option<String> {
        let name = &self.spec.name;
        let left = || format!("the {name} are not given yet: call the tool `{name}`");
        self.taken().is_none().then(left)
    }
}

/// Who is asked: as typed, else `[providers] planner`, else the default.
pub fn choice(settings: &Settings) -> Choice {
    let typed = &settings.choice;
    let planner = settings.config.providers.planner.clone();
    Choice { reference: typed.reference.clone().or(planner), ..typed.clone() }
}
