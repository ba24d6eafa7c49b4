//! Tests every flag of `g3 --help` in every mode: it takes effect, or it is rejected with an error
//! message.

use std::collections::BTreeSet;

use serde_json::json;
use testkit::env::CommandRun;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::autonomous::{is_coach, verdict};

/// The modes: a name, the flag that selects it, and its stdin. A new mode is a line here, and a
/// column below.
const MODES: &[(&str, &[&str], &str)] = &[
    ("once", &["the task"], ""),
    ("interactive", &[], "the task\n"),
    ("autonomous", &["--autonomous", "--requirements", "the task"], ""),
    ("accumulative", &["--auto"], "the task\n"),
    ("agent", &["--agent", "hopper", "the task"], ""),
    ("acp", &["acp"], ""),
    ("complete", &["complete"], "the task\n"),
    ("planning", &["--planning", "--yes", "--no-git"], ""),
];

/// A flag, an argument for it, and for each mode whether it is accepted (`y`), rejected (`n`) or
/// selects a mode (`-`), in the order of the modes.
const FLAGS: &[(&str, &[&str], &str)] = &[
    ("--provider", &["anthropic.scripted"], "yyyyyyyy"),
    ("--model", &["special"], "yyyyyyyy"),
    ("--fallback-model", &["another"], "yyyyyyyy"),
    ("--config", &["{home}/other.toml"], "yyyyyyyy"),
    ("--workspace", &["sub"], "yyyyyyyy"),
    ("--trace-file", &["{home}/trace"], "yyyyyyyy"),
    ("--profile", &["egirl"], "yyyyyyny"),
    ("--resume", &[], "yynnynnn"),
    ("--new-session", &[], "yyyyynny"),
    ("--chat", &[], "yynnynnn"),
    ("--image", &["{home}/shot.png"], "yynnynnn"),
    ("--acd", &[], "yyyyyyny"),
    ("--memory", &["{home}/notes.md"], "yyyyynny"),
    ("--auto-memory", &[], "yyyyynny"),
    ("--no-auto-memory", &[], "yyyyynny"),
    ("--webdriver", &[], "yyyyyyny"),
    ("--chrome-headless", &[], "yyyyyyny"),
    ("--agent", &["hopper"], "yynn-ynn"),
    ("--codebase-fast-start", &["sub"], "yynnynnn"),
    ("--autonomous", &[], "n--nnynn"),
    ("--auto", &[], "n-n-nnnn"),
    ("--planning", &[], "n-nnnnn-"),
    ("--codepath", &["sub"], "nnnnnnny"),
    ("--no-git", &[], "nnnnnnn-"),
    ("--yes", &[], "nnnnnnn-"),
    ("--requirements", &["other"], "nn-nnnnn"),
    ("--check", &["touch checked"], "nnyynnny"),
    ("--list-agents", &[], "n-nnnnnn"),
    ("--max-turns", &["1"], "yyyyyyny"),
    ("--max-tokens", &["1"], "yyyyyyny"),
    ("--budget", &["0.000001"], "yyyyyyny"),
    ("--timeout", &["600"], "yyyyyyny"),
    ("--json", &[], "ynynynny"),
    ("--events", &["{home}/events"], "yyyyynny"),
    ("--quiet", &[], "yyyyynny"),
];

fn script() -> Script {
    Script::by(|request| {
        if is_coach(request) {
            return verdict(true, &["met"]);
        }
        if request.tool_names().contains(&"requirements".to_owned()) {
            return ScriptedReply::call("requirements", json!({"text": "- look"}));
        }
        let first = request.assistant_messages() == 0;
        let looks = ScriptedReply::says("I look.")
            .calls("read_file", json!({"file_path": "a", "path": "a"}));
        if first && !request.tool_names().is_empty() {
            looks
        } else {
            ScriptedReply::says("The end.")
        }
    })
}

fn stage() -> Stage {
    let stage = Stage::new(script());
    stage.repo.write("a", "x\n");
    stage.repo.write("sub/a", "x\n");
    for plan in ["g3-plan", "sub/g3-plan"] {
        stage.repo.write(&format!("{plan}/new_requirements.md"), "look\n");
    }
    let price = "price = { input = 1e6, output = 1e6 }\n";
    let config = stage.model.config_toml("anthropic") + price;
    stage.env.config(&config);
    let other = config.replace("model = \"scripted\"", "model = \"other\"");
    std::fs::write(stage.env.home().join("other.toml"), other).unwrap();
    let picture = image::RgbImage::from_pixel(4, 3, image::Rgb([255, 0, 0]));
    picture.save(stage.env.home().join("shot.png")).unwrap();
    std::fs::write(stage.env.home().join("notes.md"), "# Workspace Memory\n\nplums\n").unwrap();
    stage
}

