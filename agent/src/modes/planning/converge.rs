//! Compares requirements with the code: a model that can only read judges each of them, and returns
//! tasks for what is missing through a tool.

use planner::requirement::Requirement;
use planner::task::{self, Task};
use planner::verdict::{RequirementVerdict, Verdict, VerdictBasis, VerdictStatus, validate};
use serde::Deserialize;
use serde_json::{Value, json};

use super::model_io::{ModelTask, TextTool};
use super::{prompts, split};
use provider::ToolDefinition;

/// A requirement that is known not to be met, and the reason.
pub(crate) type KnownGap = (String, String);

/// The basis of a comparison.
pub(crate) struct ConvergenceBasis {
    /// All requirements.
    pub requirements: Vec<Requirement>,
    /// The existing tasks, which have landed.
    pub tasks: Vec<Task>,
    /// The requirements that are known not to be met.
    pub gaps: Vec<KnownGap>,
}

/// Returns the tool and the task for a comparison. The tool returns a JSON object: `requirements`
/// with the verdicts, and `tasks` with the new tasks in TOML.
pub(crate) fn converge(basis: ConvergenceBasis, report: &str) -> (TextTool, ModelTask) {
    let message = prompts::converge(&basis, report);
    let verdict = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id of the requirement."},
            "status": {"type": "string", "enum": ["met", "unmet", "unknown"]},
            "evidence": {"type": "string", "description": "The file and line, or the test, that shows it; for unmet, what is missing."},
        },
        "required": ["id", "status", "evidence"]
    });
    let spec = ToolDefinition {
        name: "findings".to_owned(),
        description: "Gives the verdicts and the tasks, and ends the work.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "requirements": {"type": "array", "items": verdict},
                "tasks": {"type": "array", "items": split::row_schema()},
            },
            "required": ["requirements", "tasks"]
        }),
    };
    let asked = ModelTask {
        identity: prompts::EXAMINER,
        title: "compare requirements with the code",
        message,
        must_read: true,
    };
    (TextTool::by(spec, move |args| read(args, &basis)), asked)
}

fn read(args: &Value, basis: &ConvergenceBasis) -> Result<String, String> {
    let verdicts: Vec<RequirementVerdict> = Deserialize::deserialize(&args["requirements"])
        .map_err(|error| format!("`requirements`: {error}"))?;
    let (new, mut wrong) = split::read_tasks(args, &basis.requirements, &basis.tasks)?;
    let open: Vec<&str> =
        verdicts.iter().filter(|it| it.status != VerdictStatus::Met).map(|it| &*it.id).collect();
    let verdict = Verdict {
        approved: open.is_empty(),
        requirements: verdicts.clone(),
        feedback: open.join(", "),
    };
    let judged = VerdictBasis { requirements: &basis.requirements, failed_checks: &[] };
    wrong.extend(validate(&verdict, &judged));
    for it in &verdicts {
        let is_planned = new.iter().any(|task| task.requirements.contains(&it.id));
        let gap = basis.gaps.iter().find(|(id, _)| *id == it.id);
        match (it.status, gap) {
            (VerdictStatus::Met | VerdictStatus::Unknown, Some((id, reason))) => {
                let status = it.status.word();
                wrong.push(format!("{id} was judged {status}, but it is unmet: {reason}"));
            }
            (VerdictStatus::Unmet, _) if it.evidence.trim().is_empty() => {
                wrong.push(format!("{} was judged unmet without saying what is missing", it.id));
            }
            (VerdictStatus::Unmet, _) if !is_planned => {
                wrong.push(format!("no new task covers {}, which is unmet", it.id));
            }
            (VerdictStatus::Met, None) if is_planned => {
                wrong.push(format!("a new task covers {}, which was judged met", it.id));
            }
            (VerdictStatus::Met | VerdictStatus::Unmet | VerdictStatus::Unknown, _) => {}
        }
    }
    match wrong.is_empty() {
        true => Ok(json!({"requirements": verdicts, "tasks": task::to_toml(&new)}).to_string()),
        false => Err(format!("{}. Send all verdicts and tasks again", wrong.join("; "))),
    }
}
