//! Snapshots of the user-visible texts of `g3`, command by command: all help pages, listings,
//! reports and kinds of errors. One snapshot per command; `INSTA_UPDATE=always` accepts changes.

use serde_json::json;
use testkit::env::{CommandRun, TestEnv, built};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;
use testkit::transcript::Transcript;

use crate::agent_env::{G3, Stage};
use crate::autonomous::{sides, verdict, writes};
use crate::mcp_support;
use crate::planning;

/// Commands typed on a stage, and their output on a page of 80 columns.
struct Typed<'a> {
    stage: &'a Stage,
    transcript: Transcript,
}

impl Typed<'_> {
    fn new(stage: &Stage) -> Typed<'_> {
        Typed { stage, transcript: Transcript::of(&stage.env) }
    }

    fn types<const N: usize>(&mut self, args: [&str; N]) -> CommandRun {
        self.types_at("80", &args)
    }

    fn types_at(&mut self, columns: &str, args: &[&str]) -> CommandRun {
        let job = self.stage.env.command(G3, self.stage.repo.path()).env("COLUMNS", columns);
        let ran = self.stage.env.run_command(job.args(args));
        self.transcript.add("g3", args, &ran);
        ran
    }

    fn each<const N: usize>(&mut self, lines: [&str; N]) {
        for line in lines {
            let args: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
            self.types_at("80", &args);
        }
    }

    fn says(&mut self, args: &[&str], input: &str) {
        let job = self.stage.env.command(G3, self.stage.repo.path()).env("COLUMNS", "80");
        let ran = self.stage.env.run_command(job.args(args).input(input));
        self.transcript.add("g3", args, &ran);
    }

    fn text(&self) -> String {
        self.transcript.text()
    }
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
    let stage = Stage::new([]);
    let mut typed = Typed::new(&stage);
    let mut commands = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        args.push("--help");
        let page = typed.types_at("80", &args);
        let below = subcommands(page.ok());
        assert!(!command.is_empty() || below.len() > 10, "{page}");
        commands.extend(below.into_iter().rev().map(|name| {
            let mut longer: Vec<String> = command.clone();
            longer.push(name);
            longer
        }));
    }
    typed.types_at("200", &["--help"]);
    for program in ["g3-model", "g3-desktop"] {
        let job = stage.env.command(built(program), stage.repo.path()).env("COLUMNS", "80");
        typed.transcript.add(program, &["--help"], &stage.env.run_command(job.arg("--help")));
    }
    insta::assert_snapshot!("help", typed.text());
}

#[test]
fn usage_errors() {
    let stage = Stage::new([]);
    stage.repo.write("empty.txt", "");
    let mut typed = Typed::new(&stage);
    typed.each([
        "--bogus",
        "--max-turns 0 x",
        "--max-turns many x",
        "--max-tokens 0 x",
        "--budget nan x",
        "--budget -1 x",
        "--timeout 0 x",
        "--resume a --new-session",
        "--profile nope x",
        "--provider nope x",
        "--provider anthropic.nope x",
        "-w /does/not/exist x",
        "-w README.md x",
        "--config missing.toml x",
        "--model= x",
        "--resume= -- x",
        "--resume nope x",
        "--events - x",
        "--events no/such/dir/e x",
        "--trace-file no/such/dir/t x",
        "--fallback-model= x",
        "--json",
        "acp --json",
        "--plannning",
        "sesions",
        "sessions lst",
        "fix the tests",
        "--agent nobody x",
        "--agent No/pe x",
        "--chat --webdriver x",
        "--webdriver --chrome-headless x",
        "--memory . x",
        "--image missing.png x",
        "--image README.md x",
        "--codebase-fast-start missing x",
        "--autonomous x",
        "--autonomous",
        "--autonomous --auto",
        "--autonomous --requirements= ",
        "--autonomous --requirements r --resume",
        "--autonomous --planning",
        "--auto x",
        "--auto --json",
        "--planning x",
        "--planning --json",
        "--planning --codepath missing",
        "--planning --agent hopper",
        "--check true x",
        "--yes x",
        "--list-agents --quiet",
        "plan refine",
        "complete",
    ]);
    typed.types([""]);
    typed.says(&["-"], "");
    typed.says(&["-"], " \n");
    typed.types(["--autonomous", "--requirements=- R1: a\n- R1: b"]);
    let job = stage.job(["x"]).env("G3_LOG", "loud").env("COLUMNS", "80");
    typed.transcript.add("G3_LOG=loud g3", &["x"], &stage.env.run_command(job));
    insta::assert_snapshot!("usage", typed.text());
    assert!(stage.asked().is_empty(), "no model was asked");
}

