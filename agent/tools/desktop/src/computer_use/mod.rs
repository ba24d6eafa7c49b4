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
const MAX_STEPS: usize = 15;
/// Maximum size of an image for the planner, and its JPEG quality.
const MAX_SIZE: (u32, u32) = (1440, 900);
const JPEG_QUALITY: u8 = 80;

/// An instruction in progress.
struct Run<'a, 'c> {
    call: &'a Invocation<'c>,
    start_time: Instant,
    /// The completed steps, for the result.
    steps: Vec<Value>,
    /// The last URL that was navigated to.
    url: String,
    /// The size of the last image, in pixels.
    size: (u32, u32),
    usage: Option<SideUsage>,
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
    let screen_access = &call.context.services.screen;
    let mut planner = Planner::open(screen_access, &call.context.cancel).await?;
    let mut run = Run {
        call,
        start_time: Instant::now(),
        steps: Vec::new(),
        url: "about:blank".to_owned(),
        size: (1, 1),
        usage: None,
    };
    let picture = run.capture().await?;
    planner.begin(&instruction, picture);
    let end = run.run_steps(&mut planner).await;
    run.usage = Some(planner.usage());
    end.map(|end| run.output(end)).map_err(|error| run.with_steps(error))
}

/// The end of an instruction, in the terms of the core tools.
struct InstructionEnd {
    status: &'static str,
    words: String,
}

impl Run<'_, '_> {
    async fn run_steps(&mut self, planner: &mut Planner<'_>) -> Result<InstructionEnd, ToolError> {
        let mut count = 0;
        loop {
            let reply = match planner.ask().await? {
                PlannerAnswer::Reply(reply) => reply,
                PlannerAnswer::Restarted => {
                    // The service lost the conversation, so the planner must see the current
                    // screen.
                    let picture = self.capture().await?;
                    planner.add_picture(picture);
                    continue;
                }
            };
            let calls: Vec<ToolCall> = reply.calls().cloned().collect();
            if calls.is_empty() {
                return Ok(InstructionEnd { status: "done", words: reply.full_text() });
            }
            if let Some(reason) = calls.iter().find_map(functions::confirmation_reason) {
                return Ok(InstructionEnd { status: "confirmation_required", words: reason });
            }
            let mut results = Vec::new();
            for call in &calls {
                let is_over = count == MAX_STEPS;
                let result =
                    if is_over { Err(step_limit_message()) } else { self.step(call).await? };
                count += usize::from(!is_over);
                results.push((call, result));
            }
            let picture = self.capture().await?;
            planner.add_result(results, picture, &self.url);
            if count == MAX_STEPS {
                return Ok(InstructionEnd { status: "error", words: step_limit_message() });
            }
        }
    }

    /// Executes one function call. The inner error is for the planner; the outer one ends the
    /// instruction.
    async fn step(&mut self, call: &ToolCall) -> Result<Result<String, String>, ToolError> {
        let planned = functions::plan_call(&call.name, &call.args, self.size);
        let mut record = json!({ "function": call.name, "args": call.args });
        let result = match planned {
            Ok(PlannerCall { actions, url }) => {
                let result = self.run_actions(actions, &mut record).await?;
                self.url = url.filter(|_| result.is_ok()).unwrap_or_else(|| self.url.clone());
                result
            }
            Err(error) => Err(error),
        };
        let (key, text) = match &result {
            Ok(text) => ("result", text),
            Err(text) => ("not_done", text),
        };
        record[key] = json!(text);
        (self.call.context.on_output)(&format!("{}: {text}\n", call.name));
        self.steps.push(record);
        Ok(result)
    }

    /// Executes the actions of one function; stops at the first failure.
    async fn run_actions(
        &self,
        actions: Vec<PlannedAction>,
        record: &mut Value,
    ) -> Result<Result<String, String>, ToolError> {
        let mut messages = Vec::new();
        for action in actions {
            let (profile, name, args) = action.call();
            let output = dispatch::run(profile, name, &args, self.call.context).await;
            let text = output.metadata["description"].as_str().unwrap_or(&output.text);
            let text = base::text::head(text, 300).to_owned();
            match output.error_kind {
                None => messages.push(text),
                Some(ToolErrorKind::Cancelled) => {
                    return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
                }
                // The action was denied; the next one would be denied as well.
                Some(ToolErrorKind::Denied) => {
                    return Err(ToolError::new(ToolErrorKind::Denied, text));
                }
                Some(
                    ToolErrorKind::Validation
                    | ToolErrorKind::NotFound
                    | ToolErrorKind::Timeout
                    | ToolErrorKind::UnknownTool
                    | ToolErrorKind::Failed,
                ) => return Ok(Err(text)),
            }
        }
        record["acted"] = json!(messages.len());
        Ok(Ok(messages.join("; ")))
    }

    /// Captures the current screen.
    async fn capture(&mut self) -> Result<Image, ToolError> {
        let target = CaptureTarget {
            fit: Some(MAX_SIZE),
            jpeg: Some(JPEG_QUALITY),
            ..CaptureTarget::default()
        };
        let picture = host::capture(self.call.context, target).await?;
        shown_screen::ShownScreen::new(&picture).save(self.call.context);
        self.size = (picture.width, picture.height);
        Ok(Image { media_type: picture.mime, data: picture.data })
    }

    fn output(&self, InstructionEnd { status, words }: InstructionEnd) -> ToolOutput {
        let ok = status != "error";
        let words = if words.trim().is_empty() { "done".to_owned() } else { words };
        let mut metadata = screen_call::action_metadata(ok, &words, self.start_time);
        metadata["status"] = json!(status);
        metadata["steps"] = json!(self.steps);
        metadata["current_url"] = json!(self.url);
        let steps = self.steps.len();
        let text = format!("{status} after {steps} steps: {words}\n{}", self.lines());
        let outcome = match ok {
            true => ToolOutput::success(text),
            false => ToolOutput::failed(ToolErrorKind::Failed, text),
        };
        ToolOutput { side_usage: self.usage.clone(), ..outcome.with(metadata) }
    }

    /// Adds the completed steps to an error.
    fn with_steps(&self, ToolError { kind, text }: ToolError) -> ToolError {
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
            let result = step["result"].as_str().map(str::to_owned);
            let failure = || format!("not done: {}", step["not_done"].as_str().unwrap_or_default());
            let name = step["function"].as_str().unwrap_or_default();
            format!("- {name}: {}\n", result.unwrap_or_else(failure))
        };
        self.steps.iter().map(line).collect()
    }
}

fn step_limit_message() -> String {
    format!(
        "{MAX_STEPS} steps were done, which is the most for one instruction; it is not finished"
    )
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
