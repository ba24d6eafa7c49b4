//! Questions of a server to the user (elicitation).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gate::Gate;
use gate::form::{FormAnswer, UserForm};
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData,
    FormElicitationCapability, InputRequest, InputRequiredResult, InputResponses,
};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Shows the questions of one server, where they can be shown.
pub(crate) struct UserQuestions {
    gate: Arc<Gate>,
    server: String,
    /// Number of open questions.
    open: watch::Sender<usize>,
    /// Ends the last call, and with it its questions.
    call: Mutex<CancellationToken>,
}

/// A question that is open as long as this exists.
struct OpenQuestion<'a>(&'a watch::Sender<usize>);

impl<'a> OpenQuestion<'a> {
    fn new(open: &'a watch::Sender<usize>) -> OpenQuestion<'a> {
        open.send_modify(|count| *count += 1);
        OpenQuestion(open)
    }
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl UserQuestions {
    /// Returns `None` if no form can be shown: then servers are not told that they can ask.
    pub(crate) fn new(gate: &Arc<Gate>, server: &str) -> Option<Arc<UserQuestions>> {
        gate.can_show_forms().then(|| {
            Arc::new(UserQuestions {
                gate: gate.clone(),
                server: server.to_owned(),
                open: watch::Sender::new(0),
                call: Mutex::default(),
            })
        })
    }

    /// Returns what g3 tells a server that it can show.
    pub(crate) fn capability() -> ElicitationCapability {
        ElicitationCapability::new().with_form(FormElicitationCapability::new())
    }

    /// Tells which call is running.
    pub(crate) fn begin_call(&self, cancel: &CancellationToken) {
        *base::sync::lock(&self.call) = cancel.clone();
    }

    /// Shows a question and returns the user's answer.
    pub(crate) async fn answer(
        &self,
        params: ElicitRequestParams,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = params
        else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let schema = serde_json::to_value(requested_schema)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let form = UserForm { source: self.server.clone(), message, schema };
        let cancel = base::sync::lock(&self.call).clone();
        let _open = OpenQuestion::new(&self.open);
        let answer = cancel.run_until_cancelled(self.gate.fill(&form)).await;
        Ok(match answer.unwrap_or(FormAnswer::Cancelled) {
            FormAnswer::Filled(values) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(values))
            }
            FormAnswer::Declined => ElicitResult::new(ElicitationAction::Decline),
            FormAnswer::Cancelled => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    /// Answers the questions of an intermediate result, as since protocol 2026-07-28.
    pub(crate) async fn answer_all(
        &self,
        result: &InputRequiredResult,
    ) -> Result<InputResponses, String> {
        let mut responses = InputResponses::default();
        for (key, request) in result.input_requests.iter().flatten() {
            let InputRequest::Elicitation(request) = request else {
                return Err("it requires something else than an answer of the user".to_owned());
            };
            let answer = self.answer(request.params.clone()).await;
            let answer = answer.map_err(|error| error.message.into_owned())?;
            let answer = serde_json::to_value(answer).map_err(|error| error.to_string())?;
            responses.insert(key.clone(), answer);
        }
        Ok(responses)
    }

    /// Waits for a time in which no question is open.
    pub(crate) async fn sleep(&self, limit: Duration) {
        let mut open = self.open.subscribe();
        let mut left = limit;
        loop {
            let _ = open.wait_for(|count| *count == 0).await;
            let start = tokio::time::Instant::now();
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                _ = open.wait_for(|count| *count > 0) => left = left.saturating_sub(start.elapsed()),
            }
        }
    }
}
