//! `g3 skills`: lists the skills of a directory, and checks skills against the rules.

use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::GlobalArgs;
use super::settings::{directory, load};
use crate::ui;
use base::text::cut_columns;
use skills::find::{self, SkillDir, SkillSearch};
use skills::{Skill, SkillSource};

/// `g3 skills …`.
#[derive(Debug, Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    command: SkillsCommand,
    /// The directory
    #[arg(short = 'w', long, value_name = "DIR", global = true)]
    workspace: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SkillsCommand {
    /// List the skills that are offered to the model
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Check skills; exits with 1 if a rule is violated
    Check {
        /// Skill or directory of skills [default: all skills of this directory]
        dir: Option<PathBuf>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// Runs `g3 skills …` and returns the exit code.
pub(crate) fn run(args: &SkillsArgs) -> Result<u8> {
    let common = GlobalArgs { workspace: args.workspace.clone(), ..GlobalArgs::default() };
    let cwd = directory(&common)?;
    match &args.command {
        SkillsCommand::List { json } => list(&common, &cwd, *json).map(|()| 0),
        SkillsCommand::Check { dir, json } => check(&common, &cwd, dir.as_deref(), *json),
    }
}

fn list(common: &GlobalArgs, cwd: &Path, json: bool) -> Result<()> {
    let shelf = find::load(&load(common, cwd)?.config.skills, cwd);
    let skills = shelf.skills();
    if json {
        return print_json(&skills.iter().map(as_json).collect());
    }
    let widest = skills.iter().map(|skill| skill.name.len()).max().unwrap_or(0);
    let line = |skill: &Skill| {
        let about = base::text::printable(&skill.description.replace('\n', " "));
        let (name, location) = (&skill.name, skill.location());
        format!("{name:widest$}  {}\n{:widest$}  {location}\n", cut_columns(&about, 90), "")
    };
    ui::print(&skills.iter().map(line).collect::<String>())?;
    shelf.notices.iter().for_each(|notice| ui::say(notice));
    Ok(())
}

fn as_json(skill: &Skill) -> Value {
    let allowed = skill.allowed.as_ref();
    let allowed = allowed.map(|all| all.iter().map(|entry| &entry.text).collect::<Vec<_>>());
    json!({
        "name": skill.name,
        "description": skill.description,
        "location": skill.location(),
        "embedded": skill.source == SkillSource::Embedded,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": skill.metadata,
        "allowed_tools": allowed,
    })
}

fn check(common: &GlobalArgs, cwd: &Path, dir: Option<&Path>, json: bool) -> Result<u8> {
    let searches = match dir {
        Some(dir) => skills_in(&cwd.join(dir))?,
        None => {
            let places = find::skill_dirs(&load(common, cwd)?.config.skills, cwd);
            places.iter().flat_map(find::find_in).collect()
        }
    };
    let has_faults = searches.iter().any(|search| !search.faults.is_empty());
    if json {
        print_json(&searches.iter().flat_map(faults_as_json).collect())?;
    } else {
        ui::print(&searches.iter().map(|search| faults_as_text(search, cwd)).collect::<String>())?;
        let skills = if searches.len() == 1 { "skill" } else { "skills" };
        ui::say(&format!("{} {skills} checked", searches.len()));
    }
    Ok(u8::from(has_faults))
}

/// Returns the skill in a directory, or the skills in the directories below it.
fn skills_in(dir: &Path) -> Result<Vec<SkillSearch>> {
    let real = dir.canonicalize().map_err(|error| {
        Failure::usage(format!("cannot check {}", dir.display())).because(error)
    })?;
    let searches = match find::find_skill(&real, None) {
        Some(search) => vec![search],
        None => find::find_in(&SkillDir { dir: real, boundary: None }),
    };
    if searches.is_empty() {
        return Err(Failure::usage(format!("no skills in {}", dir.display()))
            .because("a skill is a directory with a SKILL.md"));
    }
    Ok(searches)
}

fn faults_as_text(search: &SkillSearch, cwd: &Path) -> String {
    let file = search.file.strip_prefix(cwd).unwrap_or(&search.file).display();
    let line = |fault: &skills::parse::SkillFault| {
        format!("{file}:{} {}: {}\n", fault.line, fault.rule, base::text::printable(&fault.text))
    };
    search.faults.iter().map(line).collect()
}

fn faults_as_json(search: &SkillSearch) -> Vec<Value> {
    let entries = search.faults.iter().map(|fault| {
        json!({
            "file": search.file,
            "line": fault.line,
            "rule": fault.rule,
            "text": fault.text,
            "left_out": fault.fatal,
        })
    });
    entries.collect()
}

fn print_json(values: &Vec<Value>) -> Result<()> {
    let text = serde_json::to_string_pretty(values).or_fail(|| "cannot write JSON")?;
    ui::print(&format!("{text}\n"))
}
