//! Fuzz target: the text of a SKILL.md.

/// A skill has a fault with a line of its text, or a valid name and description; no alias or
/// anchor makes it larger than its text.
pub fn skill_front_matter(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (skill, faults) = crate::parse::parse(&text, "demo");
    let lines = text.lines().count().max(1);
    assert!(faults.iter().all(|fault| (1..=lines + 1).contains(&fault.line)), "{faults:?}");
    let metadata: usize = skill.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    let length = metadata + skill.description.len() + skill.body.len() + skill.name.len();
    assert!(length <= 16 * text.len() + 4096, "{length} bytes of {}", text.len());
    if !faults.iter().any(|fault| fault.fatal) {
        assert_eq!(skill.name, "demo");
        assert!(!skill.description.trim().is_empty());
        assert!(!skill.body.is_empty());
    }
}

#[cfg(test)]
mod short_runs {
    #[test]
    fn any_skill_is_read_or_has_a_fault_with_its_line() {
        short_fuzz::run("skill_front_matter", super::skill_front_matter);
    }
}
