//! Tests of the restrictions of active skills.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use tools::context::ToolContext;
use tools::dispatch;
use tools::profile::Profile;
use tools::registry::Registry;

use skills::{SkillSet, parse};

static REGISTRY: Registry = Registry::new(&[crate::TOOLS]);

fn skill(name: &str, allowed: Option<&str>) -> Skill {
    let allowed = allowed.map(|list| format!("allowed-tools: {list}\n")).unwrap_or_default();
    let text = format!("---\nname: {name}\ndescription: d\n{allowed}---\nBody\n");
    let (parsed, faults) = parse::parse(&text, name);
    assert_eq!(faults, []);
    Skill::new(parsed, SkillSource::Embedded)
}

/// Creates a context with one skill of each kind.
fn place(dir: &Path) -> ToolContext {
    let skills = vec![
        skill("free", None),
        skill("git-only", Some("Bash(git log:*) Bash(git show:*)")),
        skill("reader", Some("Read(src/**), Grep")),
        skill("nothing", Some("\"\"")),
        skill("editor", Some("Edit")),
    ];
    let shelf = Arc::new(SkillSet::new(skills, Vec::new()));
    ToolContext { skills: shelf, ..ToolContext::quiet(&REGISTRY, dir, dir.join("s")) }
}

#[tokio::test]
async fn only_tools_that_an_active_skill_allows_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(dir.join("src")).unwrap();
    std::fs::write(dir.join("src/a.txt"), "text\n").unwrap();
    std::fs::write(dir.join("b.txt"), "text\n").unwrap();
    let at = place(&dir);
    let call = async |name: &str, args: Value| dispatch::run(Profile::G3, name, &args, &at).await;
    let load = async |name: &str| assert!(call("skill", json!({ "name": name })).await.ok);
    let runs = async |line: &str| call("shell", json!({ "command": line })).await;
    let refused = |outcome: &ToolOutput| outcome.text.starts_with("refused: while the skill");

    load("free").await;
    assert!(runs("true").await.ok, "a skill that names no tools restricts none");
    load("git-only").await;
    assert!(!refused(&runs("git log --oneline").await));
    for line in ["true", "git push", "git log; rm x", "git log > b.txt", "git show $(rm x)"] {
        let outcome = runs(line).await;
        assert!(refused(&outcome), "{line}: {}", outcome.text);
        assert_eq!(outcome.error_kind, Some(ToolErrorKind::Denied));
    }
    assert!(refused(&call("read_file", json!({ "file_path": "b.txt" })).await));
    load("reader").await;
    assert!(call("read_file", json!({ "file_path": "src/a.txt" })).await.ok, "of two, each allows");
    assert!(refused(&call("read_file", json!({ "file_path": "b.txt" })).await));
    assert!(!refused(&call("grep", json!({ "pattern": "x" })).await));
    assert!(!refused(&runs("git log").await));

    at.skills.begin_turn();
    assert!(runs("true").await.ok, "the user's next message ends it");
    load("nothing").await;
    assert!(refused(&call("todo_read", json!({})).await));
    at.skills.begin_turn();
    load("editor").await;
    let diff = json!({ "file_path": "b.txt", "diff": "@@\n-text\n+word\n" });
    assert!(call("str_replace", diff).await.ok, "our tool for what others call Edit");
    assert!(refused(&call("write_file", json!({ "file_path": "b.txt", "content": "" })).await));
}

#[tokio::test]
async fn calls_allowed_by_a_skill_still_pass_through_the_gate() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let at = place(&dir);
    dispatch::run(Profile::G3, "skill", &json!({ "name": "editor" }), &at).await;
    let diff = json!({ "file_path": "/etc/hosts", "diff": "@@\n-a\n+b\n" });
    let outcome = dispatch::run(Profile::G3, "str_replace", &diff, &at).await;
    assert!(outcome.text.contains("no terminal to ask on"), "{}", outcome.text);
}
