//! Tests of front matter: fields and faults.

use proptest::prelude::*;

use super::*;

/// Returns the violated rules of a text with their lines.
fn broken(text: &str) -> Vec<(usize, &'static str)> {
    parse(text, "demo").1.into_iter().map(|fault| (fault.line, fault.rule)).collect()
}

fn with(front: &str) -> String {
    format!("---\n{front}\n---\nDo it.\n")
}

#[test]
fn every_field_is_parsed() {
    let text = "\u{feff}---\r\nname: demo\r\ndescription: >-\r\n  Makes \r\n  demos\r\nlicense: MIT\r\n\
                compatibility: needs git\r\nmetadata:\r\n  author: us\r\n  version: 1.0\r\n\
                allowed-tools: Read Bash(git add:*)\r\n---\r\n# Steps\r\n\r\n---\r\nend\r\n";
    let (parsed, faults) = parse(text, "demo");
    assert_eq!(faults, []);
    assert_eq!(parsed.description, "Makes  demos");
    assert_eq!(parsed.license.as_deref(), Some("MIT"));
    assert_eq!(parsed.compatibility.as_deref(), Some("needs git"));
    assert_eq!(parsed.metadata["version"], "1.0");
    let names: Vec<String> = parsed.allowed.unwrap().into_iter().map(|entry| entry.text).collect();
    assert_eq!(names, ["Read", "Bash(git add:*)"]);
    assert!(parsed.body.starts_with("# Steps") && parsed.body.ends_with("end"));
}

#[test]
fn faults_are_reported_by_line_and_rule() {
    let long = |n| "x".repeat(n);
    let cases: &[(String, &[(usize, &str)])] = &[
        ("Do it.\n".into(), &[(1, "front-matter")]),
        ("---\nname: demo\n".into(), &[(1, "front-matter")]),
        (with("name: demo\ndescription: d"), &[]),
        (with("description: d"), &[(1, "name-missing")]),
        (with("name: demo"), &[(1, "description-missing")]),
        (with("name: demo\ndescription:"), &[(3, "description-missing")]),
        (with("description: d\nname: Demo"), &[(3, "name-form")]),
        (with("name: de_mo\ndescription: d"), &[(2, "name-form")]),
        (with("name: -demo\ndescription: d"), &[(2, "name-hyphen")]),
        (with("name: de--mo\ndescription: d"), &[(2, "name-hyphen")]),
        (with("name: other\ndescription: d"), &[(2, "name-directory")]),
        (with("name: 12\ndescription: d"), &[(2, "name-form")]),
        (with("name: demo\ndescription: [d]"), &[(3, "not-text")]),
        (
            with(&format!("name: {}\ndescription: d", long(65))),
            &[(2, "name-length"), (2, "name-directory")],
        ),
        (with(&format!("name: demo\ndescription: {}", long(1025))), &[(3, "description-length")]),
        (with(&format!("name: demo\ndescription: {}", long(1024))), &[]),
        (
            with(&format!("name: demo\ndescription: d\ncompatibility: {}", long(501))),
            &[(4, "compatibility-length")],
        ),
        (with("name: demo\ndescription: d\nmetadata: x"), &[(4, "metadata")]),
        (with("name: demo\ndescription: d\nallowed-tools: Bash(git"), &[(4, "allowed-tools")]),
        (with("name: demo\ndescription: d\nversion: 3"), &[(4, "key-unknown")]),
        (with("- a list"), &[(2, "front-matter")]),
        ("---\nname: demo\ndescription: d\n---\n \n".into(), &[(5, "body-missing")]),
    ];
    for (text, expected) in cases {
        assert_eq!(broken(text), *expected, "{text}");
    }
    let (_, faults) = parse(&with("name: demo\ndescription: Use when: always"), "demo");
    assert_eq!((faults[0].rule, faults[0].line), ("yaml", 3), "{faults:?}");
    assert_eq!(faults.len(), 1, "what could not be read is not called missing: {faults:?}");
    assert_eq!(broken(&with("name: demo\nname: demo\ndescription: d"))[0].1, "yaml");
}

#[test]
fn an_unknown_key_is_reported_and_the_skill_is_kept() {
    let (_, faults) = parse(&with("name: demo\ndescription: d\nversion: 3"), "demo");
    assert!(faults.iter().all(|fault| !fault.fatal), "{faults:?}");
}

proptest! {
    #[test]
    fn no_text_panics_the_parser(text in "(---\n)?[ -~\n\t\u{e4}]{0,200}(\n---\n)?.{0,20}") {
        let (parsed, faults) = parse(&text, "demo");
        let usable = !faults.iter().any(|fault| fault.fatal);
        prop_assert!(!usable || parsed.name == "demo" && !parsed.description.is_empty());
        let lines = text.lines().count().max(1);
        prop_assert!(faults.iter().all(|fault| (1..=lines + 1).contains(&fault.line)));
    }
}
