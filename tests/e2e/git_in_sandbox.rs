//! git in the sandbox of a session: an agent has full use of its own repository, and no access to
//! the user's.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

/// A model that makes one shell call and then ends.
fn shell(line: &str) -> Script {
    let call = ScriptedReply::call("shell", json!({"command": line}));
    Script::by_task([("work".to_owned(), vec![call, ScriptedReply::says("Done.")])])
        .commit_message("Do the work")
}

#[test]
fn a_sandboxed_agent_can_commit_stash_rebase_and_gc() {
    let line = "set -ex; git checkout -q -b side; echo one > one; git add one; git commit -qm one; \
                git checkout -q -; echo two > two; git add two; git commit -qm two; \
                git rebase -q side; echo three >> two; git stash; git stash list; git stash pop; \
                git tag here; git gc -q; git fsck; git commit -qam three; git diff main --stat";
    let scene = Scene::new("anthropic", shell(line));

    scene.studio(["run", "work"]).exits(0);

    let results = scene.questions().last().expect("asked").tool_results();
    let (_, text) = results.last().expect("the shell's result");
    let session = scene.session("work");
    assert_eq!(session["state"], "ready", "{session:#}\n{text}");
    assert_eq!(session["commits"], 3, "{session:#}\n{text}");
    scene.studio(["accept", &scene.id("work")]).exits(0);
    assert_eq!(scene.repo.read("two"), "two\nthree\n");
    scene.repo.is_sound();
}

#[test]
fn a_sandboxed_agent_cannot_write_outside_its_session() {
    let scene = Scene::new("anthropic", two_sessions());
    scene.repo.write("private.txt", "mine");
    scene.studio(["run", "be the victim"]).exits(0);
    let victim = scene.id("victim");
    let before = scene.repo.everything();

    scene.studio(["run", "work"]).exits(0);

    let after = scene.repo.everything();
    for name in ["private.txt", "README.md", "<HEAD>", "<index>"] {
        assert_eq!(before.get(name), after.get(name), "{name} was changed");
    }
    for path in ["hacked", ".git/hooks/post-checkout", ".git/objects/hacked"] {
        assert!(!scene.repo.path().join(path).exists(), "{path} was written");
    }
    let theirs = scene.repo.worktrees().join(&victim).join("hacked");
    assert!(!theirs.exists(), "another session was written");
    assert!(!scene.env.home().join("hacked").exists(), "the home was written");
    let branch = format!("refs/heads/studio/{victim}");
    assert_eq!(scene.session("victim")["state"], "ready", "{branch}");
}

/// A model for two sessions: one exists, the other tries to write outside its own paths.
fn two_sessions() -> Script {
    let reach = "top=$(cd ../../repo && pwd); for f in $top/hacked $top/private.txt $top/.git/config \
                 $top/.git/hooks/post-checkout $top/.git/objects/hacked $top.worktrees/*/hacked \
                 $HOME/hacked; do echo x >> $f; done; for d in $top.worktrees/*; do echo x > \
                 $d/hacked; done; rm -f hacked; git -C $top commit -qam stolen; echo mine > mine";
    let write = ScriptedReply::call("write_file", json!({"file_path": "a", "content": "a"}));
    let call = ScriptedReply::call("shell", json!({"command": reach}));
    Script::by_task([
        ("victim".to_owned(), vec![write, ScriptedReply::says("Done.")]),
        ("work".to_owned(), vec![call, ScriptedReply::says("Done.")]),
    ])
}