#[test]
fn errors_of_the_configuration() {
    let stage = Stage::new([]);
    let good = stage.model.config_toml("anthropic");
    let mut typed = Typed::new(&stage);
    for text in [
        "[agent]\nmax_turn = 3\n",
        "[agent]\nmax_retry_attempts = 'many'\n",
        "[agent]\nmax_retry_attempts = -1\n",
        "[agent\n",
        "agent = 1\n",
        "[memory]\nembedder = 'wrong'\n",
        "[gate]\npolicy = 'wrong'\n",
        "[[gate.rules]]\ntool = 'shell'\naction = 'perhaps'\n",
        "[[gate.rules]]\ntool = 'no_such_tool'\naction = 'allow'\n",
        "[[hooks]]\nevent = 'wrong'\ncommand = 'true'\n",
        "[webdriver]\nbrowser = 'lynx'\n",
        "[computer_control]\nmax_actions_per_second = 0\n",
        "[mcp.kit]\ncommand = ['x']\nurl = 'http://x'\n",
        "[mcp.kit]\n",
        "[sandbox]\nwrite = 'x'\n",
    ] {
        stage.env.config(&format!("{text}\n"));
        typed.each(["x"]);
    }
    for text in [
        "[providers]\ndefault_provider = 'nope.main'\n",
        "[providers]\ndefault_provider = 'anthropic.other'\n[providers.anthropic.main]\napi_key = 'k'\n",
        "[providers.anthropic.main]\nmodel = 'm'\n",
        "[providers.openai.main]\nmodel = 'm'\n",
        "[providers.gemini.main]\nmodel = 'm'\n",
        "[providers.databricks.main]\nmodel = 'm'\n",
        "[providers.databricks.main]\nmodel = 'm'\nhost = 'http://127.0.0.1:1'\n",
        "[providers.embedded.main]\nmodel = 'nope'\n",
        "[providers.wrong.main]\nmodel = 'm'\n",
        "[providers.anthropic.main]\napi_key = 'k'\nbase_url = 'http://127.0.0.1:1'\n",
        "[providers.anthropic.main]\napi_key = 'k'\nbase_url = 'http://x'\n",
        "[providers.anthropic.main]\napi_key = 'k'\nbase_url = 'ftp://x'\n",
        "[providers.anthropic.main]\napi_key = 'k'\nbase_url = 'http://user:pw@x'\n",
        "[providers.openai.main]\napi_key = 'k'\nwire = 'fax'\n",
        "[providers.anthropic.a]\napi_key = 'k'\n[providers.anthropic.b]\napi_key = 'k'\n",
        "[providers.openai.a]\napi_key = 'k'\n[providers.anthropic.b]\napi_key = 'k'\n",
        "[providers.anthropic.main]\napi_key = 'k'\n[providers]\nescalation = 'nope.x'\n",
    ] {
        stage.env.config(text);
        typed.each(["x"]);
    }
    stage.env.config("");
    typed.each(["x"]);
    stage.env.config(&good);
    typed.each(["config show", "config show --origin", "config show --config missing.toml"]);
    stage.repo.write("g3.toml", "[hooks]\n[sandbox]\nenabled = false\n");
    typed.each(["config show"]);
    stage.repo.write("g3.toml", "[sandbox]\nenabled = false\n[agent]\nmax_retry_attempts = 4\n");
    typed.each(["config show --origin", "trust show", "trust", "trust show", "trust revoke"]);
    typed.each(["trust revoke", "trust --file agents/nope.md", "trust --file ../x"]);
    insta::assert_snapshot!("config", typed.text());
}

