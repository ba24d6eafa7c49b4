//! `execute_computer_use`: a vision model plans step by step. Its actions are executed by the same
//! tools as those of any model, and pass through the gate.

use std::time::Instant;

use base::desktop_protocol::CaptureTarget;
use serde::Deserialize;
use serde_json::{Value, json};

use self::functions::{PlannedAction, PlannerCall};
use self::planner::{Planner, PlannerAnswer};
use super::{host, shown_screen};
use crate::screen_call;
use provider::message::{Image, SideUsage, ToolCall};
use tools::call::Invocation;
use tools::dispatch;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::profile::Profile;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

pub mod address;
pub mod functions;
pub mod history;
pub mod planner;

#[derive(Deserialize)]
struct Args {
    instruction: String,
}

/// Maximum number of steps of an instruction.
const STEPS: usize = 15;
/// Maximum size of an image for the planner, and its JPEG quality.
const FIT: (u32, u32) = (1440, 900);
const QUALITY: u8 = 80;

/// An instruction in progress.
struct Run<'a, 'c> {
    call: &'a Invocation<'c>,
    since: Instant,
    /// The completed steps, for the result.
    steps: Vec<Value>,
    /// The last URL that was navigated to.
    url: String,
    /// The size of the last image, in pixels.
    size: (u32, u32),
    bill: Option<SideUsage>,
}

/// The tool that lets a model act on the screen by itself.
pub(crate) struct ComputerUseTool;

impl Tool for ComputerUseTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("cu.plan", Effect::Acts)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::controls_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Lets a model work on the screen until its final message.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { instruction } = call.decode()?;
    if instruction.trim().is_empty() {
        let text = format!("{}: `instruction` must say what is to be done", call.profile_tool.name);
        return Err(ToolError::invalid(text));
    }
    let desk = &call.context.services.screen;
    let mut planner = Planner::open(desk, &call.context.cancel).await?;
    let mut run = Run {
        call,
        since: Instant::now(),
        steps: Vec::new(),
        url: "about:blank".to_owned(),
        size: (1, 1),
        bill: None,
    };
    let picture = run.look().await?;
    planner.begin(&instruction, picture);
    let done = run.work(&mut planner).await;
    run.bill = Some(planner.bill());
    done.map(|done| run.ended(done)).map_err(|why| run.broken(why))
}

/// The end of an instruction, in the terms of the core tools.
struct InstructionEnd {
    status: &'static str,
    words: String,
}

impl Run<'_, '_> {
    async fn work(&mut self, planner: &mut Planner<'_>) -> Result<InstructionEnd, ToolError> {
        let mut count = 0;
        loop {
            let reply = match planner.ask().await? {
                PlannerAnswer::Reply(reply) => reply,
                PlannerAnswer::Restarted => {
                    // The service lost the conversation, so the planner must see the current
                    // screen.
                    let picture = self.look().await?;
                    planner.show(picture);
                    continue;
                }
            };
            let calls: Vec<ToolCall> = reply.calls().cloned().collect();
            if calls.is_empty() {
                return Ok(InstructionEnd { status: "done", words: reply.words() });
            }
            if let Some(why) = calls.iter().find_map(functions::wants_confirmation) {
                return Ok(InstructionEnd { status: "confirmation_required", words: why });
            }
            let mut results = Vec::new();
            for call in &calls {
                let is_over = count == STEPS;
                let result = if is_over { Err(over()) } else { self.step(call).await? };
                count += usize::from(!is_over);
                results.push((call, result));
            }
            let picture = self.look().await?;
            planner.answer(results, picture, &self.url);
            if count == STEPS {
                return Ok(InstructionEnd { status: "error", words: over() });
            }
        }
    }

    /// Executes one function call. The inner error is for the planner; the outer one ends the
    /// instruction.
    async fn step(&mut self, call: &ToolCall) -> Result<Result<String, String>, ToolError> {
        let wanted = functions::wanted(&call.name, &call.args, self.size);
        let mut record = json!({ "function": call.name, "args": call.args });
        let done = match wanted {
            Ok(PlannerCall { deeds, url }) => {
                let done = self.all(deeds, &mut record).await?;
                self.url = url.filter(|_| done.is_ok()).unwrap_or_else(|| self.url.clone());
                done
            }
            Err(why) => Err(why),
        };
        let (key, text) = match &done {
            Ok(text) => ("result", text),
            Err(text) => ("not_done", text),
        };
        record[key] = json!(text);
        (self.call.context.on_output)(&format!("{}: {text}\n", call.name));
        self.steps.push(record);
        Ok(done)
    }

