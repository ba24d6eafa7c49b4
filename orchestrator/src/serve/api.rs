//! The API: each route runs a command of this program and answers with its JSON. One table says for
//! each route which command that is; the routes and their description are made from it.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base::failure::{Failure, Result};
use base::id::Id;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::commands::context::CommandContext;
use crate::commands::plan::status::PlanReport;
use crate::commands::queue_status::QueueReport;
use crate::commands::subcommand::SubcommandOutput;
use crate::serve::error_answer::{ErrorAnswer, json_answer};
use crate::serve::server::{PageServer, session_id};
use crate::serve::{answers, openapi, pages};

/// Makes the words of a command from a session and the text of a request.
type WordsOf = fn(Option<&Id>, &str) -> Result<Vec<String>>;

/// A route.
pub(crate) struct ApiRoute {
    /// Whether it changes anything: then it is a POST with a JSON body, else a GET with a query.
    pub is_action: bool,
    /// The path below `/api/v1`.
    pub path: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The schema of the query or the body.
    pub request: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of the answer.
    pub answer: fn(&mut SchemaGenerator) -> Schema,
    /// Whether the command prints one JSON value for each of several things.
    pub is_list: bool,
    words: WordsOf,
}

/// The parameters of a route, which become the words of a command.
trait CommandRequest: DeserializeOwned + JsonSchema {
    fn words(self, id: Option<&Id>) -> Vec<String>;
}

/// Reads a query. It has texts only: `true`, `false` and numbers are what they say.
fn parse_query<R: CommandRequest>(id: Option<&Id>, text: &str) -> Result<Vec<String>> {
    let pairs: BTreeMap<String, String> = query_pairs(text)?;
    let value = |text: String| match text.as_str() {
        "true" => json!(true),
        "false" => json!(false),
        _ => json!(text),
    };
    let object = pairs.into_iter().map(|(name, text)| (name, value(text))).collect();
    parse::<R>(id, Value::Object(object))
}

fn query_pairs(text: &str) -> Result<BTreeMap<String, String>> {
    let uri = format!("/?{text}").parse().map_err(|error: axum::http::uri::InvalidUri| {
        Failure::usage("invalid query").because(error)
    })?;
    let pairs = axum::extract::Query::try_from_uri(&uri);
    pairs.map(|pairs| pairs.0).map_err(|error| Failure::usage("invalid query").because(error))
}

fn parse_body<R: CommandRequest>(id: Option<&Id>, text: &str) -> Result<Vec<String>> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let value = serde_json::from_str(text)
        .map_err(|error| Failure::usage("the body is not JSON").because(error))?;
    parse::<R>(id, value)
}

