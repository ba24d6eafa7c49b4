//! Skills: texts that teach the model a kind of work, one directory each, read when they are needed.
//!
//! The format is that of the Agent Skills specification: `SKILL.md` with YAML front matter, and
//! files beside it. [`find`] looks for them, [`parse`] reads one, [`Shelf`] is what a session has.

pub mod allowed;
pub mod embedded;
pub mod extract;
pub mod find;
pub mod parse;
pub mod prompt_list;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use allowed::AllowedTool;

/// One skill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Skill {
    /// Its name, which is also that of its directory.
    pub name: String,
    /// What it is for, and when to use it.
    pub description: String,
    /// Under which licence it may be used.
    pub license: Option<String>,
    /// What it needs of its surroundings.
    pub compatibility: Option<String>,
    /// Whatever else its author says.
    pub metadata: BTreeMap<String, String>,
    /// The only tools that run while it is active; `None` when it does not say.
    pub allowed: Option<Vec<AllowedTool>>,
    /// The instructions below the front matter.
    pub body: String,
    /// Where it comes from.
    pub home: SkillSource,
}

/// Where a skill comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SkillSource {
    /// It is compiled in.
    #[default]
    Embedded,
    /// A directory that holds its `SKILL.md` and, where it is a repository's, the directory that
    /// none of its files may lead out of.
    Directory {
        /// The skill's own directory.
        dir: PathBuf,
        /// The file that was read.
        file: PathBuf,
        /// What its links may not lead out of; the user's own skills may lead anywhere.
        within: Option<PathBuf>,
    },
}

/// The skills of a session, and which of them were loaded since the user last said something.
#[derive(Debug, Default)]
pub struct SkillSet {
    skills: Vec<Skill>,
    /// What the user should know: skills that were left out, and why.
    pub notices: Vec<String>,
    active: Mutex<Vec<String>>,
}

impl Skill {
    /// Where the model is told that it stands.
    pub fn location(&self) -> String {
        match &self.home {
            SkillSource::Embedded => format!("<embedded:{}>/SKILL.md", self.name),
            SkillSource::Directory { file, .. } => file.display().to_string(),
        }
    }
}

impl SkillSet {
    /// A shelf of these skills; of two with one name the later is kept. In order of their names.
    pub fn of(skills: Vec<Skill>, notices: Vec<String>) -> SkillSet {
        let by_name: BTreeMap<String, Skill> =
            skills.into_iter().map(|skill| (skill.name.clone(), skill)).collect();
        let skills = by_name.into_values().collect();
        SkillSet { skills, notices, active: Mutex::default() }
    }

    /// Every skill, in order of their names.
    pub fn skills(&self) -> &[Skill] {
        &self.skills
    }

    /// The skill of this name.
    pub fn find(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// The user said something: no skill is active any more.
    pub fn begin_turn(&self) {
        self.active().clear();
    }

    /// A skill was loaded.
    pub fn activate(&self, name: &str) {
        let mut active = self.active();
        if !active.iter().any(|known| known == name) {
            active.push(name.to_owned());
        }
    }

    /// The active skills that say which tools may run.
    pub fn restricting(&self) -> Vec<&Skill> {
        let active = self.active();
        let loaded = active.iter().filter_map(|name| self.find(name));
        loaded.filter(|skill| skill.allowed.is_some()).collect()
    }

    fn active(&self) -> MutexGuard<'_, Vec<String>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
