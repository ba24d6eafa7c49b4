//! Skills: instructions for a kind of work, one directory each, loaded on demand.
//!
//! The format is that of the Agent Skills specification: `SKILL.md` with YAML front matter, and
//! additional files. [`find`] finds them, [`parse`] parses one, [`SkillSet`] is the set of a
//! session.

pub mod allowed;
pub mod embedded;
pub mod extract;
pub mod find;
#[cfg(any(test, fuzzing))]
pub mod fuzz_tests;
pub mod parse;
pub mod prompt_list;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use allowed::AllowedTool;

/// A skill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Skill {
    /// Its name, which is also that of its directory.
    pub name: String,
    /// What it does, and when to use it.
    pub description: String,
    /// The licence.
    pub license: Option<String>,
    /// Its requirements on the environment.
    pub compatibility: Option<String>,
    /// Additional metadata.
    pub metadata: BTreeMap<String, String>,
    /// The only tools that may run while it is active; `None` for no restriction.
    pub allowed: Option<Vec<AllowedTool>>,
    /// The instructions below the front matter.
    pub body: String,
    /// Its location.
    pub source: SkillSource,
}

/// The location of a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SkillSource {
    /// Built in.
    #[default]
    Embedded,
    /// A directory with its `SKILL.md`.
    Directory {
        /// The skill's own directory.
        dir: PathBuf,
        /// The file that was read.
        file: PathBuf,
        /// The directory that links must not leave; `None` for the user's own skills.
        boundary: Option<PathBuf>,
    },
}

/// The skills of a session, and which of them are active in the current user turn.
#[derive(Debug, Default)]
pub struct SkillSet {
    skills: Vec<Skill>,
    /// Notices for the user about skills that were left out.
    pub notices: Vec<String>,
    active: Mutex<Vec<String>>,
}

impl Skill {
    /// Returns the location as shown to the model.
    pub fn location(&self) -> String {
        match &self.source {
            SkillSource::Embedded => format!("<embedded:{}>/SKILL.md", self.name),
            SkillSource::Directory { file, .. } => file.display().to_string(),
        }
    }
}

impl SkillSet {
    /// Creates a set sorted by name. If two skills have the same name, the later is kept.
    pub fn new(skills: Vec<Skill>, notices: Vec<String>) -> SkillSet {
        let by_name: BTreeMap<String, Skill> =
            skills.into_iter().map(|skill| (skill.name.clone(), skill)).collect();
        let skills = by_name.into_values().collect();
        SkillSet { skills, notices, active: Mutex::default() }
    }

    /// Returns all skills, sorted by name.
    pub fn skills(&self) -> &[Skill] {
        &self.skills
    }

    /// Returns the skill of this name.
    pub fn find(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// Starts a new user turn: no skill is active.
    pub fn begin_turn(&self) {
        self.active().clear();
    }

    /// Activates a loaded skill.
    pub fn activate(&self, name: &str) {
        let mut active = self.active();
        if !active.iter().any(|known| known == name) {
            active.push(name.to_owned());
        }
    }

    /// Returns the active skills that restrict the tools.
    pub fn restricting_skills(&self) -> Vec<&Skill> {
        let active = self.active();
        let loaded = active.iter().filter_map(|name| self.find(name));
        loaded.filter(|skill| skill.allowed.is_some()).collect()
    }

    fn active(&self) -> MutexGuard<'_, Vec<String>> {
        base::sync::lock(&self.active)
    }
}
