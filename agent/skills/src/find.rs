//! Finds skills. If two have the same name the later location wins, except that a repository's
//! skill does not replace one of the user's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::config::agent::SkillsConfig as Config;

use super::parse::{self, MOST, SkillFault};
use super::{Skill, SkillSet, SkillSource, embedded};
use base::workspace;
use gate::paths;

/// A directory of skills, and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillDir {
    /// The directory that contains a directory for each skill.
    pub dir: PathBuf,
    /// The directory that links must not leave, so that a repository does not decide what a
    /// provider reads.
    pub within: Option<PathBuf>,
}

/// The result for one directory.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillSearch {
    /// Its `SKILL.md`.
    pub file: PathBuf,
    /// The skill, unless it is invalid.
    pub skill: Option<Skill>,
    /// The faults found.
    pub faults: Vec<SkillFault>,
}

/// Maximum number of skills in a location.
const MOST_SKILLS: usize = 500;

/// Returns the locations for a working directory in increasing precedence.
pub fn places(config: &Config, cwd: &Path) -> Vec<SkillDir> {
    let users = |dir: PathBuf| SkillDir { dir, within: None };
    let home = base::user_dirs::home_dir();
    let mut places: Vec<SkillDir> =
        home.map(|home| users(home.join(".g3/skills"))).into_iter().collect();
    let extra = config.extra_paths.iter();
    places.extend(extra.map(|path| users(cwd.join(paths::expand_home(&path.to_string_lossy())))));
    let root = workspace::root(cwd);
    let own = |dir: PathBuf| SkillDir { dir, within: Some(root.clone()) };
    let upward = workspace::upward(cwd).into_iter().rev();
    places.extend(upward.flat_map(|dir| [own(dir.join(".g3/skills")), own(dir.join("skills"))]));
    places
}

/// Returns the skills for a working directory; none if skills are disabled.
pub fn shelf(config: &Config, cwd: &Path) -> SkillSet {
    if !config.enabled {
        return SkillSet::default();
    }
    let mut skills = embedded::skills();
    let mut notices = Vec::new();
    let mut users: BTreeMap<String, PathBuf> = BTreeMap::new();
    for place in places(config, cwd) {
        for found in in_place(&place) {
            let name = found.skill.as_ref().map(|skill| skill.name.clone()).unwrap_or_default();
            if place.within.is_some()
                && let Some(own) = users.get(&name)
            {
                notices.push(shadowed(&name, &found.file, own));
                continue;
            }
            if place.within.is_none() && found.skill.is_some() {
                users.insert(name, found.file.clone());
            }
            let fatal: Vec<&SkillFault> = found.faults.iter().filter(|fault| fault.fatal).collect();
            if let Some(fault) = fatal.first() {
                notices.push(left_out(&found.file, fault, fatal.len() - 1));
            }
            skills.extend(found.skill);
        }
    }
    SkillSet::of(skills, notices)
}

/// Returns the notice that a repository's skill is not used because the user has one of that name.
fn shadowed(name: &str, file: &Path, own: &Path) -> String {
    format!(
        "the skill `{name}` of this repository ({}) is not used: yours has the same name ({})",
        file.display(),
        own.display()
    )
}

fn left_out(file: &Path, fault: &SkillFault, more: usize) -> String {
    let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    format!(
        "the skill {} is left out: line {}, {}: {}{more}; `g3 skills check` tells all",
        file.display(),
        fault.line,
        fault.rule,
        fault.text
    )
}

/// Returns the skills of a location, sorted by directory name.
pub fn in_place(place: &SkillDir) -> Vec<SkillSearch> {
    let Ok(entries) = fs::read_dir(&place.dir) else { return Vec::new() };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.sort();
    let found = dirs.iter().filter_map(|dir| in_directory(dir, place.within.as_deref()));
    found.take(MOST_SKILLS).collect()
}

