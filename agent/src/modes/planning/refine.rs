//! Refines a feature request: a model that can only read returns the requirements through a tool.

use planner::requirement::{self, AmbiguousRequirements};
use serde_json::{Value, json};

use super::model_io::{ModelTask, TextTool};
use super::prompts;
use provider::ToolDefinition;

/// Returns the tool and the task for refining.
pub(crate) fn refine(wish: &str, message: String) -> (TextTool, ModelTask) {
    let wished = requirement::count_items(wish);
    let text = json!({
        "type": "string",
        "description": "All requirements as a Markdown list, one item each: `- R1: …`."
    });
    let spec = ToolDefinition {
        name: "requirements".to_owned(),
        description: "Gives the refined requirements and ends the work.".to_owned(),
        parameters: json!({
            "type": "object", "properties": { "text": text }, "required": ["text"]
        }),
    };
    let asked = ModelTask {
        identity: prompts::ARCHITECT,
        title: "refine requirements",
        message,
        must_read: false,
    };
    (TextTool::by(spec, move |args| read(args, wished)), asked)
}

/// Parses the list. The user's text has `wished` items.
fn read(args: &Value, wished: usize) -> Result<String, String> {
    let text = args["text"].as_str().unwrap_or_default().trim();
    // The marks are reserved: a text that contains them could hide a part of itself.
    if text.contains("{{CURRENT REQUIREMENTS") || text.contains("{{ORIGINAL USER") {
        return Err("omit the marks in double braces: only the list".to_owned());
    }
    let items = requirement::count_items(text);
    if items == 0 && !text.is_empty() {
        return Err("`text` is not a list: one requirement per item, `- R1: …`".to_owned());
    }
    if items < wished {
        return Err(format!(
            "the user's list has {wished} items and this has {items}: keep each of them, as one \
             requirement at least"
        ));
    }
    match requirement::read(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(AmbiguousRequirements::Empty) => Err("`text` has no requirements".to_owned()),
        Err(AmbiguousRequirements::Twice(id)) => {
            Err(format!("two requirements have the id {id}: give one another"))
        }
    }
}