fn run(stage: &Stage, mode: (&str, &[&str], &str), flag: &str, values: &[&str]) -> CommandRun {
    let home = stage.env.home().display().to_string();
    let values = values.iter().map(|value| value.replace("{home}", &home));
    let (_, chosen, input) = mode;
    // Subcommands have their flags after them, and a task follows options with an argument.
    let mut args: Vec<String> = Vec::new();
    let is_subcommand = ["acp", "complete"].contains(&mode.0);
    args.extend(chosen.iter().filter(|_| is_subcommand).map(|arg| (*arg).to_owned()));
    args.push(flag.to_owned());
    args.extend(values);
    let rest: Vec<String> =
        chosen.iter().filter(|_| !is_subcommand).map(|arg| (*arg).to_owned()).collect();
    if let Some((task, before)) = rest.split_last().filter(|(last, _)| **last == "the task") {
        args.extend(before.iter().cloned());
        let named = before.last().is_some_and(|last| last == "--requirements");
        if !named {
            args.push("--".to_owned());
        }
        args.push(task.clone());
    } else {
        args.extend(rest);
    }
    stage.env.run_command(stage.job([]).args(args).input(input))
}

/// Whether a flag took effect.
fn is_honoured(stage: &Stage, mode: &str, flag: &str, ran: &CommandRun) -> bool {
    let asked = stage.asked();
    let models: BTreeSet<&str> = asked.iter().filter_map(|it| it.body["model"].as_str()).collect();
    let sessions = |dir: &str| {
        let dir = stage.repo.path().join(dir);
        dir.is_dir() && stage.env.g3_state(&dir).join("sessions").exists()
    };
    let offers = |name: &str| asked.iter().any(|it| it.tool_names().iter().any(|it| it == name));
    match flag {
        "--trace-file" => std::fs::read_to_string(stage.env.home().join("trace"))
            .is_ok_and(|text| text.contains("process ended") && ran.code == 0),
        // An editor says nothing here, so acp only shows that it accepted the flag.
        _ if mode == "acp" => ran.code == 0,
        "--provider" | "--fallback-model" | "--new-session" | "--timeout" => {
            ran.code == 0 && !asked.is_empty()
        }
        "--model" => models == BTreeSet::from(["special"]),
        "--config" => models == BTreeSet::from(["other"]),
        "--codepath" => sessions("sub") && !sessions("."),
        "--workspace" => mode == "complete" || (sessions("sub") && !sessions(".")),
        "--profile" => offers("execute_command"),
        "--resume" => ran.err.contains("no sessions in"),
        "--chat" => asked.iter().all(|it| it.tool_names().is_empty()),
        "--image" => asked[0].body.to_string().contains("\"type\":\"image\""),
        "--acd" => offers("rehydrate"),
        "--webdriver" | "--chrome-headless" => offers("webdriver_start"),
        "--memory" => asked.iter().any(|it| it.system().contains("plums")),
        "--auto-memory" => asked.iter().any(|it| it.last().contains("did you find out about")),
        "--no-auto-memory" => {
            ran.code == 0 && !asked.iter().any(|it| it.last().contains("find out about"))
        }
        "--codebase-fast-start" => asked.iter().any(|it| it.text().contains("/sub, made by g3.")),
        "--agent" => asked[0].system().starts_with("You are hopper."),
        "--check" => stage.repo.path().join("checked").exists(),
        // For the autonomous modes it counts rounds, and one is enough here.
        "--max-turns" if ["autonomous", "accumulative", "planning"].contains(&mode) => {
            ran.err.contains("at most 1 round") && ran.code == 0
        }
        "--max-turns" => ran.err.contains("limit of 1 turn is"),
        "--max-tokens" => ran.err.contains("limit of 1 tokens"),
        "--budget" => ran.err.contains("US dollars is reached"),
        "--json" => ran.out.lines().all(|line| line.starts_with("{\"seq\":")),
        "--events" => stage.env.home().join("events").exists() && ran.code == 0,
        "--quiet" => {
            ran.code == 0 && ran.out.contains("The end.") && !ran.err.contains("· read_file")
        }
        other => panic!("nothing shows yet that `{other}` is honoured"),
    }
}

#[test]
fn every_flag_is_respected_or_rejected_in_every_mode() {
    let help = stage().g3(["--help"]).out;
    let words = help.split([' ', '\n', ',', '[', ']', '=']);
    let known: BTreeSet<&str> = FLAGS.iter().map(|(flag, ..)| *flag).collect();
    let shown: BTreeSet<&str> = help
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'))
        .filter_map(|line| line.split([' ', ',']).find(|word| word.starts_with("--")))
        .collect();
    assert!(words.count() > 50 && shown.len() > 10, "the help is read: {shown:?}");
    for flag in shown.iter().filter(|flag| !["--help", "--version"].contains(*flag)) {
        assert!(known.contains(flag), "`{flag}` of the help has no row in the table of this test");
    }
    for (flag, values, row) in FLAGS {
        assert!(shown.contains(flag), "`{flag}` is not in the help");
        assert_eq!(row.len(), MODES.len(), "`{flag}` needs a mark for each mode");
        for (mode, mark) in MODES.iter().zip(row.chars()).filter(|(_, mark)| *mark != '-') {
            let stage = stage();
            let ran = run(&stage, *mode, flag, values);
            let told = format!("`{flag}` in the mode `{}`:\n{ran}", mode.0);
            if mark == 'n' {
                assert_eq!(ran.code, 2, "{told}");
                assert!(ran.err.contains("error:") && ran.err.contains("try:"), "{told}");
                assert!(stage.asked().is_empty() && stage.session_dirs().is_empty(), "{told}");
            } else {
                assert!(is_honoured(&stage, mode.0, flag, &ran), "no effect: {told}");
            }
        }
    }
}
