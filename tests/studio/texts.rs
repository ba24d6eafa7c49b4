//! The texts of `studio`, command by command: every help page, listing, report and kind of error.
//! One snapshot per command; `INSTA_UPDATE=always` accepts a changed text.

use serde_json::json;
use testkit::env::{CommandRun, until};
use testkit::repo::Repo;
use testkit::transcript::Transcript;

use crate::coach;
use crate::fixtures::{Scene, studio};

/// Commands in a scene and their output, at a width of 80 columns.
struct Typed<'a> {
    scene: &'a Scene,
    transcript: Transcript,
}

impl Typed<'_> {
    fn new(scene: &Scene) -> Typed<'_> {
        Typed { scene, transcript: Transcript::of(&scene.env) }
    }

    fn types<const N: usize>(&mut self, args: [&str; N]) -> CommandRun {
        self.types_at("80", &args)
    }

    fn types_at(&mut self, columns: &str, args: &[&str]) -> CommandRun {
        let job = self.scene.env.command(studio(), self.scene.repo.path()).env("COLUMNS", columns);
        let ran = self.scene.env.run_command(job.args(args));
        self.transcript.add("studio", args, &ran);
        ran
    }

    fn each<const N: usize>(&mut self, lines: [&str; N]) {
        for line in lines {
            let args: Vec<&str> = line.split(' ').collect();
            self.types_at("80", &args);
        }
    }

    fn text(&self) -> String {
        self.transcript.text()
    }
}

/// Creates a session whose agent has written `file` and keeps working as long as the test needs it.
fn working(scene: &Scene, file: &str) -> String {
    let id = scene.exec([&format!("write {file} 1; gate go")]);
    scene.await_state(&id, "working");
    until("its file", || scene.worktree(&id).path().join(file).exists().then_some(()));
    id
}

/// Creates a session whose agent changed nothing.
fn empty(scene: &Scene) -> String {
    let id = scene.exec(["nothing"]);
    scene.await_state(&id, "empty");
    scene.await_free(&id);
    id
}

/// Creates a session that failed at a check.
fn failed(scene: &Scene, task: &str, check: &str) -> String {
    let id = scene.exec([task, "--check", check]);
    until("the session to fail", || (scene.status(&id)["state"] == "failed").then_some(()));
    scene.await_free(&id);
    id
}

/// Creates a ready session that no process uses.
fn ready(scene: &Scene, task: &str) -> String {
    let id = scene.ready(task);
    scene.await_free(&id);
    id
}

/// Returns the subcommands that a help page lists.
fn subcommands(help: &str) -> Vec<String> {
    let rest = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let lines = rest.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn help_of_every_command() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    let mut commands = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        args.push("--help");
        let page = typed.types_at("80", &args);
        let below = subcommands(page.ok());
        assert!(!command.is_empty() || below.len() > 20, "{page}");
        commands.extend(below.into_iter().rev().map(|name| {
            let mut longer = command.clone();
            longer.push(name);
            longer
        }));
    }
    typed.types_at("200", &["--help"]);
    insta::assert_snapshot!("help", typed.text());
}

#[test]
fn a_day_from_the_first_task_to_the_undone_landing() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    let id = "write-hello-txt-hi";
    typed.types(["list"]);
    typed.types(["run", "write hello.txt hi"]);
    scene.await_free(id);
    typed.types(["list"]);
    typed.types(["status", id]);
    typed.types(["explain", id]);
    typed.types(["diff", id]);
    typed.types(["diff", id, "--stat"]);
    typed.types(["logs", id]);
    typed.types(["accept", id, "-m", "Say hi"]);
    typed.types(["list"]);
    typed.types(["list", "--all"]);
    typed.types(["undo"]);
    typed.types(["discard", id]);
    typed.types(["operations"]);
    typed.types(["doctor"]);
    typed.types(["gc", "--dry-run"]);
    insta::assert_snapshot!("a_day", typed.text());
}

