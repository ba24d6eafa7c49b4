//! `studio run --issue`: tasks from GitHub, GitLab and Markdown files; parameters of task files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fixtures::Scene;

/// Creates a program that writes its arguments to a file and prints this.
fn program(scene: &mut Scene, name: &str, output: &str) {
    let directory = scene.env.home().join("programs");
    fs::create_dir_all(&directory).expect("the home is writable");
    fs::write(directory.join("output"), output).expect("the home is writable");
    let here = directory.display();
    let script = format!("#!/bin/sh\necho \"{name} $*\" > {here}/called\ncat {here}/output\n");
    fs::write(directory.join(name), script).expect("the home is writable");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.join(name), executable).expect("our own file");
    let path = std::env::var("PATH").unwrap_or_default();
    scene.env.set("PATH", format!("{here}:{path}"));
}

fn called(scene: &Scene) -> String {
    fs::read_to_string(scene.env.home().join("programs/called")).unwrap_or_default()
}

#[test]
fn an_issue_of_github_becomes_a_task() {
    let mut scene = Scene::new();
    let issue =
        r#"{"number":42,"title":"write a 1","body":"write b 2","url":"https://example.org/i/42"}"#;
    program(&mut scene, "gh", issue);
    let id = scene.exec(["--issue", "#42"]);
    assert_eq!(called(&scene).trim(), "gh issue view 42 --json number,title,body,url");
    let task = scene.await_state(&id, "ready")["task"].clone();
    assert_eq!(task, "write a 1\n\nwrite b 2\n\nIssue: https://example.org/i/42");
    assert_eq!(scene.worktree(&id).read("b"), "2\n");
}

#[test]
fn an_issue_of_gitlab_is_read_by_its_own_program() {
    let mut scene = Scene::new();
    let issue = r#"{"iid":7,"title":"write a 1","description":"","web_url":"https://gitlab.com/x/y/-/issues/7"}"#;
    program(&mut scene, "glab", issue);
    let url = "https://gitlab.com/x/y/-/issues/7";
    let id = scene.exec(["--issue", url]);
    assert_eq!(called(&scene).trim(), format!("glab issue view {url} --output json"));
    assert_eq!(scene.status(&id)["task"], format!("write a 1\n\nIssue: {url}"));
}

#[test]
fn a_program_of_the_repository_does_not_read_issues() {
    let mut scene = Scene::new();
    program(&mut scene, "gh", r#"{"title":"write a 1"}"#);
    let programs = scene.env.home().join("programs");
    let own = scene.repo.path().join("bin");
    fs::rename(&programs, &own).expect("ours");
    fs::create_dir(&programs).expect("ours");
    let path = std::env::var("PATH").unwrap_or_default();
    for entry in ["bin".to_owned(), own.display().to_string()] {
        scene.env.set("PATH", format!("{entry}:{path}"));
        scene.studio(["run", "--issue", "42"]).exits(2).output_contains("`gh` was not found");
        assert_eq!(called(&scene), "");
    }
}

#[test]
fn a_markdown_file_is_an_issue_and_errors_say_what_is_missing() {
    let mut scene = Scene::new();
    scene.repo.write("issue.md", "# write a 1\n\nwrite b 2\n");
    let id = scene.exec(["--issue", "issue.md"]);
    assert_eq!(scene.status(&id)["task"], "write a 1\n\nwrite b 2");
    scene.studio(["run", "--issue", "missing.md"]).exits(2).output_contains("missing.md");
    program(&mut scene, "gh", "not json");
    scene.studio(["run", "--issue", "42"]).exits(1).output_contains("`gh` cannot read issue 42");
}

#[test]
fn parameters_of_a_task_file_are_replaced() {
    let scene = Scene::new();
    scene.repo.write("tasks.md", "- write {{file}} {{text}}\n");
    let undefined = scene.studio(["run", "--tasks", "tasks.md", "--set", "file=a"]);
    undefined.exits(2).output_contains("tasks.md:1: parameter `text` has no value");
    let unused =
        ["run", "--tasks", "tasks.md", "--set", "file=a", "--set", "text=1", "--set", "x=1"];
    scene.studio(unused).exits(2).output_contains("it has no parameter `x`");
    let ran = ["run", "--tasks", "tasks.md", "--set", "file=a", "--set", "text=b=c"];
    scene.studio(ran).exits(0);
    let sessions = scene.studio(["list", "--json"]).json();
    assert_eq!(sessions["sessions"][0]["task"], "write a b=c");
    scene.studio(["run", "--set", "a=b", "x"]).exits(2);
}
