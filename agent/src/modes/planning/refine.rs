//! Refining: a model that can only look reads the code, and gives the requirements by a tool.

use std::sync::{Arc, Mutex, PoisonError};

use base::event::Status;
use base::failure::{Failure, Result};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::words;
use crate::gate::Asker;
use crate::limits::Limits;
use crate::message::{Message, Role as Speaker};
use crate::prompt::Identity;
use crate::provider::{Choice, ToolSpec};
use crate::role::{OwnTool, Role};
use crate::run::{Settings, Which, Work};
use crate::tools::{Outcome, Profile};
use crate::ui::Bus;

const NAME: &str = "requirements";

/// The tool `requirements`.
#[derive(Debug, Default)]
struct Refined(Mutex<Option<String>>);

impl Refined {
    fn taken(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl OwnTool for Refined {
    fn spec(&self) -> ToolSpec {
        let text = json!({
            "type": "string",
            "description": "All requirements as a Markdown list, one item each: `- R1: …`."
        });
        ToolSpec {
            name: NAME.to_owned(),
            description: "Gives the refined requirements and ends the work.".to_owned(),
            parameters: json!({
                "type": "object", "properties": { "text": text }, "required": ["text"]
            }),
        }
    }

    fn call(&self, args: &Value) -> Outcome {
        let text = args["text"].as_str().unwrap_or_default().trim();
        // Marks are ours: a text with them could hide a part of itself.
        if text.contains("{{CURRENT REQUIREMENTS") || text.contains("{{ORIGINAL USER") {
            return Outcome::invalid(
                "leave out the marks in double braces: only the list".to_owned(),
            );
        }
        match planner::requirement::read(text) {
            Ok(_) => {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
                Outcome::done("the requirements are taken; the user will look at them")
            }
            Err(planner::requirement::Unclear::Empty) => {
                Outcome::invalid("there is no requirement in `text`".to_owned())
            }
            Err(planner::requirement::Unclear::Twice(id)) => {
                Outcome::invalid(format!("two requirements have the id {id}: give one another"))
            }
        }
    }

    fn left(&self) -> Option<String> {
        let left = "the requirements are not given yet: call the tool `requirements`";
        self.taken().is_none().then(|| left.to_owned())
    }
}

/// What came of refining.
pub enum Came {
    /// The list of requirements.
    Text(String),
    /// There is none that counts.
    Nothing(Failure),
    /// The user cancelled.
    Cancelled,
}

/// Asks the planner's model to refine a wish.
pub async fn refine(
    settings: &Settings,
    message: String,
    (bus, asker): (Arc<Bus>, Option<Arc<dyn Asker>>),
    cancel: CancellationToken,
) -> Result<Came> {
    let tool = Arc::new(Refined::default());
    // Those that were typed are rounds of player and coach.
    let limits = Limits { turns: None, ..settings.limits };
    let settings = Settings {
        choice: choice(settings),
        limits,
        profile: Profile::G3,
        role: Role {
            identity: Identity::Whole(words::ARCHITECT.to_owned()),
            reads_only: true,
            own: Some(tool.clone()),
            ..Role::default()
        },
        ..settings.clone()
    };
    let mut work = Work::begin(&settings, &Which::New("refine requirements".into()), bus, asker)?;
    let ended = work.part(Message::text(Speaker::User, message), cancel).await;
    work.leave().close().await;
    let none = || Failure::failed("the model gave no requirements");
    Ok(match (ended.status, tool.taken()) {
        (Status::Cancelled, _) => Came::Cancelled,
        (_, Some(text)) => Came::Text(text),
        (_, None) => Came::Nothing(ended.failure.unwrap_or_else(none)),
    })
}

/// Who is asked: as typed, else `[providers] planner`, else the default.
pub fn choice(settings: &Settings) -> Choice {
    let typed = &settings.choice;
    let planner = settings.config.providers.planner.clone();
    Choice { reference: typed.reference.clone().or(planner), ..typed.clone() }
}