#[test]
fn run_and_exec() {
    let scene = Scene::new();
    scene.repo.write("t.toml", "[[task]]\nid = 'one'\ntext = 'write one 1'\nafter = ['two']\n");
    scene.repo.write("list.md", "- write a 1\n- write b 1\n  after: 1\n");
    let mut typed = Typed::new(&scene);
    typed.types(["run", "write a 1", "--check", "test -e a"]);
    typed.types(["run", "write a 1", "--check", "echo seen; exit 3"]);
    typed.each(["run nothing"]);
    typed.types(["run", "exit 3"]);
    typed.types(["run", "--accept", "write hello.txt hi"]);
    typed.types(["run", "--dry-run", "write a 1", "write b 2"]);
    typed.types(["run", "--dry-run", "write a 1", "--json"]);
    typed.types(["run", "--detach", "write b 1"]);
    typed.each([
        "run",
        "exec",
        "run x --agent nobody",
        "run x --agent g3 --persona nope",
        "run x --agent g3 --persona No/pe",
        "run x --persona hopper",
        "run x --base nowhere",
        "run x --budget -1",
        "run x --max-turns many",
        "run x --timeout 0",
        "run x -j 0",
        "run x --profile wrong --agent g3",
        "run x --sandbox maybe",
        "run x --model m",
        "run x --events",
        "run x --tasks missing.toml",
        "run --tasks missing.toml",
        "run --tasks t.toml",
        "run --tasks list.md --requirements r.md",
        "run --requirements r.md",
        "run --check= x",
        "run x --wrong",
    ]);
    typed.types(["run", " "]);
    insta::assert_snapshot!("run", typed.text());
}

#[test]
fn run_with_tasks_that_wait() {
    let scene = Scene::new();
    let text = "- exit 1\n  id: a\n- write b 1\n  after: a\n- write c 1\n";
    scene.repo.write("t.md", text);
    let mut typed = Typed::new(&scene);
    typed.each(["run --accept -j 1 --tasks t.md"]);
    let sessions = scene.studio(["list", "--all", "--json"]).json()["sessions"].clone();
    for session in sessions.as_array().expect("a list") {
        scene.await_free(session["id"].as_str().expect("an id"));
    }
    typed.each(["list", "status @latest", "explain @latest"]);
    for text in [
        "[[task]]\nid = 'a'\ntext = 'x'\nafter = ['b']\n[[task]]\nid = 'b'\ntext = 'x'\nafter = ['a']\n",
        "[[task]]\nid = 'a'\ntext = 'x'\n[[task]]\nid = 'a'\ntext = 'y'\n",
        "[[task]]\nid = 'a'\n",
        "[[task]]\nid = 'a'\ntext = 'x'\nwrong = 1\n",
        "[[task]\n",
        "",
    ] {
        scene.repo.write("wrong.toml", text);
        typed.each(["run --tasks wrong.toml"]);
    }
    insta::assert_snapshot!("run_tasks", typed.text());
}

#[test]
fn run_with_requirements() {
    let scene = Scene::new();
    scene.configure_g3();
    scene.repo.write("r.md", "# Two files\n- make one.txt\n- R7: make two.txt\n");
    let mut typed = Typed::new(&scene);
    typed.each([
        "run --agent g3 --requirements r.md --dry-run",
        "run --agent g3 --requirements missing.md",
        "run --agent fake --requirements r.md",
        "run --agent g3 --persona scout --requirements r.md",
    ]);
    for text in ["\n", "- R1: a\n\n- R2: b\n- R1: c\n", "{{CURRENT REQUIREMENTS}}\n"] {
        scene.repo.write("r.md", text);
        typed.each(["run --agent g3 --requirements r.md"]);
    }
    insta::assert_snapshot!("run_requirements", typed.text());
}

