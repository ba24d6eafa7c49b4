//! Finds skills. If two have the same name the later location wins, except that a repository's
//! skill does not replace one of the user's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::config::agent::SkillsConfig as Config;

use super::parse::{self, MAX_SIZE, SkillFault};
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
    pub boundary: Option<PathBuf>,
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
const MAX_SKILLS: usize = 500;

/// Returns the locations for a working directory in increasing precedence.
pub fn skill_dirs(config: &Config, cwd: &Path) -> Vec<SkillDir> {
    let user_dir = |dir: PathBuf| SkillDir { dir, boundary: None };
    let home = base::user_dirs::home_dir();
    let mut dirs: Vec<SkillDir> =
        home.map(|home| user_dir(home.join(".g3/skills"))).into_iter().collect();
    let extra = config.extra_paths.iter();
    dirs.extend(extra.map(|path| user_dir(cwd.join(paths::expand_home(&path.to_string_lossy())))));
    let root = workspace::root(cwd);
    let repo_dir = |dir: PathBuf| SkillDir { dir, boundary: Some(root.clone()) };
    let upward = workspace::upward(cwd).into_iter().rev();
    dirs.extend(
        upward.flat_map(|dir| [repo_dir(dir.join(".g3/skills")), repo_dir(dir.join("skills"))]),
    );
    dirs
}

/// Returns the skills for a working directory; none if skills are disabled.
pub fn load(config: &Config, cwd: &Path) -> SkillSet {
    if !config.enabled {
        return SkillSet::default();
    }
    let mut skills = embedded::skills();
    let mut notices = Vec::new();
    let mut user_skills: BTreeMap<String, PathBuf> = BTreeMap::new();
    for dir in skill_dirs(config, cwd) {
        for search in find_in(&dir) {
            let name = search.skill.as_ref().map(|skill| skill.name.clone()).unwrap_or_default();
            if dir.boundary.is_some()
                && let Some(own_file) = user_skills.get(&name)
            {
                notices.push(shadowed_notice(&name, &search.file, own_file));
                continue;
            }
            if dir.boundary.is_none() && search.skill.is_some() {
                user_skills.insert(name, search.file.clone());
            }
            let fatal: Vec<&SkillFault> =
                search.faults.iter().filter(|fault| fault.fatal).collect();
            if let Some(fault) = fatal.first() {
                notices.push(invalid_notice(&search.file, fault, fatal.len() - 1));
            }
            skills.extend(search.skill);
        }
    }
    SkillSet::new(skills, notices)
}

/// Returns the notice that a repository's skill is not used because the user has one of that name.
fn shadowed_notice(name: &str, file: &Path, own_file: &Path) -> String {
    format!(
        "the skill `{name}` of this repository ({}) is not used: yours has the same name ({})",
        file.display(),
        own_file.display()
    )
}

fn invalid_notice(file: &Path, fault: &SkillFault, more: usize) -> String {
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
pub fn find_in(skill_dir: &SkillDir) -> Vec<SkillSearch> {
    let Ok(entries) = fs::read_dir(&skill_dir.dir) else { return Vec::new() };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.sort();
    let searches = dirs.iter().filter_map(|dir| find_skill(dir, skill_dir.boundary.as_deref()));
    searches.take(MAX_SKILLS).collect()
}

/// Returns the skill of a directory, or `None` if there is no `SKILL.md`.
pub fn find_skill(dir: &Path, boundary: Option<&Path>) -> Option<SkillSearch> {
    let names = ["SKILL.md", "skill.md"].iter().map(|name| dir.join(name));
    let file = names.into_iter().find(|file| fs::symlink_metadata(file).is_ok())?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = match read(&file, boundary, MAX_SIZE + 1) {
        Ok(text) => text,
        Err(error) => {
            let fault = SkillFault { line: 1, rule: "unreadable", text: error, fatal: true };
            return Some(SkillSearch { file, skill: None, faults: vec![fault] });
        }
    };
    let (parsed, faults) = parse::parse(&text, &name);
    let is_usable = !faults.iter().any(|fault| fault.fatal);
    let boundary = boundary.map(Path::to_owned);
    let source = SkillSource::Directory { dir: dir.to_owned(), file: file.clone(), boundary };
    Some(SkillSearch { file, skill: is_usable.then(|| Skill::new(parsed, source)), faults })
}

/// Reads at most `max_bytes` bytes of a file of a skill.
pub fn read(file: &Path, boundary: Option<&Path>, max_bytes: usize) -> Result<String, String> {
    let real = file.canonicalize().map_err(|error| error.to_string())?;
    if boundary.is_some_and(|boundary| !paths::is_inside(&real, boundary)) {
        return Err("a symbolic link leads out of the repository".to_owned());
    }
    let bytes =
        base::files::read_start(&real, max_bytes as u64).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

impl Skill {
    /// Creates a skill from its parsed text and its location.
    pub fn new(parsed: Skill, source: SkillSource) -> Skill {
        Skill { source, ..parsed }
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
        let shelf = load(&config, &cwd);
        let of = |name: &str| shelf.find(name).unwrap().description.as_str();
        assert_eq!((of("ape"), of("bee"), of("zebra")), ("extra", "repository", "extra"));
        let notice = &shelf.notices[0];
        assert!(notice.contains("the skill `ape` of this repository"), "{notice}");
        assert_eq!(shelf.notices.len(), 1);
        assert!(shelf.skills().is_sorted_by_key(|skill| skill.name.clone()));
        assert!(shelf.find("code-review").is_some(), "what is compiled in is there as well");
        let off = Config { enabled: false, ..config };
        assert!(super::load(&off, &cwd).skills().is_empty());
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
        let shelf = load(&Config::default(), &deep);
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
        let shelf = load(&Config::default(), &cwd);
        assert!(shelf.find("outside").is_none());
        assert!(shelf.notices[0].contains("leads out of the repository"), "{:?}", shelf.notices);
    }
}
