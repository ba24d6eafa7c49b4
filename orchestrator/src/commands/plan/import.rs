//! Reads a plan of another tool: spec-kit, OpenSpec, Kiro or Task Master.

use std::path::{Path, PathBuf};

use base::failure::{Failure, Result};
use planner::document::{CURRENT, ORIGINAL};
use planner::import::{self, ImportedPlan, PlanFormat, SourceFile};
use planner::task;

use crate::commands::context::CommandContext;
use crate::report;

/// Maximum size of one file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// A plan of another tool, in the texts of studio's own.
pub(crate) struct ImportedTexts {
    /// The requirements, and where they come from.
    pub request: String,
    /// The tasks.
    pub tasks: String,
}

/// Reads the plan at a path: its directory, its `tasks.json`, or a directory above it with only one
/// plan.
pub(crate) fn read(
    context: &CommandContext,
    path: &Path,
    tag: Option<&str>,
) -> Result<ImportedTexts> {
    let path = context.directory.as_deref().unwrap_or(Path::new(".")).join(path);
    let directory = find_plan(&path)?;
    let root = context.repository.main_checkout.as_deref().unwrap_or(&directory);
    let root = &root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let (format, files) = load(&directory, root)?;
    let plan = import::read(format, &files, tag).map_err(|errors| {
        let lines = errors
            .iter()
            .map(|it| format!("{}:{}: {}", directory.join(&it.file).display(), it.line, it.what));
        Failure::usage(format!("cannot read the plan in {}", directory.display()))
            .because(lines.collect::<Vec<_>>().join("\n"))
            .hint("correct these lines; nothing was written")
    })?;
    for note in &plan.notes {
        report::say(&base::text::printable(&format!("note: {note}")));
    }
    Ok(texts(&plan, &directory, root))
}

fn texts(plan: &ImportedPlan, directory: &Path, root: &Path) -> ImportedTexts {
    let source = directory.strip_prefix(root).unwrap_or(directory).display();
    let title = match plan.title.is_empty() {
        true => String::new(),
        false => format!("{}\n\n", plan.title),
    };
    let request = format!(
        "{CURRENT}\n\n{}\n{ORIGINAL}\n\n{title}Imported from {source}.\n",
        plan.requirements_text()
    );
    ImportedTexts { request, tasks: task::to_toml(&plan.tasks) }
}

/// The directories, below the one that the user names, that contain one directory for each plan.
const PARENTS: [&str; 7] =
    ["", "specs", ".specify/specs", "openspec/changes", "changes", ".kiro/specs", "../specs"];
/// The directories that contain the file of Task Master.
const TASK_FILES: [&str; 3] = [".taskmaster/tasks", "tasks", ""];

/// Returns the directory of the plan at or below a path.
fn find_plan(path: &Path) -> Result<PathBuf> {
    let path = path.canonicalize().map_err(|error| {
        Failure::not_found(format!("cannot read {}", path.display())).because(error)
    })?;
    if path.is_file() {
        return Ok(path.parent().unwrap_or(&path).to_owned());
    }
    if format_of(&path).is_some() {
        return Ok(path);
    }
    let mut found: Vec<PathBuf> = TASK_FILES
        .iter()
        .map(|name| path.join(name))
        .filter(|directory| directory.join("tasks.json").is_file())
        .collect();
    for parent in PARENTS {
        // `.specify` has its plans beside it.
        if parent.starts_with("..") && !path.ends_with(".specify") {
            continue;
        }
        let entries = std::fs::read_dir(path.join(parent)).into_iter().flatten().flatten();
        // Changes that OpenSpec archived are done.
        let entries = entries.map(|entry| entry.path()).filter(|it| !it.ends_with("archive"));
        found.extend(entries.filter(|it| it.is_dir() && format_of(it).is_some()));
    }
    let mut found: Vec<PathBuf> =
        found.into_iter().filter_map(|it| it.canonicalize().ok()).collect();
    found.sort();
    found.dedup();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::not_found(format!("no plan in {}", path.display()))
            .because("it has none of spec.md and tasks.md (spec-kit), proposal.md (OpenSpec), requirements.md and tasks.md (Kiro), tasks.json (Task Master)")
            .hint("studio plan --from specs/001-feature")),
        several => Err(several.iter().fold(
            Failure::usage(format!("{} has several plans", path.display())),
            |failure, plan| failure.hint(format!("studio plan --from '{}'", plan.display())),
        )),
    }
}

fn format_of(directory: &Path) -> Option<PlanFormat> {
    let names = names(directory);
    import::detect(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the names of the files in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Reads the files of a plan.
fn load(directory: &Path, root: &Path) -> Result<(PlanFormat, Vec<SourceFile>)> {
    let format = format_of(directory).ok_or_else(|| {
        Failure::usage(format!("{} is not a plan", directory.display()))
            .because("its format is not known")
            .hint("studio plan --from .")
    })?;
    let own = [
        "spec.md",
        "plan.md",
        "tasks.md",
        "proposal.md",
        "design.md",
        "requirements.md",
        "tasks.json",
    ];
    let mut paths: Vec<PathBuf> =
        own.iter().map(|name| directory.join(name)).filter(|path| path.is_file()).collect();
    if format == PlanFormat::Openspec {
        let specs = std::fs::read_dir(directory.join("specs")).into_iter().flatten().flatten();
        let specs = specs.map(|entry| entry.path().join("spec.md"));
        paths.extend(specs.filter(|path| path.is_file()));
    }
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let unreadable = |reason: String| {
            Failure::usage(format!("cannot read {}", path.display())).because(reason)
        };
        let bytes = base::files::read_bounded(&path, MAX_BYTES)
            .map_err(|error| unreadable(error.to_string()))?;
        let text =
            String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
        let relative = |from: &Path| path.strip_prefix(from).unwrap_or(&path).display().to_string();
        files.push(SourceFile { name: relative(directory), path: relative(root), text });
    }
    Ok((format, files))
}