fn parse<R: CommandRequest>(id: Option<&Id>, value: Value) -> Result<Vec<String>> {
    let request: R = serde_json::from_value(value)
        .map_err(|error| Failure::usage("invalid request").because(error))?;
    Ok(request.words(id))
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn reads<R: CommandRequest, A: JsonSchema>(
    path: &'static str,
    summary: &'static str,
) -> ApiRoute {
    ApiRoute {
        is_action: false,
        path,
        summary,
        request: schema::<R>,
        answer: schema::<A>,
        is_list: false,
        words: parse_query::<R>,
    }
}

const fn acts<R: CommandRequest, A: JsonSchema>(
    path: &'static str,
    summary: &'static str,
) -> ApiRoute {
    ApiRoute { is_action: true, words: parse_body::<R>, ..reads::<R, A>(path, summary) }
}

/// All routes that run a command.
pub(crate) static API_ROUTES: &[ApiRoute] = &[
    reads::<ListRequest, answers::SessionListAnswer>("/sessions", "studio list"),
    ApiRoute {
        is_list: true,
        ..acts::<RunRequest, answers::StartedAnswer>("/sessions", "studio exec")
    },
    reads::<StatusRequest, answers::SessionAnswer>("/sessions/{id}", "studio status ID"),
    reads::<DiffRequest, answers::DiffAnswer>("/sessions/{id}/diff", "studio diff ID"),
    reads::<ReviewRequest, answers::ReviewsAnswer>("/sessions/{id}/review", "studio review ID"),
    acts::<SendRequest, answers::SentAnswer>("/sessions/{id}/send", "studio send ID TEXT"),
    acts::<AnswerRequest, answers::AnswerAnswer>(
        "/sessions/{id}/answer",
        "studio answer ID NUMBER allow|deny",
    ),
    acts::<StopRequest, answers::StoppedAnswer>("/sessions/{id}/stop", "studio stop ID"),
    acts::<ResumeRequest, answers::ResumedAnswer>("/sessions/{id}/resume", "studio resume ID"),
    acts::<CheckRequest, answers::CheckAnswer>("/sessions/{id}/check", "studio check ID"),
    acts::<AcceptRequest, answers::LandingAnswer>("/sessions/{id}/accept", "studio accept ID"),
    acts::<DiscardRequest, answers::DiscardedAnswer>("/sessions/{id}/discard", "studio discard ID"),
    acts::<SendReviewRequest, answers::SentAnswer>(
        "/sessions/{id}/review/send",
        "studio review ID --send",
    ),
    acts::<LandReviewRequest, answers::LandingAnswer>(
        "/sessions/{id}/review/land",
        "studio review ID --land",
    ),
    acts::<AcceptAllRequest, answers::LandingAnswer>("/accept", "studio accept --all"),
    reads::<QueueRequest, QueueReport>("/queue", "studio accept --all --status"),
    reads::<InboxRequest, answers::InboxAnswer>("/inbox", "studio inbox"),
    reads::<OperationsRequest, answers::OperationsAnswer>("/operations", "studio operations"),
    reads::<PlanRequest, PlanReport>("/plan", "studio plan --status"),
    acts::<ApprovePlanRequest, PlanReport>(
        "/plan/approve",
        "studio plan --approve DIGEST --detach",
    ),
    acts::<ContinuePlanRequest, PlanReport>("/plan/continue", "studio plan --detach"),
    acts::<ConvergePlanRequest, PlanReport>("/plan/converge", "studio plan --converge --detach"),
    acts::<StopPlanRequest, PlanReport>("/plan/stop", "studio plan --stop"),
    acts::<UndoRequest, answers::UndoneAnswer>("/undo", "studio undo OP"),
];

/// A word of a command with a session.
fn command(name: &str, id: Option<&Id>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(id.map(Id::to_string)).collect()
}

/// Adds `--name=value`, so that a value with a leading hyphen is not parsed as an option.
fn option(words: &mut Vec<String>, name: &str, value: Option<impl ToString>) {
    words.extend(value.map(|value| format!("--{name}={}", value.to_string())));
}

fn switch(words: &mut Vec<String>, name: &str, is_on: bool) {
    words.extend(is_on.then(|| format!("--{name}")));
}

/// Requests without parameters.
macro_rules! bare_request {
    ($($(#[$doc:meta])* $name:ident => $words:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        struct $name {}

        impl CommandRequest for $name {
            fn words(self, id: Option<&Id>) -> Vec<String> {
                let words: fn(Option<&Id>) -> Vec<String> = $words;
                words(id)
            }
        }
    )*};
}

bare_request! {
    /// One session in full.
    StatusRequest => |id| command("status", id);
    /// Stops a session; its work is kept.
    StopRequest => |id| command("stop", id);
    /// Runs the checks of a session again.
    CheckRequest => |id| command("check", id);
    /// Discards a session; an undo restores it.
    DiscardRequest => |id| [command("discard", id), vec!["--yes".to_owned()]].concat();
    /// Sends all comments and returned hunks to the agent as one turn.
    SendReviewRequest => |id| [command("review", id), vec!["--send".to_owned()]].concat();
    /// Lands the accepted hunks.
    LandReviewRequest => |id| [command("review", id), vec!["--land".to_owned()]].concat();
    /// Lands what is ready and passes together.
    AcceptAllRequest => |_| vec!["accept".to_owned(), "--all".to_owned()];
    /// The progress of the landing queue.
    QueueRequest => |_| ["accept", "--all", "--status"].map(str::to_owned).to_vec();
    /// What needs the user.
    InboxRequest => |_| vec!["inbox".to_owned()];
    /// Accepts, discards, tries and undos.
    OperationsRequest => |_| vec!["operations".to_owned()];
    /// The plan with its tasks and proofs.
    PlanRequest => |_| ["plan", "--status"].map(str::to_owned).to_vec();
    /// Continues the plan in the background.
    ContinuePlanRequest => |_| ["plan", "--detach"].map(str::to_owned).to_vec();
    /// Compares the requirements with the code in the background, and plans what is missing.
    ConvergePlanRequest => |_| ["plan", "--converge", "--detach"].map(str::to_owned).to_vec();
    /// Stops the plan and its sessions; everything is kept.
    StopPlanRequest => |_| ["plan", "--stop"].map(str::to_owned).to_vec();
}

/// Which sessions are listed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListRequest {
    /// Also list accepted and discarded sessions.
    #[serde(default)]
    all: bool,
}

impl CommandRequest for ListRequest {
    fn words(self, _id: Option<&Id>) -> Vec<String> {
        let mut words = command("list", None);
        switch(&mut words, "all", self.all);
        words
    }
}

/// Tasks to start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunRequest {
    /// The texts, one session each.
    tasks: Vec<String>,
    /// The agent, or several names that take the tasks in turn.
    #[serde(default)]
    agent: Vec<String>,
    /// The persona, for g3.
    persona: Option<String>,
    /// The model, for g3.
    model: Option<String>,
    /// Where the sessions start: a branch, a tag or a commit.
    base: Option<String>,
    /// Shell commands that must pass, in addition to the configured checks.
    #[serde(default)]
    checks: Vec<String>,
    /// How many sessions try each task.
    attempts: Option<u32>,
    /// The cost of a session at most, in US dollars.
    budget: Option<f64>,
    /// Whether permission requests wait for the user.
    #[serde(default)]
    ask: bool,
}

