//! Personas: a text that defines the agent's role, and the files that it may write. The workspace's
//! personas take precedence over the user's, and those over the built-in ones.

pub mod language;
mod parse;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use base::config::trust;
use base::failure::{Failure, Result};

use crate::prompt::Identity;
use crate::role::AgentRole;
use base::workspace;
use gate::write_scope::WriteScope;
use parse::{FrontMatter, parse};

/// Embeds files of `agents/`, by their names without `.md`.
macro_rules! compiled_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../agents/", $name, ".md")))),*]
    };
}

/// Personas and their additions for languages.
const EMBEDDED: &[(&str, &str)] = compiled_in![
    "breaker",
    "carmack",
    "carmack.python",
    "carmack.rust",
    "euler",
    "fowler",
    "hopper",
    "huffman",
    "lamport",
    "scout",
    "solon",
];

/// Maximum size of a file in bytes.
const MAX_SIZE: u64 = 64 << 10;

/// The origin of a persona.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PersonaOrigin {
    /// `agents/` of the working directory, or of one of its parents up to the workspace root.
    Workspace(PathBuf),
    /// `~/.g3/agents/`.
    User(PathBuf),
    /// Built in.
    Embedded,
}

impl fmt::Display for PersonaOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PersonaOrigin::Workspace(_) => f.write_str("workspace"),
            PersonaOrigin::User(_) => f.write_str("user"),
            PersonaOrigin::Embedded => f.write_str("embedded"),
        }
    }
}

/// A persona.
#[derive(Clone, Debug)]
pub struct Persona {
    /// Its name.
    pub name: String,
    /// Its origin.
    pub origin: PersonaOrigin,
    /// Its purpose, in one line.
    pub description: String,
    /// Lists of globs over the workspace. A path must match every list to be writable.
    pub may_write: Vec<Vec<String>>,
    /// Whether it may only read.
    pub reads_only: bool,
    text: String,
}

/// The directories that are searched for personas.
#[derive(Clone, Debug)]
pub struct PersonaDirs {
    cwd: PathBuf,
    home: Option<PathBuf>,
    /// The file that records which workspace contents the user trusts.
    trust: Option<PathBuf>,
}

impl PersonaDirs {
    /// Returns the directories for a working directory.
    pub fn new(cwd: &Path, trust: Option<PathBuf>) -> PersonaDirs {
        let home = base::user_dirs::home_dir();
        PersonaDirs { cwd: cwd.to_owned(), home: home.map(|home| home.join(".g3/agents")), trust }
    }

    /// Finds a persona by name. Returns it with notices for the user.
    pub fn find(&self, name: &str) -> Result<(Persona, Vec<String>)> {
        if !is_name(name) {
            return Err(Failure::usage(format!("invalid agent name `{name}`"))
                .because("use letters, digits, `-` and `_`")
                .hint("g3 --list-agents"));
        }
        let mut personas = self.load_all(name)?.into_iter();
        let Some(first) = personas.next() else { return Err(self.unknown_persona(name)) };
        let PersonaOrigin::Workspace(file) = first.origin.clone() else {
            return Ok((first, Vec::new()));
        };
        let trusted = self.trust.as_ref().is_some_and(|store| {
            base::files::read(&file).is_ok_and(|content| trust::is_trusted(store, &file, &content))
        });
        if trusted {
            return Ok((first, Vec::new()));
        }
        // The repository's own file may change the text, but not grant more permissions than the
        // persona has without it.
        let is_from_workspace =
            |persona: &Persona| matches!(persona.origin, PersonaOrigin::Workspace(_));
        let Some(base) = personas.find(|persona| !is_from_workspace(persona)) else {
            return Ok((first, Vec::new()));
        };
        let is_wider = first.may_write != base.may_write || (base.reads_only && !first.reads_only);
        let notice = format!(
            "{} may narrow what `{name}` does, not widen it; `g3 trust --file agents/{name}.md` \
             accepts it as it is",
            file.display()
        );
        let may_write = [first.may_write, base.may_write].concat();
        let reads_only = first.reads_only || base.reads_only;
        let notices = is_wider.then_some(notice).into_iter().collect();
        Ok((Persona { may_write, reads_only, ..first }, notices))
    }

    /// Returns all personas, by name.
    pub fn list(&self) -> Result<Vec<Persona>> {
        let embedded = EMBEDDED.iter().map(|(name, _)| (*name).to_owned());
        let mut names: Vec<String> =
            embedded.chain(self.dirs().flat_map(|(dir, _)| names_in(&dir))).collect();
        names.retain(|name| is_name(name));
        names.sort();
        names.dedup();
        let first =
            |name: &String| self.load_all(name).map(|all| all.into_iter().next()).transpose();
        names.iter().filter_map(first).collect()
    }

    /// Returns all personas of a name, in order of precedence.
    fn load_all(&self, name: &str) -> Result<Vec<Persona>> {
        let texts = self.texts(name)?.into_iter();
        texts.map(|(origin, text)| parse_persona(name, origin, &text)).collect()
    }

    /// Returns the texts of all files of this name.
    fn texts(&self, stem: &str) -> Result<Vec<(PersonaOrigin, String)>> {
        let mut texts = Vec::new();
        for (dir, origin) in self.dirs() {
            let file = dir.join(format!("{stem}.md"));
            if let Some(text) = read(&dir, &file)? {
                texts.push((origin(file), text));
            }
        }
        let embedded = EMBEDDED.iter().find(|(name, _)| *name == stem);
        texts.extend(embedded.map(|(_, text)| (PersonaOrigin::Embedded, (*text).to_owned())));
        Ok(texts)
    }

