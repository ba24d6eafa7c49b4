//! The coach: a new conversation in each round that can only read, and whose only result is a
//! validated verdict.

use std::sync::{Arc, Mutex};

use planner::requirement::Requirement;
use planner::verdict::{Verdict, VerdictBasis, validate};
use serde::Deserialize;
use serde_json::{Value, json};

use agent_core::role::RoleTool;
use provider::ToolDefinition;
use tools::output::ToolOutput;

/// The tool's name.
const NAME: &str = "verdict";
/// Maximum number of invalid verdicts.
const PATIENCE: u32 = 4;

/// The tool `verdict`.
#[derive(Debug)]
pub(crate) struct VerdictTool {
    requirements: Vec<Requirement>,
    /// The checks that failed.
    red: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    verdict: Option<Verdict>,
    refused: u32,
    /// Why the last verdict was invalid.
    invalid_reason: Option<String>,
}

impl VerdictTool {
    /// Creates a tool that accepts a verdict on these requirements.
    pub(crate) fn new(requirements: Vec<Requirement>, red: Vec<String>) -> Arc<VerdictTool> {
        Arc::new(VerdictTool { requirements, red, state: Mutex::default() })
    }

    /// Returns the verdict, or why it is missing or invalid.
    pub(crate) fn taken(&self) -> Result<Verdict, String> {
        let state = self.state();
        let none = || match &state.invalid_reason {
            Some(reason) => format!("its verdict was invalid: {reason}"),
            None => "the coach gave no verdict".to_owned(),
        };
        state.verdict.clone().ok_or_else(none)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        base::sync::lock(&self.state)
    }

    /// Parses a verdict. The error lists everything that is wrong with it.
    fn read(&self, args: &Value) -> Result<Verdict, String> {
        let verdict = Verdict::deserialize(args).map_err(|error| error.to_string())?;
        let by = VerdictBasis { requirements: &self.requirements, failed_checks: &self.red };
        match validate(&verdict, &by) {
            wrong if wrong.is_empty() => Ok(verdict),
            wrong => Err(wrong.join("; ")),
        }
    }
}

impl RoleTool for VerdictTool {
    fn spec(&self) -> ToolDefinition {
        let ids: Vec<&str> = self.requirements.iter().map(|it| it.id.as_str()).collect();
        let judged = json!({
            "type": "object",
            "properties": {
                "id": { "type": "string", "enum": ids },
                "status": { "type": "string", "enum": ["met", "unmet", "unknown"] },
                "evidence": { "type": "string", "description": "What you saw that shows it: a file and line, a test, a check." }
            },
            "required": ["id", "status", "evidence"]
        });
        let parameters = json!({
            "type": "object",
            "properties": {
                "approved": { "type": "boolean", "description": "true only when every requirement is met and no check failed." },
                "requirements": { "type": "array", "items": judged, "description": "Every requirement, each exactly once." },
                "feedback": { "type": "string", "description": "What the player has to do next, most important first." }
            },
            "required": ["approved", "requirements", "feedback"]
        });
        let description = "Gives your verdict and ends the review. Every requirement must be in \
                           it exactly once."
            .to_owned();
        ToolDefinition { name: NAME.to_owned(), description, parameters }
    }

    fn call(&self, args: &Value) -> ToolOutput {
        match self.read(args) {
            Ok(verdict) => {
                self.state().verdict = Some(verdict);
                ToolOutput::success("the verdict was accepted")
            }
            Err(error) => {
                let mut state = self.state();
                // An invalid verdict withdraws the one before it.
                state.verdict = None;
                state.refused += 1;
                state.invalid_reason = Some(error.clone());
                ToolOutput::invalid(format!(
                    "invalid verdict: {error}. Send the whole verdict again"
                ))
            }
        }
    }

    fn open_work(&self) -> Option<String> {
        let state = self.state();
        let over = state.verdict.is_some() || state.refused >= PATIENCE;
        (!over).then(|| {
            format!("Your words are not a verdict. Call the tool `{NAME}` with all requirements.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(red: &[&str]) -> Arc<VerdictTool> {
        let requirements = planner::requirement::read("- a\n- b").unwrap();
        VerdictTool::new(requirements, red.iter().map(|line| (*line).to_owned()).collect())
    }

    fn verdict(approved: bool, second: &str) -> Value {
        json!({"approved": approved, "feedback": "more", "requirements": [
            {"id": "R1", "status": "met", "evidence": "seen"},
            {"id": "R2", "status": second, "evidence": "seen"}]})
    }

    #[test]
    fn a_verdict_must_be_complete_and_a_failed_check_forbids_approval() {
        let green = tool(&[]);
        assert!(green.open_work().is_some());
        assert!(green.call(&verdict(true, "met")).ok);
        assert!(green.open_work().is_none() && green.taken().unwrap().approved);
        let red = tool(&["make test"]);
        assert!(red.call(&verdict(true, "met")).text.contains("make test"));
        assert!(red.taken().is_err());
        assert!(red.call(&verdict(false, "unmet")).ok);
    }

    #[test]
    fn too_many_invalid_verdicts_end_without_a_verdict() {
        let tool = tool(&[]);
        for _ in 0..PATIENCE {
            assert!(tool.open_work().is_some());
            assert!(!tool.call(&verdict(true, "unmet")).ok);
        }
        assert!(tool.open_work().is_none());
        assert!(tool.taken().unwrap_err().contains("requirements are not met: R2"));
    }

    #[test]
    fn an_invalid_verdict_withdraws_the_valid_one_before_it() {
        let tool = tool(&[]);
        assert!(tool.call(&verdict(true, "met")).ok);
        assert!(!tool.call(&json!({"approved": true})).ok);
        assert!(tool.taken().is_err() && tool.open_work().is_some());
    }
}