#[test]
fn list_status_explain_and_logs() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    typed.each(["list", "list --all", "status", "explain", "logs", "status nope", "logs nope"]);
    let first = ready(&scene, "write hello.txt hi; commit say hi; write more.txt later");
    let red = failed(&scene, "write red.txt 1", "echo wrong >&2; exit 7");
    let judged = [("R1", "met", "a:1"), ("R2", "unmet", "no b")];
    let judged = coach::run(&judged, true);
    let coached = scene.exec(["--agent", "talk", &format!("say hello; write a 1; {judged}")]);
    scene.await_state(&coached, "ready");
    scene.await_free(&coached);
    let empty = empty(&scene);
    let asking = scene.exec(["--agent", "talk", "--ask", "ask one"]);
    scene.await_state(&asking, "waiting");
    let stopped = working(&scene, "a");
    for id in [&stopped, &asking] {
        typed.types(["status", id]);
        typed.types(["explain", id]);
    }
    scene.studio(["stop", &stopped]).exits(0);
    scene.await_free(&stopped);
    for columns in ["80", "200"] {
        typed.types_at(columns, &["list"]);
        typed.types_at(columns, &["status", &first]);
    }
    typed.each(["status", "status write", "status @latest", "status @wrong"]);
    for id in [&first, &red, &coached, &empty, &stopped] {
        typed.types(["status", id]);
        typed.types(["explain", id]);
        typed.types(["logs", id]);
    }
    typed.types(["logs", &coached, "--raw"]);
    let spoken = ready(&scene, "outcry hello; write a 1");
    typed.types(["logs", &spoken, "--raw"]);
    insta::assert_snapshot!("list", typed.text());
    scene.studio(["stop", &asking]).exits(0);
}

#[test]
fn send_answer_stop_resume_and_shell() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    let asking = scene.exec(["--agent", "talk", "--ask", "askall one | two"]);
    until("two requests", || {
        let line = |line: &serde_json::Value| line["entry"] == "asked";
        (scene.journal(&asking).iter().filter(|it| line(it)).count() == 2).then_some(())
    });
    typed.types(["answer", &asking, "allow"]);
    typed.types(["answer", &asking, "9", "allow"]);
    typed.types(["answer", &asking, "perhaps"]);
    typed.types(["answer", &asking, "x", "allow"]);
    typed.types(["resume", &asking]);
    typed.types(["answer", &asking, "1", "allow"]);
    typed.types(["answer", &asking, "2", "deny", "--always"]);
    typed.types(["answer", &asking, "2", "deny"]);
    scene.await_state(&asking, "ready");
    scene.await_free(&asking);
    typed.types(["answer", &asking, "allow"]);
    typed.types(["stop", &asking]);
    typed.types(["resume", &asking]);
    typed.types(["send", &asking, " "]);
    typed.each(["send", "send nope x", "stop", "stop nope", "resume"]);
    scene.await_state(&asking, "waiting");
    typed.each(["resume --all", "answer"]);
    let busy = working(&scene, "a");
    typed.types(["send", &busy, "more"]);
    typed.types(["stop", &busy]);
    scene.await_free(&busy);
    typed.types(["resume", &busy, "--budget", "0"]);
    scene.await_state(&busy, "working");
    typed.types(["shell", &busy, "--", "sh", "-c", "echo here; exit 4"]);
    typed.each(["shell nope", "shell"]);
    typed.types(["discard", &busy]);
    typed.types(["send", &busy, "more"]);
    typed.types(["resume", &busy]);
    typed.types(["shell", &busy]);
    insta::assert_snapshot!("send", typed.text());
    for id in [&asking, &busy] {
        scene.studio(["stop", id]);
    }
}

#[test]
fn diff() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    let id = ready(&scene, "write hello.txt hi; write README.md new words");
    let empty = empty(&scene);
    typed.types(["diff", &id]);
    typed.types(["diff", &id, "--stat"]);
    typed.types(["diff", &id, "--name-only"]);
    typed.types(["diff", &id, "--word-diff"]);
    typed.types(["diff", &id, "--", "nothing-here"]);
    typed.types(["diff", &id, "--stat", "--name-only"]);
    typed.types(["diff", &id, "--json", "--tool"]);
    typed.types(["diff", &id, "--tool=no-such-tool"]);
    typed.types(["diff", &id, "--color", "blue"]);
    typed.types(["diff", &empty]);
    typed.each(["diff nope"]);
    insta::assert_snapshot!("diff", typed.text());
}

#[test]
fn check_and_edit() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    let id = failed(&scene, "write a 1", "echo wrong; exit 3");
    typed.types(["check", &id]);
    typed.types(["check", &id, "--check", "test -e a"]);
    typed.types(["check", &id, "--check", "test -e b"]);
    typed.types(["edit", &id]);
    typed.types(["edit", &id, "--check", " "]);
    typed.types(["edit", &id, "--check", "x", "--no-checks"]);
    typed.types(["edit", &id, "--check", "test -e a", "--add-check", "test -d ."]);
    typed.types(["check", &id]);
    typed.types(["edit", &id, "--add-check", "test -e b"]);
    typed.types(["status", &id]);
    typed.types(["accept", &id, "-m", "Land"]);
    typed.types(["edit", &id, "--no-checks"]);
    typed.types(["check", &id]);
    let empty = empty(&scene);
    typed.types(["check", &empty]);
    typed.each(["check nope", "edit nope --no-checks"]);
    let busy = working(&scene, "a");
    typed.types(["check", &busy]);
    typed.types(["edit", &busy, "--no-checks"]);
    scene.studio(["stop", &busy]).exits(0);
    insta::assert_snapshot!("check", typed.text());
}