    fn dirs(&self) -> impl Iterator<Item = (PathBuf, fn(PathBuf) -> PersonaOrigin)> {
        let workspace = workspace::upward(&self.cwd).into_iter().map(|dir| dir.join("agents"));
        let workspace =
            workspace.map(|dir| (dir, PersonaOrigin::Workspace as fn(PathBuf) -> PersonaOrigin));
        let user =
            self.home.clone().map(|dir| (dir, PersonaOrigin::User as fn(PathBuf) -> PersonaOrigin));
        workspace.chain(user)
    }

    fn unknown_persona(&self, name: &str) -> Failure {
        let known = self.list().unwrap_or_default();
        let similar = base::text::similar(name, known.iter().map(|persona| persona.name.as_str()));
        let failure = Failure::usage(format!("no such agent: `{name}`"));
        let failure = similar
            .iter()
            .take(3)
            .fold(failure, |failure, name| failure.hint(format!("g3 --agent {name}")));
        failure.hint("g3 --list-agents")
    }

    /// Returns the role of a persona: its text with the additions for the detected languages, and
    /// its write scope.
    pub fn role(&self, persona: &Persona) -> Result<AgentRole> {
        let mut text = persona.text.trim().to_owned();
        for language in language::detect(&self.cwd) {
            let addition = self.texts(&format!("{}.{language}", persona.name))?;
            if let Some((_, addition)) = addition.into_iter().next() {
                text.push_str(&format!("\n\n{}", addition.trim()));
            }
        }
        text.push_str(&commits(&persona.name));
        let root = workspace::root(&self.cwd);
        let write_scope = WriteScope::new(&persona.name, &root, &persona.may_write)?;
        Ok(AgentRole {
            name: Some(persona.name.clone()),
            identity: Identity::Persona(text),
            write_scope: Some(write_scope),
            reads_only: persona.reads_only,
            tool: None,
        })
    }
}

/// Returns the instructions about commits for every persona.
fn commits(name: &str) -> String {
    format!(
        "\n\nIf you commit: one commit for one thing, only when you are sure of it; leave the author \
         as git has it; and end the message's body with the line `Agent: {name}`."
    )
}

fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_allowed)
}

fn names_in(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(".md")?.to_owned())).collect()
}

fn parse_persona(name: &str, origin: PersonaOrigin, text: &str) -> Result<Persona> {
    let file = match &origin {
        PersonaOrigin::Workspace(file) | PersonaOrigin::User(file) => file.display().to_string(),
        PersonaOrigin::Embedded => format!("agents/{name}.md"),
    };
    let (FrontMatter { description, may_write, reads_only, name: declared_name }, body) =
        parse(text)
            .map_err(|error| Failure::usage(format!("invalid persona {file}")).because(error))?;
    if declared_name.is_some_and(|declared_name| declared_name != name) {
        return Err(Failure::usage(format!("invalid persona {file}"))
            .because(format!("its `name` is not `{name}`")));
    }
    let first = || body.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let description =
        description.unwrap_or_else(|| first().trim_start_matches('#').trim().to_owned());
    let may_write = vec![may_write.unwrap_or_else(|| vec!["**".to_owned()])];
    Ok(Persona { name: name.to_owned(), origin, description, may_write, reads_only, text: body })
}

/// Reads a file. Returns `None` if it does not exist or if a symbolic link leads out of the
/// directory.
fn read(dir: &Path, file: &Path) -> Result<Option<String>> {
    let (Ok(dir), Ok(path)) = (dir.canonicalize(), file.canonicalize()) else { return Ok(None) };
    if !path.starts_with(&dir) {
        return Ok(None);
    }
    let failed =
        |reason: String| Failure::usage(format!("cannot read {}", file.display())).because(reason);
    let bytes =
        base::files::read_start(&path, MAX_SIZE).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| failed(error.to_string()))?;
    Ok(Some(text))
}

/// Returns the personas as JSON.
pub fn json(all: &[Persona]) -> serde_json::Value {
    let to_json = |persona: &Persona| {
        let mut fields = BTreeMap::from([
            ("name", serde_json::json!(persona.name)),
            ("from", serde_json::json!(persona.origin.to_string())),
            ("description", serde_json::json!(persona.description)),
            ("may_write", serde_json::json!(persona.may_write.first())),
            ("tools", serde_json::json!(if persona.reads_only { "read-only" } else { "full" })),
        ]);
        if let PersonaOrigin::Workspace(path) | PersonaOrigin::User(path) = &persona.origin {
            fields.insert("path", serde_json::json!(path));
        }
        serde_json::json!(fields)
    };
    all.iter().map(to_json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_persona_is_valid() {
        let dir = tempfile::tempdir().unwrap();
        let places = PersonaDirs { cwd: dir.path().to_owned(), home: None, trust: None };
        let all = places.list().unwrap();
        assert_eq!(all.len(), 9);
        for persona in all {
            let lines = persona.text.lines().count();
            assert!((38..=90).contains(&lines), "{} has {lines} lines", persona.name);
            assert!(persona.text.starts_with(&format!("You are {}.", persona.name)));
            assert!(!persona.description.is_empty());
            places.role(&persona).unwrap();
        }
    }
}
