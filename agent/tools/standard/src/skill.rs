//! The tool that loads a skill.

use std::path::{Component, Path, PathBuf};

use ignore::WalkBuilder;
use serde::Deserialize;
use serde_json::json;

use skills::parse::MAX_SIZE;
use skills::{Skill, SkillSource, embedded, extract, find};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    name: String,
    file: Option<String>,
}

/// Maximum number of files listed.
const MAX_FILES: usize = 100;

/// The tool that loads a skill.
pub(crate) struct SkillTool;

impl Tool for SkillTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("skill", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("skill")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(run(call)))
    }
}

/// Loads a skill, or one of its additional files.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { name, file } = call.decode()?;
    let skills = &call.context.skills;
    let Some(skill) = skills.find(name.trim()) else {
        let known_names: Vec<&str> =
            skills.skills().iter().map(|skill| skill.name.as_str()).collect();
        let known_names =
            if known_names.is_empty() { "none".to_owned() } else { known_names.join(", ") };
        let text = format!("no such skill: `{}`; available: {known_names}", name.trim());
        return Err(ToolError::new(ToolErrorKind::NotFound, text));
    };
    if let Some(file) = file.filter(|file| !file.trim().is_empty()) {
        let text = read_file(skill, file.trim())
            .map_err(|error| ToolError::failed(format!("cannot read {file} of {name}: {error}")))?;
        return Ok(ToolOutput::success(text));
    }
    let text = skill_text(skill, &call.context.cwd)?;
    skills.activate(&skill.name);
    let metadata = json!({ "name": skill.name, "location": skill.location() });
    Ok(ToolOutput::success(text).titled(format!("loaded the skill {}", skill.name)).with(metadata))
}

/// Returns the instructions, preceded by the skill's location and files.
fn skill_text(skill: &Skill, cwd: &Path) -> Result<String, ToolError> {
    let mut head = format!("Skill: {}\n", skill.name);
    match &skill.source {
        SkillSource::Embedded => {
            let bundle = embedded::bundle(&skill.name);
            let extracted =
                bundle.map_or(Ok(Vec::new()), |bundle| extract::write_scripts(bundle, cwd));
            let extracted = extracted
                .map_err(|error| ToolError::io("cannot put the skill's programs there", &error))?;
            head.push_str("Base directory: none, it is part of g3\n");
            let show_path =
                |path: &PathBuf| path.strip_prefix(cwd).unwrap_or(path).display().to_string();
            let extracted: Vec<String> = extracted.iter().map(show_path).collect();
            if !extracted.is_empty() {
                head.push_str(&format!("Programs: {}\n", extracted.join(", ")));
            }
        }
        SkillSource::Directory { dir, file, .. } => {
            head.push_str(&format!("Base directory: {}\n", dir.display()));
            let files = files(dir, file);
            if !files.is_empty() {
                let list: String = files.iter().map(|file| format!("- {file}\n")).collect();
                head.push_str(&format!(
                    "Files (read one with this tool: name and file; paths in the text start at \
                     the base directory):\n{list}"
                ));
            }
        }
    }
    if let Some(allowed) = &skill.allowed {
        let names: Vec<&str> = allowed.iter().map(|entry| entry.text.as_str()).collect();
        head.push_str(&format!(
            "Until the user's next message only these tools run, and skill: {}\n",
            names.join(", ")
        ));
    }
    Ok(format!("{head}\n{}", skill.body))
}

/// Returns the files of a skill except its `SKILL.md`. Links are not followed.
fn files(dir: &Path, main: &Path) -> Vec<String> {
    let walk = WalkBuilder::new(dir)
        .standard_filters(false)
        .max_depth(Some(6))
        .sort_by_file_path(Ord::cmp)
        .build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let paths = files.map(|entry| entry.into_path()).filter(|path| path != main);
    let mut names: Vec<String> = paths
        .filter_map(|path| Some(path.strip_prefix(dir).ok()?.display().to_string()))
        .take(MAX_FILES + 1)
        .collect();
    if names.len() > MAX_FILES {
        names.truncate(MAX_FILES);
        names.push("(more)".to_owned());
    }
    names
}

/// Reads an additional file of a skill.
fn read_file(skill: &Skill, file: &str) -> Result<String, String> {
    match &skill.source {
        SkillSource::Embedded => {
            let embedded_text = embedded::file(&skill.name, file).map(str::to_owned);
            embedded_text.ok_or_else(|| "no such file".to_owned())
        }
        SkillSource::Directory { dir, boundary, .. } => {
            let is_inside =
                Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
            if !is_inside {
                return Err("the path must lie below the base directory".to_owned());
            }
            let text =
                find::read(&dir.join(file), boundary.as_deref().or(Some(dir)), MAX_SIZE + 1)?;
            Ok(base::text::head(&text, MAX_SIZE).to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