#[test]
fn errors_of_a_provider() {
    let error =
        |status: u16, body: &str| ScriptedReply::status(status).body("application/json", body);
    let refusal = r#"{"type":"error","error":{"type":"x","message":"no such thing"}}"#;
    let stage = Stage::new([
        error(400, refusal),
        error(401, refusal),
        error(403, refusal),
        error(404, refusal),
        error(413, refusal),
        ScriptedReply::status(429).retry_after(7200),
        ScriptedReply::status(500).header("x-should-retry", "false"),
        error(400, r#"{"error":{"message":"prompt is too long: 300000 tokens > 200000 maximum"}}"#),
        ScriptedReply::status(529),
        ScriptedReply::status(529),
        ScriptedReply::status(529),
    ]);
    let mut typed = Typed::new(&stage);
    for _ in 0..9 {
        typed.each(["x"]);
    }
    insta::assert_snapshot!("provider", typed.text());
}

#[test]
fn a_task_and_its_sessions() {
    let stage = Stage::new([
        ScriptedReply::says("I look first.").calls("shell", json!({"command": "ls; exit 3"})),
        ScriptedReply::call("write_file", json!({"file_path": "hello.txt", "content": "hi\n"})),
        ScriptedReply::call("read_file", json!({"file_path": "/etc/hostname"})),
        ScriptedReply::call("fly", json!({})),
        ScriptedReply::says("**Done**: `hello.txt` says hi."),
        ScriptedReply::status(401),
        ScriptedReply::call("shell", json!({"command": "true"})),
        ScriptedReply::says("One."),
        ScriptedReply::says("Two."),
    ]);
    let mut typed = Typed::new(&stage);
    typed.each(["sessions list", "sessions show", "sessions export", "sessions fork", "--resume"]);
    typed.each(["sessions import", "sessions send nope x"]);
    typed.types(["say hi"]);
    typed.types(["again"]);
    typed.types(["--max-turns", "1", "limited"]);
    typed.types(["--resume", "--quiet", "--", "go on"]);
    typed.each([
        "sessions list",
        "sessions show say",
        "sessions show again",
        "sessions show",
        "sessions show nope",
        "sessions export say",
        "sessions export say -o README.md",
        "sessions export say --format wrong",
        "sessions fork say --before 9",
        "sessions fork say --before 0",
        "sessions fork say --before 1",
        "sessions send say hello",
        "tool undo --session nope --list",
    ]);
    insta::assert_snapshot!("sessions", typed.text());
}

#[test]
fn tools_without_a_model() {
    let stage = Stage::new([]);
    let mut typed = Typed::new(&stage);
    typed.each(["tool list", "tool list --profile egirl", "tool list --profile nope"]);
    for (name, args) in [
        ("shell", r#"{"command": "echo out; echo err >&2; exit 4"}"#),
        ("read_file", r#"{"file_path": "README.md"}"#),
        ("read_file", r#"{"file_path": "nope.txt"}"#),
        ("read_file", r#"{"file_path": "/etc/hostname"}"#),
        ("read_file", "[1]"),
        ("read_file", "{"),
        ("write_file", r#"{"file_path": "a.txt"}"#),
        ("write_file", r#"{"file_path": "a.txt", "content": "a\n"}"#),
        ("write_file", r#"{"file_path": "a.txt", "content": 1}"#),
        ("str_replace", r#"{"file_path": "README.md", "diff": "nope"}"#),
        ("str_replace", r#"{"file_path": "README.md", "diff": "-nope\n+x\n"}"#),
        ("multiedit", r#"{"file_path": "README.md", "edits": []}"#),
        ("patch", r#"{"patch": "nope"}"#),
        ("grep", r#"{"pattern": "("}"#),
        ("grep", r#"{"pattern": "nothing-like-this"}"#),
        ("glob", r#"{"pattern": "*.nope"}"#),
        ("code_search", r#"{"searches": [{"name": "x", "query": "(", "language": "rust"}]}"#),
        ("read_image", r#"{"file_paths": ["README.md"]}"#),
        ("background_control", r#"{"action": "list"}"#),
        ("todo_read", "{}"),
        ("skill", r#"{"name": "nope"}"#),
        ("lsp", r#"{"action": "hover", "file_path": "README.md", "line": 1, "column": 1}"#),
        ("webfetch", r#"{"url": "ftp://x"}"#),
        ("webfetch", r#"{"url": "http://127.0.0.1:1/"}"#),
        ("webdriver_navigate", r#"{"url": "http://x"}"#),
        ("memory_search", r#"{"query": "x"}"#),
        ("remember", r#"{"notes": "one"}"#),
        ("reed_file", "{}"),
    ] {
        typed.types(["tool", "exec", "--name", name, "--args", args]);
    }
    for (name, args) in [
        ("read_file", r#"{"file_path": "README.md"}"#),
        ("shell", r#"{"command": "rm -rf /"}"#),
        ("shell", r#"{"command": "git push --force"}"#),
        ("nope", "{}"),
    ] {
        typed.types(["tool", "check", "--name", name, "--args", args]);
    }
    typed.each(["tool undo --list", "tool undo", "tool undo"]);
    insta::assert_snapshot!("tool", typed.text());
}

#[test]
fn skills_personas_models_and_mcp_servers() {
    let stage = mcp_support::stage(
        [],
        [],
        "[mcp.off]\nurl = \"https://example.invalid/mcp\"\nenabled = false",
    );
    let mut typed = Typed::new(&stage);
    let write = |name: &str, text: &str| stage.repo.write(&format!("skills/{name}/SKILL.md"), text);
    write("good", "---\nname: good\ndescription: Does good things\n---\n# Steps\nGo.\n");
    write("bad", "---\nname: other\n---\n");
    write("worse", "no front matter\n");
    typed.each(["skills list", "skills check", "skills check skills/good", "skills check nope"]);
    typed.each(["--list-agents"]);
    typed.each([
        "model list",
        "model pull nope",
        "model add nope.gguf",
        "model add README.md",
        "model add README.md --name a/b",
        "model remove nope",
        "model serve nope",
    ]);
    typed.each(["mcp list", "mcp test nope", "mcp test kit", "mcp test off", "mcp login kit"]);
    typed.each(["mcp logout kit", "mcp login nope", "mcp list"]);
    mcp_support::configure(&stage, &["--broken"], "");
    typed.each(["mcp test kit"]);
    stage.env.config("");
    typed.each(["mcp list", "login databricks", "login databricks nope", "completions tcsh"]);
    insta::assert_snapshot!("skills", typed.text());
}

#[test]
fn a_conversation_and_its_commands() {
    let stage = Stage::new([
        ScriptedReply::call("write_file", json!({"file_path": "a.txt", "content": "a\n"})),
        ScriptedReply::says("It is written."),
        ScriptedReply::status(401),
        ScriptedReply::says("Two."),
    ]);
    let mut typed = Typed::new(&stage);
    let commands = [
        "/help",
        "/stats",
        "/undo",
        "/retry",
        "/rewind",
        "/fork",
        "/copy",
        "/plan",
        "/approve",
        "write a",
        "/diff",
        "/rewind",
        "/undo",
        "/undo",
        "break it",
        "/retry",
        "/stats",
        "/cost",
        "/model",
        "/model nope",
        "/mode",
        "/mode nope",
        "/mode plan",
        "/plan",
        "/mode ask",
        "/mode auto",
        "/fragments",
        "/rehydrate nope",
        "/thinnify",
        "/skinnify",
        "/run nope",
        "/project nope",
        "/unproject",
        "/readme",
        "/resume",
        "/resume nope",
        "/clear",
        "/compact",
        "/comapct",
        "/exit now",
        "/new",
        "/exit",
    ];
    typed.says(&[], &format!("{}\n", commands.join("\n")));
    insta::assert_snapshot!("conversation", typed.text());
}

#[test]
fn player_and_coach() {
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let coach = [verdict(false, &["met", "unmet"]), verdict(true, &["met", "met"])];
    let stage = Stage::new(sides(player, coach));
    stage.repo.write("requirements.md", "1. make one.txt\n2. make two.txt\n");
    let mut typed = Typed::new(&stage);
    typed.types(["--autonomous", "--check", "test -e one.txt"]);
    typed.types(["--autonomous", "--resume"]);
    typed.each(["sessions list"]);
    insta::assert_snapshot!("autonomous", typed.transcript.squeezed());
}

#[test]
fn player_and_coach_that_reach_a_limit() {
    let player = [writes("one.txt"), writes("one.txt")].concat();
    let coach = [verdict(false, &["met", "unmet"]), verdict(false, &["met", "unmet"])];
    let stage = Stage::new(sides(player, coach));
    let mut typed = Typed::new(&stage);
    let requirements = "1. make one.txt\n2. make two.txt\n";
    typed.types(["--autonomous", "--max-turns", "1", "--requirements", requirements]);
    typed.types(["--autonomous", "--resume", "--max-turns", "1"]);
    insta::assert_snapshot!("autonomous_limit", typed.transcript.squeezed());
}

#[test]
fn planning_from_a_request_to_a_commit() {
    let stage = planning::known(planning::model());
    let mut typed = Typed::new(&stage);
    typed.says(&["--planning"], "y\n");
    typed.types(["--planning", "--yes"]);
    planning::wish(&stage);
    typed.says(&["--planning"], "n\n");
    typed.says(&["--planning"], "y\ny\nno\n");
    typed.says(&["--planning"], "y\ny\nyes\n\n\nq\n");
    insta::assert_snapshot!("planning", typed.transcript.squeezed());
}

#[test]
fn plans_of_studio() {
    let stage = planning::known(planning::model());
    let mut typed = Typed::new(&stage);
    typed.says(&["plan", "refine"], "");
    typed.says(&["plan", "refine"], "I want two doors.\n");
    typed.says(&["plan", "split"], "");
    typed.says(&["plan", "split", "--json", "--tasks", "nope"], "- R1: a\n");
    insta::assert_snapshot!("plan", typed.text());
}

#[test]
fn questions_without_tools() {
    let stage = Stage::new([ScriptedReply::says("An answer."), ScriptedReply::status(401)]);
    let mut typed = Typed::new(&stage);
    typed.says(&["complete"], "");
    typed.says(&["complete"], "What is this?\n");
    typed.says(&["complete"], "What is this?\n");
    insta::assert_snapshot!("complete", typed.text());
}

#[test]
fn a_place_without_a_configuration() {
    let env = TestEnv::new();
    let repo = env.repo();
    let stage =
        Stage { env, repo, model: testkit::model_server::ModelServer::start(Script::from([])) };
    let mut typed = Typed::new(&stage);
    typed.each(["x", "config show", "trust", "trust show", "mcp list", "skills check"]);
    insta::assert_snapshot!("no_configuration", typed.text());
}