impl CommandRequest for RunRequest {
    fn words(self, _id: Option<&Id>) -> Vec<String> {
        let mut words = command("exec", None);
        self.agent.into_iter().for_each(|name| option(&mut words, "agent", Some(name)));
        option(&mut words, "persona", self.persona);
        option(&mut words, "model", self.model);
        option(&mut words, "base", self.base);
        self.checks.into_iter().for_each(|line| option(&mut words, "check", Some(line)));
        option(&mut words, "attempts", self.attempts);
        option(&mut words, "budget", self.budget);
        switch(&mut words, "ask", self.ask);
        words.push("--".to_owned());
        words.extend(self.tasks);
        words
    }
}

/// What a difference is compared with.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SinceRequest {
    /// The user's last look.
    Last,
    /// The state before the agent's last turn.
    Turn,
}

impl SinceRequest {
    fn word(self) -> &'static str {
        match self {
            SinceRequest::Last => "last",
            SinceRequest::Turn => "turn",
        }
    }
}

/// The changes of a session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiffRequest {
    /// What they are compared with; the start of the session if absent.
    since: Option<SinceRequest>,
}

impl CommandRequest for DiffRequest {
    fn words(self, id: Option<&Id>) -> Vec<String> {
        let mut words = command("diff", id);
        option(&mut words, "since", self.since.map(SinceRequest::word));
        words
    }
}

/// The hunks of a session by risk, with decisions and comments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReviewRequest {
    /// Only the hunks that are new since then.
    since: Option<SinceRequest>,
}

impl CommandRequest for ReviewRequest {
    fn words(self, id: Option<&Id>) -> Vec<String> {
        let mut words = command("review", id);
        option(&mut words, "since", self.since.map(SinceRequest::word));
        words
    }
}

/// A message for the agent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendRequest {
    /// The text.
    text: String,
}

impl CommandRequest for SendRequest {
    fn words(self, id: Option<&Id>) -> Vec<String> {
        let mut words = command("send", id);
        words.extend(["--".to_owned(), self.text]);
        words
    }
}

/// The answer to a permission request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerRequest {
    /// The number of the request.
    number: u32,
    /// Whether it is allowed.
    allow: bool,
    /// Whether the answer applies to further requests of its kind.
    #[serde(default)]
    always: bool,
}

impl CommandRequest for AnswerRequest {
    fn words(self, id: Option<&Id>) -> Vec<String> {
        let mut words = command("answer", id);
        let answer = if self.allow { "allow" } else { "deny" };
        words.extend([self.number.to_string(), answer.to_owned()]);
        switch(&mut words, "always", self.always);
        words
    }
}

/// Resumes a session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResumeRequest {
    /// Whether permission requests wait for the user.
    #[serde(default)]
    ask: bool,
    /// Whether it resumes before its rate limit ends.
    #[serde(default)]
    now: bool,
}

impl CommandRequest for ResumeRequest {
    fn words(self, id: Option<&Id>) -> Vec<String> {
        let mut words = command("resume", id);
        switch(&mut words, "ask", self.ask);
        switch(&mut words, "now", self.now);
        words
    }
}

/// Lands a session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command")]
struct AcceptRequest {
    /// The commit message; a model writes it if it is absent or empty.
    message: Option<String>,
    /// The branch; that of the session's start if absent.
    onto: Option<String>,
    /// The ids of the only hunks that land.
    #[serde(default)]
    hunks: Vec<String>,
    /// The turns in which the agent may resolve conflicts.
    resolve: Option<u32>,
    /// Whether work lands that changed since the user looked at it.
    #[serde(default)]
    yes: bool,
    /// Whether changes of files land that decide what the checks say.
    #[serde(default)]
    allow_check_changes: bool,
    /// Refuse work that is not this tree.
    match_tree: Option<String>,
    /// Whether stopped, failed and crashed sessions land too.
    #[serde(default)]
    force: bool,
    /// Whether it lands without checks.
    #[serde(default)]
    no_checks: bool,
    /// Merge and check without landing.
    #[serde(default)]
    dry_run: bool,
}