/// Returns the skill of a directory, or `None` if there is no `SKILL.md`.
pub fn in_directory(dir: &Path, within: Option<&Path>) -> Option<SkillSearch> {
    let names = ["SKILL.md", "skill.md"].iter().map(|name| dir.join(name));
    let file = names.into_iter().find(|file| fs::symlink_metadata(file).is_ok())?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = match read(&file, within, MOST + 1) {
        Ok(text) => text,
        Err(why) => {
            let fault = SkillFault { line: 1, rule: "unreadable", text: why, fatal: true };
            return Some(SkillSearch { file, skill: None, faults: vec![fault] });
        }
    };
    let (parsed, faults) = parse::parse(&text, &name);
    let usable = !faults.iter().any(|fault| fault.fatal);
    let within = within.map(Path::to_owned);
    let home = SkillSource::Directory { dir: dir.to_owned(), file: file.clone(), within };
    Some(SkillSearch { file, skill: usable.then(|| Skill::new(parsed, home)), faults })
}

/// Reads at most `most` bytes of a file of a skill.
pub fn read(file: &Path, within: Option<&Path>, most: usize) -> Result<String, String> {
    let real = file.canonicalize().map_err(|why| why.to_string())?;
    if within.is_some_and(|within| !paths::is_inside(&real, within)) {
        return Err("a symbolic link leads out of the repository".to_owned());
    }
    let bytes = workspace::read_regular(&real, most as u64).map_err(|why| why.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

impl Skill {
    /// Creates a skill from its parsed text and its location.
    pub fn new(parsed: Skill, home: SkillSource) -> Skill {
        Skill { home, ..parsed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, description: &str) {
        fs::create_dir_all(dir).unwrap();
        let name = dir.file_name().unwrap().to_str().unwrap();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n");
        fs::write(dir.join("SKILL.md"), text).unwrap();
    }

    #[test]
    fn the_users_skills_take_precedence_and_skills_are_sorted_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (extra, cwd) = (dir.path().join("extra"), dir.path().join("repo"));
        write(&extra.join("zebra"), "extra");
        write(&extra.join("ape"), "extra");
        write(&cwd.join("skills/ape"), "repository");
        write(&cwd.join(".g3/skills/bee"), "hidden");
        write(&cwd.join("skills/bee"), "repository");
        let config = Config { extra_paths: vec![extra], ..Config::default() };
        let shelf = shelf(&config, &cwd);
        let of = |name: &str| shelf.find(name).unwrap().description.as_str();
        assert_eq!((of("ape"), of("bee"), of("zebra")), ("extra", "repository", "extra"));
        let notice = &shelf.notices[0];
        assert!(notice.contains("the skill `ape` of this repository"), "{notice}");
        assert_eq!(shelf.notices.len(), 1);
        assert!(shelf.skills().is_sorted_by_key(|skill| skill.name.clone()));
        assert!(shelf.find("code-review").is_some(), "what is compiled in is there as well");
        let off = Config { enabled: false, ..config };
        assert!(super::shelf(&off, &cwd).skills().is_empty());
    }

    #[test]
    fn skills_are_found_from_a_subdirectory_and_the_nearest_wins() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        let deep = root.join("a/b");
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(&deep).unwrap();
        write(&root.join("skills/ape"), "root");
        write(&root.join("skills/bee"), "root");
        write(&root.join("a/skills/bee"), "near");
        let shelf = shelf(&Config::default(), &deep);
        let of = |name: &str| shelf.find(name).unwrap().description.as_str();
        assert_eq!((of("ape"), of("bee")), ("root", "near"));
    }

    #[test]
    fn a_link_out_of_the_repository_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("repo");
        fs::create_dir_all(cwd.join(".git")).unwrap();
        write(&dir.path().join("outside"), "outside");
        fs::create_dir_all(cwd.join("skills")).unwrap();
        std::os::unix::fs::symlink("../../outside", cwd.join("skills/outside")).unwrap();
        let shelf = shelf(&Config::default(), &cwd);
        assert!(shelf.find("outside").is_none());
        assert!(shelf.notices[0].contains("leads out of the repository"), "{:?}", shelf.notices);
    }
}