#[test]
fn accept_discard_undo_and_operations() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    typed.each(["accept", "discard", "undo", "operations", "accept nope", "undo op9", "undo x"]);
    let id = ready(&scene, "write hello.txt hi");
    typed.types(["accept", &id, "-m", " "]);
    typed.types(["accept", &id, "--onto", "nowhere"]);
    typed.types(["accept", &id, "--strategy", "wrong"]);
    typed.types(["accept", &id, "--dry-run"]);
    typed.types(["accept", &id, "--include", "nothing"]);
    typed.types(["accept", &id, "-m", "Say hi"]);
    typed.types(["accept", &id]);
    typed.types(["discard", &id]);
    typed.types(["check", &id]);
    typed.types(["undo", "op1"]);
    typed.types(["undo", "op1"]);
    typed.types(["undo", "op2"]);
    typed.types(["discard", &id]);
    typed.types(["discard", &id]);
    typed.types(["accept", &id]);
    typed.types(["list", "--all"]);
    typed.types(["undo"]);
    typed.types(["operations"]);
    typed.types_at("200", &["operations"]);
    insta::assert_snapshot!("accept", typed.text());
}

#[test]
fn accept_that_is_refused() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    let conflict = ready(&scene, "write README.md theirs");
    let unchecked = ready(&scene, "write a 1");
    let large = ready(&scene, "write b 1; sh head -c 12000000 /dev/zero > big.bin");
    scene.repo.commit_file("README.md", "# Ours\n");
    typed.types(["accept", &conflict, "-m", "Clash"]);
    typed.types(["accept", &unchecked, "--strategy", "ff"]);
    scene.repo.write("a", "mine\n");
    typed.types(["accept", &unchecked, "-m", "Add a"]);
    std::fs::remove_file(scene.repo.path().join("a")).expect("it was written");
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
    scene.worktree(&unchecked).write("conf.txt", format!("token = {token}\n"));
    typed.types(["accept", &unchecked, "-m", "Add a"]);
    let red = failed(&scene, "write red.txt 1", "echo wrong >&2; exit 7");
    typed.types(["accept", &red]);
    typed.types(["accept", &red, "--force"]);
    let empty = empty(&scene);
    typed.types(["accept", &empty, "--force"]);
    let busy = working(&scene, "c");
    typed.types(["accept", &busy]);
    typed.types(["discard", &busy]);
    typed.types(["stop", &busy]);
    scene.await_free(&busy);
    typed.types(["accept", &busy]);
    typed.types(["accept", &large, "-m", "Add b"]);
    typed.types(["accept", &red, "--no-checks", "-m", "Add red"]);
    typed.types(["accept", &red, &conflict, "-m", "Both"]);
    scene.repo.git(["checkout", "-q", "--detach"]);
    let detached = ready(&scene, "write d 1");
    typed.types(["accept", &detached, "-m", "Add d"]);
    insta::assert_snapshot!("accept_refused", typed.text());
}

const WISHES: &str = "{{CURRENT REQUIREMENTS}}\n\n- R1: a *log*\n- R2: two | lines\n- R3: a moon\n";

/// Lands two sessions: one for R1 and R2, whose coach judges R2 unmet, and one for R2.
fn land_two(scene: &Scene) {
    let usage = json!({"seq": 1, "time": "t", "type": "usage", "input": 1000, "output": 50,
        "cache_read": 0, "cache_write": 0, "cost_usd": 0.25});
    let first = coach::run(&[("R1", "met", "log:1"), ("R2", "unmet", "one line")], true);
    let second = coach::run(&[("R2", "met", "log:2")], true);
    let tasks = format!(
        "[[task]]\nid = 'first'\nagent = 'talk'\nrequirements = ['R1', 'R2']\n\
         text = '''write log 1; event {usage}; {first}'''\n\
         [[task]]\nid = 'second'\nagent = 'talk'\nafter = ['first']\nrequirements = ['R2']\n\
         text = '''sh echo 2 >> log; event {usage}; {second}'''\n"
    );
    scene.repo.write("t.toml", &tasks);
    scene.studio(["run", "--tasks", "t.toml", "--accept"]).exits(0);
}