    /// Executes the actions of one function; stops at the first failure.
    async fn all(
        &self,
        deeds: Vec<PlannedAction>,
        record: &mut Value,
    ) -> Result<Result<String, String>, ToolError> {
        let mut said = Vec::new();
        for deed in deeds {
            let (profile, name, args) = deed.call();
            let outcome = dispatch::run(profile, name, &args, self.call.context).await;
            let words = outcome.metadata["description"].as_str().unwrap_or(&outcome.text);
            let words = base::text::head(words, 300).to_owned();
            match outcome.error_kind {
                None => said.push(words),
                Some(ToolErrorKind::Cancelled) => {
                    return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
                }
                // The action was denied; the next one would be denied as well.
                Some(ToolErrorKind::Denied) => {
                    return Err(ToolError::new(ToolErrorKind::Denied, words));
                }
                Some(
                    ToolErrorKind::Validation
                    | ToolErrorKind::NotFound
                    | ToolErrorKind::Timeout
                    | ToolErrorKind::UnknownTool
                    | ToolErrorKind::Failed,
                ) => return Ok(Err(words)),
            }
        }
        record["acted"] = json!(said.len());
        Ok(Ok(said.join("; ")))
    }

    /// Captures the current screen.
    async fn look(&mut self) -> Result<Image, ToolError> {
        let wish =
            CaptureTarget { fit: Some(FIT), jpeg: Some(QUALITY), ..CaptureTarget::default() };
        let picture = host::capture(self.call.context, wish).await?;
        shown_screen::ShownScreen::of(&picture).keep(self.call.context);
        self.size = (picture.width, picture.height);
        Ok(Image { media_type: picture.mime, data: picture.data })
    }

    fn ended(&self, InstructionEnd { status, words }: InstructionEnd) -> ToolOutput {
        let ok = status != "error";
        let words = if words.trim().is_empty() { "done".to_owned() } else { words };
        let mut metadata = screen_call::action_metadata(ok, &words, self.since);
        metadata["status"] = json!(status);
        metadata["steps"] = json!(self.steps);
        metadata["current_url"] = json!(self.url);
        let steps = self.steps.len();
        let text = format!("{status} after {steps} steps: {words}\n{}", self.lines());
        let outcome = match ok {
            true => ToolOutput::success(text),
            false => ToolOutput::failed(ToolErrorKind::Failed, text),
        };
        ToolOutput { side_usage: self.bill.clone(), ..outcome.with(metadata) }
    }

    /// Adds the completed steps to an error.
    fn broken(&self, ToolError { kind, text }: ToolError) -> ToolError {
        let steps = self.steps.len();
        if steps == 0 {
            return ToolError { kind, text };
        }
        ToolError::new(
            kind,
            format!("{text}\nDone before that, in {steps} steps:\n{}", self.lines()),
        )
    }

    fn lines(&self) -> String {
        let line = |step: &Value| {
            let said = step["result"].as_str().map(str::to_owned);
            let failed = || format!("not done: {}", step["not_done"].as_str().unwrap_or_default());
            let name = step["function"].as_str().unwrap_or_default();
            format!("- {name}: {}\n", said.unwrap_or_else(failed))
        };
        self.steps.iter().map(line).collect()
    }
}

fn over() -> String {
    format!("{STEPS} steps were done, which is the most for one instruction; it is not finished")
}

impl PlannedAction {
    /// Returns the tool call for the action.
    fn call(self) -> (Profile, &'static str, Value) {
        match self {
            PlannedAction::Gui(args) => (Profile::Core, "execute_gui", args),
            PlannedAction::Wait(seconds) => (Profile::Core, "wait", json!({ "seconds": seconds })),
            PlannedAction::Browser => {
                let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
                let command = format!("{opener} about:blank");
                let args = json!({ "name": "web-browser", "command": command });
                (Profile::G3, "background_process", args)
            }
        }
    }
}
