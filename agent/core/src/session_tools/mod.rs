//! The tools that need the conversation of the session or the user's approval.

use tools::tool::Tool;

pub mod plan;
pub mod rehydrate;

/// The tools of this module.
pub const TOOLS: &[&dyn Tool] = &[&plan::PlanTool, &rehydrate::RehydrateTool];
