//! The tools for work in a directory: files, edits, search, commands, todo list, notes and skills.

use tools::history::HistoryTool;
use tools::image::ImageTool;
use tools::tool::Tool;

pub mod edit;
pub mod exec;
pub mod fs;
pub mod memory;
pub mod research;
pub mod search;
pub mod skill;
pub mod stronger_model;
pub mod subagent;
pub mod test_coverage;
pub mod todo;
pub mod wait;

/// The tools of this crate. Each tool has a line here.
pub const TOOLS: &[&dyn Tool] = &[
    &exec::shell::ShellTool,
    &exec::background::BackgroundTool,
    &exec::background_control::ProcessControlTool,
    &fs::read::ReadFileTool,
    &fs::write::WriteFileTool,
    &ImageTool,
    &test_coverage::CoverageTool,
    &edit::replace::ReplaceTool,
    &edit::diff::DiffTool,
    &edit::multi::MultiEditTool,
    &edit::patch::PatchTool,
    &search::grep::GrepTool,
    &search::glob::GlobTool,
    &todo::TodoReadTool,
    &todo::TodoWriteTool,
    &todo::TodoItemsTool,
    &wait::WaitTool,
    &HistoryTool,
    &stronger_model::EscalateTool,
    &skill::SkillTool,
    &research::ResearchTool,
    &subagent::TaskTool,
    &memory::RememberTool,
    &memory::MemorySearchTool,
    &memory::MemoryGetTool,
    &memory::MemorySetTool,
];

#[cfg(test)]
mod tests;