#[test]
fn trace() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    typed.each(["trace"]);
    scene.configure("checks = [\"test -e log\"]");
    scene.repo.commit_file("g3-plan/current_requirements.md", WISHES);
    typed.each(["trace"]);
    land_two(&scene);
    typed.each([
        "trace",
        "trace R1",
        "trace R3",
        "trace R9",
        "trace --markdown",
        "trace --markdown --json",
        "trace --onto nowhere",
        "trace --since nowhere",
        "trace --file missing.md",
    ]);
    typed.types_at("200", &["trace"]);
    scene.repo.git(["commit", "-q", "--allow-empty", "-m", "By hand\n\nRequirement: R1"]);
    typed.each(["trace", "trace R1"]);
    insta::assert_snapshot!("trace", typed.text());
}

#[test]
fn verify() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    typed.each(["verify"]);
    scene.configure("checks = [\"test -e log\"]");
    scene.repo.commit_file("g3-plan/current_requirements.md", WISHES);
    typed.each(["verify"]);
    land_two(&scene);
    typed.each([
        "verify",
        "verify R2",
        "verify --each",
        "verify --markdown",
        "verify R9",
        "verify --onto nowhere",
    ]);
    scene.repo.git(["rm", "-q", "log"]);
    scene.repo.git(["commit", "-q", "-m", "Lose it"]);
    typed.each(["verify", "verify --markdown"]);
    insta::assert_snapshot!("verify", typed.transcript.squeezed());
}

#[test]
fn verify_of_a_check_that_is_not_configured_here() {
    let scene = Scene::new();
    scene.repo.commit_file("g3-plan/current_requirements.md", "- R1: a log\n");
    let task = "[[task]]\nrequirements = ['R1']\nchecks = ['test -e log']\ntext = 'write log 1'\n";
    scene.repo.write("t.toml", task);
    scene.studio(["run", "--tasks", "t.toml", "--accept"]).exits(0);
    let clone = scene.env.home().join("clone");
    scene.repo.git(["clone", "-q", ".", clone.to_str().expect("text")]);
    Repo::at(&clone).git(["fetch", "-q", "origin", "refs/notes/*:refs/notes/*"]);
    let mut typed = Typed::new(&scene);
    for args in [&["verify"][..], &["verify", "--run-recorded"]] {
        let job = scene.env.command(studio(), &clone).env("COLUMNS", "80").args(args);
        typed.transcript.add("studio", args, &scene.env.run_command(job));
    }
    insta::assert_snapshot!("verify_recorded", typed.transcript.squeezed());
}

#[test]
fn plan() {
    let scene = Scene::new();
    let mut typed = Typed::new(&scene);
    typed.each(["plan", "plan missing.md"]);
    let (requirements, tasks) = ("g3-plan/current_requirements.md", "g3-plan/tasks.toml");
    let refined = "{{CURRENT REQUIREMENTS}}\n\n- R1: an a\n- R2: a b\n";
    let list = "[[task]]\nid = 'first'\ntext = 'write a 1'\nrequirements = ['R1']\n\n\
                [[task]]\nid = 'second'\ntext = 'write b 1'\nrequirements = ['R2']\nafter = ['first']\n";
    scene.repo.write(requirements, refined);
    scene.repo.write(tasks, list);
    typed.each(["plan", "plan --json", "plan --yes", "plan", "list --all"]);
    scene.repo.write(requirements, format!("{refined}- R3: a c\n"));
    typed.each(["plan", "plan --yes"]);
    scene.repo.write(requirements, "{{CURRENT REQUIREMENTS}}\n\n- R1: an a with 2\n- R2: a b\n");
    typed.each(["plan"]);
    for text in [
        "{{CURRENT REQUIREMENTS}}\n\n- R1: a\n- R1: b\n",
        "{{CURRENT REQUIREMENTS}}\n\n",
        "- R1: an a\n",
    ] {
        scene.repo.write(requirements, text);
        typed.each(["plan --yes"]);
    }
    scene.repo.write(requirements, refined);
    for text in [
        "[[task]]\nid = 'first'\ntext = 'write a 1'\nrequirements = ['R9']\n",
        "[[task]]\nid = 'first'\ntext = 'write a 1'\nrequirements = ['R1']\nafter = ['none']\n",
        "[[task]]\nid = 'first'\n",
    ] {
        scene.repo.write(tasks, text);
        typed.each(["plan --yes"]);
    }
    scene.repo.write("wish.md", "Add a d.\n");
    typed.each(["plan wish.md", "plan --new wish.md --yes"]);
    insta::assert_snapshot!("plan", typed.text());
}

