//! The skills that are compiled in, so that g3 has them wherever it runs. Their texts lie in
//! `skills/` of the project.

use super::{Skill, SkillSource, parse};

/// A skill that is compiled in.
#[derive(Debug)]
pub struct EmbeddedSkill {
    /// Its name.
    pub name: &'static str,
    /// Its `SKILL.md`.
    pub text: &'static str,
    /// Its programs: name and text. They are put into `.g3/bin` when the skill is first loaded.
    pub scripts: &'static [(&'static str, &'static str)],
}

/// Every skill that is compiled in.
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

/// The skills that are compiled in.
pub(crate) fn skills() -> Vec<Skill> {
    let read = |bundle: &EmbeddedSkill| {
        Skill::new(parse::parse(bundle.text, bundle.name).0, SkillSource::Embedded)
    };
    BUNDLES.iter().map(read).collect()
}

/// What is compiled in under this name.
pub fn bundle(name: &str) -> Option<&'static EmbeddedSkill> {
    BUNDLES.iter().find(|bundle| bundle.name == name)
}

/// The text of a file of a skill that is compiled in.
pub fn file(skill: &str, file: &str) -> Option<&'static str> {
    let bundle = bundle(skill)?;
    if file == "SKILL.md" {
        return Some(bundle.text);
    }
    bundle.scripts.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

/// The text at a location as the model is told it, `<embedded:NAME>/FILE`.
pub fn at_location(location: &str) -> Option<&'static str> {
    let (skill, name) = location.strip_prefix("<embedded:")?.split_once(">/")?;
    file(skill, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_breaks_no_rule() {
        for bundle in BUNDLES {
            let (parsed, faults) = parse::parse(bundle.text, bundle.name);
            assert_eq!(faults, [], "{}", bundle.name);
            assert!(parsed.body.lines().count() < 200, "{} is too long to load", bundle.name);
            assert!(parsed.license.is_some(), "{}", bundle.name);
        }
    }
}