impl CommandRequest for AcceptRequest {
    fn words(self, id: Option<&Id>) -> Vec<String> {
        let mut words = command("accept", id);
        option(&mut words, "message", self.message.filter(|text| !text.trim().is_empty()));
        option(&mut words, "onto", self.onto);
        let hunks = (!self.hunks.is_empty()).then(|| self.hunks.join(","));
        option(&mut words, "hunks", hunks);
        option(&mut words, "resolve", self.resolve);
        switch(&mut words, "yes", self.yes);
        switch(&mut words, "allow-check-changes", self.allow_check_changes);
        option(&mut words, "match-tree", self.match_tree);
        switch(&mut words, "force", self.force);
        switch(&mut words, "no-checks", self.no_checks);
        switch(&mut words, "dry-run", self.dry_run);
        words
    }
}

/// Approves a text of the plan, and continues in the background.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApprovePlanRequest {
    /// The digest of the text.
    digest: String,
}

impl CommandRequest for ApprovePlanRequest {
    fn words(self, _id: Option<&Id>) -> Vec<String> {
        let mut words = command("plan", None);
        option(&mut words, "approve", Some(self.digest));
        switch(&mut words, "detach", true);
        words
    }
}

/// Undoes an operation.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UndoRequest {
    /// The operation; the last one if absent.
    operation: Option<String>,
}

impl CommandRequest for UndoRequest {
    fn words(self, _id: Option<&Id>) -> Vec<String> {
        let operation = self.operation.filter(|name| !name.is_empty());
        let last = operation.into_iter().flat_map(|name| ["--".to_owned(), name]);
        command("undo", None).into_iter().chain(last).collect()
    }
}

/// Returns the routes of the API.
pub(crate) fn router() -> Router<PageServer> {
    let mut router = Router::new()
        .route(
            "/api/v1/openapi.json",
            get(|| async { json_answer(StatusCode::OK, openapi::document()) }),
        )
        .route("/api/v1/plan/text", post(pages::plan_edit::save))
        .route("/api/v1/sessions/{id}/review", post(pages::review_actions::record));
    for endpoint in API_ROUTES {
        let handler = move |state, path: Option<Path<String>>, query: RawQuery, body: Bytes| {
            answer(endpoint, state, path, query, body)
        };
        let method = if endpoint.is_action { post(handler) } else { get(handler) };
        router = router.route(&format!("/api/v1{}", endpoint.path), method);
    }
    router
}

async fn answer(
    endpoint: &'static ApiRoute,
    State(server): State<PageServer>,
    path: Option<Path<String>>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    match run(endpoint, &server, path, query.as_deref().unwrap_or_default(), &body).await {
        Ok(response) => response,
        Err(failure) => ErrorAnswer::api(failure).into_response(),
    }
}

async fn run(
    endpoint: &ApiRoute,
    server: &PageServer,
    path: Option<Path<String>>,
    query: &str,
    body: &[u8],
) -> Result<Response> {
    let id = path.map(session_id).transpose()?;
    let text = match endpoint.is_action {
        true => std::str::from_utf8(body)
            .map_err(|error| Failure::usage("the body is not UTF-8").because(error))?,
        false => query,
    };
    let words = (endpoint.words)(id.as_ref(), text)?;
    if words.iter().any(|word| word.contains('\0')) {
        return Err(Failure::usage("the request contains a NUL byte"));
    }
    // A landing does not end because the user goes on to another page.
    let runner = server.runner().clone();
    let command = tokio::spawn(async move { runner.run_async(&words).await });
    let output = command
        .await
        .map_err(|error| Failure::failed("the server failed to answer").because(error))??;
    if endpoint.is_action {
        // A page that is read after the answer shows its effect.
        let refresh = |server: &PageServer, _: &CommandContext| {
            server.feed().refresh();
            Ok(())
        };
        server.read(refresh).await?;
    }
    Ok(output_answer(endpoint, &output))
}

/// Returns the JSON of a command as an answer; its failure decides the status.
fn output_answer(endpoint: &ApiRoute, output: &SubcommandOutput) -> Response {
    if output.ok && endpoint.is_list {
        return json_answer(StatusCode::OK, &json!({"schema": 1, "sessions": output.values()}));
    }
    if output.ok {
        return json_answer(StatusCode::OK, output.json());
    }
    match Failure::from_json(&output.json()["error"]) {
        Some(failure) => ErrorAnswer::api(failure).into_response(),
        None if output.json().is_object() => json_answer(StatusCode::CONFLICT, output.json()),
        None => {
            let text = output.stderr.trim();
            let text = if text.is_empty() { "the command failed" } else { text };
            ErrorAnswer::api(Failure::usage(text)).into_response()
        }
    }
}