#[test]
fn doctor_gc_config_and_the_programs_own_errors() {
    let mut scene = Scene::new();
    let id = ready(&scene, "write a 1");
    let gone = ready(&scene, "write b 1");
    scene.studio(["discard", &gone]).exits(0);
    {
        let mut typed = Typed::new(&scene);
        typed.each(["doctor", "gc", "gc --dry-run", "gc --older -1", "doctor --wrong"]);
        typed.each(["frobnicate", "lst", "-C nowhere list", "--config missing.toml list"]);
        typed.each(["completions", "completions tcsh", "config", "config show --wrong"]);
        scene.env.config("[studio]\nagent = \"g3\"\n");
        typed.each(["config show", "config show --origin", "config show --json"]);
        scene.configure("");
        let git = scene.worktree(&id).path().join(".git");
        std::fs::write(git, "gitdir: /nowhere\n").expect("the worktree is ours");
        typed.each(["doctor"]);
        for text in ["agnet = 'x'", "agent = 1", "checks = [1]", "budget_usd = -1", "jobs = 0"] {
            scene.configure(text);
            typed.each(["list"]);
        }
        scene.configure("[studio.limits]\nbudget_usd = -1\n");
        typed.each(["list", "run x"]);
        scene.configure("[studio");
        typed.each(["list"]);
        scene.configure("");
        scene.repo.write("g3.toml", "[studio]\nchecks = [\"true\"]\n");
        typed.each(["list", "config show --origin", "run x"]);
        let home = scene.env.home().to_owned();
        let ran = scene.studio_in(&home, ["list"]);
        typed.transcript.add("studio", &["list"], &ran);
        insta::assert_snapshot!("doctor", typed.text());
    }
    scene.env.set("G3_TEST_NOW", "2026-02-01T10:00:00Z");
    let mut typed = Typed::new(&scene);
    typed.each(["gc --dry-run", "gc", "undo op1", "operations"]);
    insta::assert_snapshot!("gc", typed.text());
}

#[test]
fn a_landing_that_was_killed() {
    let scene = Scene::new();
    let id = ready(&scene, "write a 1");
    let mut typed = Typed::new(&scene);
    for last in [&["doctor"][..], &["resume", &id]] {
        let job =
            scene.env.command(studio(), scene.repo.path()).args(["accept", &id, "-m", "Add a"]);
        scene.env.run_command(job.env("G3_TEST_KILL_AT", "accept.files")).exits(137);
        typed.types(["list"]);
        typed.types(["status", &id]);
        typed.types(["explain", &id]);
        typed.types_at("80", last);
        scene.await_free(&id);
    }
    insta::assert_snapshot!("killed_landing", typed.text());
}

#[test]
fn notes_of_a_landing() {
    let scene = Scene::new();
    scene.repo.commit_file("lock", "1\n");
    scene.repo.commit_file("a.bin", "pointer\n");
    scene.repo.commit_file(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    scene.repo.git(["config", "filter.lfs.clean", "cat"]);
    let check = "mkdir -p out && echo r > out/report && echo 2 > lock";
    let id = scene.exec(["--check", check, "write a.bin real; switch other; write b 2"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    let mut typed = Typed::new(&scene);
    typed.types(["status", &id]);
    typed.types(["diff", &id, "--stat"]);
    scene.worktree(&id).write("c", "by hand\n");
    typed.types(["accept", &id, "-m", "Add"]);
    insta::assert_snapshot!("accept_notes", typed.text());
}
