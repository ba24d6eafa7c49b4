//! Tests of the examples in the documentation, executed as written.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{G3, Stage};
use crate::mcp_support::result;

/// Returns the code blocks of a page in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(file).expect("the page is there");
    let begin = format!("```{language}\n");
    let parts = text.split(&begin).skip(1).filter_map(|part| part.split("```").next());
    parts.map(str::to_owned).collect()
}

/// Creates a stage with these lines in its configuration, and `g3` on the path.
fn stage(replies: Vec<ScriptedReply>, lines: &str) -> Stage {
    let mut stage = Stage::new(replies);
    let model = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{model}\n{lines}"));
    let here = Path::new(G3).parent().unwrap().display();
    stage.env.set("PATH", format!("{here}:{}", std::env::var("PATH").unwrap()));
    stage
}

#[test]
fn the_documented_server_works() {
    let toml = blocks("mcp.md", "toml");
    let read = json!({"file_path": "shelf"});
    let write = json!({"file_path": "shelf", "content": ""});
    let replies = vec![
        ScriptedReply::call("mcp__library__read_file", read),
        ScriptedReply::call("mcp__library__write_file", write),
        ScriptedReply::says("done"),
    ];
    let stage = stage(replies, &toml[0]);
    let library = stage.env.home().join("library");
    std::fs::create_dir(&library).unwrap();
    std::fs::write(library.join("shelf"), "a book").unwrap();
    let tested = stage.g3(["mcp", "test", "library"]);
    for name in ["glob", "grep", "read_file"] {
        tested.output_contains(&format!("\nmcp__library__{name}  "));
    }
    tested.output_contains("and has 3 tools").ok();
    stage.g3(["read the shelf"]).ok();
    assert!(result(&stage, 1).contains("a book"), "{}", result(&stage, 1));
    assert!(result(&stage, 2).contains("no tool"), "{}", result(&stage, 2));
    assert_eq!(std::fs::read_to_string(library.join("shelf")).unwrap(), "a book");
}

#[test]
fn the_documented_rule_and_file_work() {
    let replies = vec![
        ScriptedReply::call(
            "mcp_call",
            json!({"server": "library", "tool": "glob", "args": {"pattern": "*.md"}}),
        ),
        ScriptedReply::says("done"),
    ];
    let stage = stage(replies, &blocks("mcp.md", "toml")[1]);
    stage.repo.write(".mcp.json", &blocks("mcp.md", "json")[0]);
    stage.repo.write("README.md", "");
    stage.g3(["mcp", "list"]).output_contains(".mcp.json is ignored").ok();
    for line in blocks("mcp.md", "sh")[0].lines() {
        let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
        assert_eq!(words[0], "g3");
        stage.g3(&words[1..]).ok();
    }
    stage.g3(["list pages"]).ok();
    assert!(result(&stage, 1).contains("README.md"), "{}", result(&stage, 1));
}

#[test]
fn the_documented_hooks_work() {
    let shell = |line: &str| ScriptedReply::call("shell", json!({ "command": line }));
    let replies = vec![
        shell("git push --force"),
        ScriptedReply::call("write_file", json!({"file_path": "new", "content": "x"})),
        ScriptedReply::says("done"),
        shell("touch fixed"),
        ScriptedReply::says("now it is done"),
    ];
    let stage = stage(replies, &blocks("hooks.md", "toml")[0]);
    stage.repo.write("check", "#!/bin/sh\n[ -e fixed ] || { echo it is not fixed; exit 1; }\n");
    let check = stage.repo.path().join("check");
    std::fs::set_permissions(check, std::fs::Permissions::from_mode(0o755)).unwrap();
    let subject = stage.repo.git(["log", "--oneline", "-3"]);
    let out = stage.g3(["work"]);
    out.ok();
    let asked = stage.asked();
    let hash = subject.split(' ').next().unwrap();
    assert!(asked[0].first_user().contains(hash), "{}", asked[0].first_user());
    assert_eq!(result(&stage, 1), "denied by a hook: no force pushes here");
    assert!(result(&stage, 2).contains("[note of a hook: "), "{}", result(&stage, 2));
    assert!(result(&stage, 2).contains("?? new"), "{}", result(&stage, 2));
    assert!(asked[3].last().contains("it is not fixed"), "{}", asked[3].last());
    assert_eq!(asked.len(), 5, "with the check green it is done");
}
