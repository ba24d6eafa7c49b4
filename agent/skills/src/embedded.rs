//! The built-in skills, embedded from `skills/` of the project.

use super::{Skill, SkillSource, parse};

/// A built-in skill.
#[derive(Debug)]
pub struct EmbeddedSkill {
    /// Its name.
    pub name: &'static str,
    /// Its `SKILL.md`.
    pub text: &'static str,
    /// Its programs: name and text. They are written to `.g3/bin` when the skill is first loaded.
    pub scripts: &'static [(&'static str, &'static str)],
}

/// The built-in skills.
static BUNDLES: &[EmbeddedSkill] = &[
    EmbeddedSkill {
        name: "code-review",
        text: include_str!("../../../skills/code-review/SKILL.md"),
        scripts: &[],
    },
    EmbeddedSkill {
        name: "git-worktrees",
        text: include_str!("../../../skills/git-worktrees/SKILL.md"),
        scripts: &[],
    },
    EmbeddedSkill {
        name: "requirements",
        text: include_str!("../../../skills/requirements/SKILL.md"),
        scripts: &[],
    },
    EmbeddedSkill {
        name: "research",
        text: include_str!("../../../skills/research/SKILL.md"),
        scripts: &[("g3-research", include_str!("../../../skills/research/g3-research"))],
    },
];

/// Returns the built-in skills.
pub(crate) fn skills() -> Vec<Skill> {
    let read = |bundle: &EmbeddedSkill| {
        Skill::new(parse::parse(bundle.text, bundle.name).0, SkillSource::Embedded)
    };
    BUNDLES.iter().map(read).collect()
}

/// Returns the built-in skill of this name.
pub fn bundle(name: &str) -> Option<&'static EmbeddedSkill> {
    BUNDLES.iter().find(|bundle| bundle.name == name)
}

/// Returns the text of a file of a built-in skill.
pub fn file(skill: &str, file: &str) -> Option<&'static str> {
    let bundle = bundle(skill)?;
    if file == "SKILL.md" {
        return Some(bundle.text);
    }
    bundle.scripts.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

/// Returns the text at a location as shown to the model, `<embedded:NAME>/FILE`.
pub fn text_at(location: &str) -> Option<&'static str> {
    let (skill, name) = location.strip_prefix("<embedded:")?.split_once(">/")?;
    file(skill, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_skills_are_valid() {
        for bundle in BUNDLES {
            let (parsed, faults) = parse::parse(bundle.text, bundle.name);
            assert_eq!(faults, [], "{}", bundle.name);
            assert!(parsed.body.lines().count() < 200, "{} is too long to load", bundle.name);
            assert!(parsed.license.is_some(), "{}", bundle.name);
        }
    }
}
