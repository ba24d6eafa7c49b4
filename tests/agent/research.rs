//! Tests of research: the program of the skill, and the tool that runs it for a model.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::terminal::answered;
use crate::tools_support::Bench;

/// Puts a fake `g3` on the PATH, which records its arguments and prints what the test wants.
fn fake_g3(bench: &Bench, says: &str) -> String {
    let bin = bench.env.home().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$HOME/argv\"\n{says}\n");
    fs::write(bin.join("g3"), script).unwrap();
    fs::set_permissions(bin.join("g3"), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

fn status(bench: &Bench) -> Option<Value> {
    let dir = fs::read_dir(bench.dir.join(".g3/research")).ok()?.next()?.ok()?.path();
    serde_json::from_slice(&fs::read(dir.join("status.json")).ok()?).ok()
}

#[test]
fn the_research_script_runs_an_agent_and_writes_a_report() {
    let bench = Bench::new("g3");
    bench.call("skill", json!({"name": "research"})).says(".g3/bin/g3-research").works();
    let report = "printf 'noise\\n\\033[1m---SCOUT_REPORT_START---\\033[0m\\n# Found\\nit\\n---SCOUT_REPORT_END---\\n'";
    let path = fake_g3(&bench, report);
    let question = "which \"one\"?\nsecond \\ line\ttab\r\u{1b} --end";
    let job =
        bench.env.command(bench.dir.join(".g3/bin/g3-research"), &bench.dir).env("PATH", path);
    let ran = bench.env.run_command(job.arg(question));
    assert_eq!(ran.ok(), "# Found\nit");
    let status = status(&bench).unwrap();
    assert_eq!(status["status"], "complete", "{status}");
    assert_eq!(status["query"], question.replace('\u{1b}', ""));
    assert_eq!((&status["exit_code"], &status["error"]), (&json!(0), &json!("")));
    let argv = fs::read_to_string(bench.env.home().join("argv")).unwrap();
    assert!(argv.starts_with("--agent\nscout\n--new-session\n--quiet\n--\nwhich"), "{argv}");
    let id = status["id"].as_str().unwrap();
    let told = bench.env.run(bench.dir.join(".g3/bin/g3-research"), &bench.dir, ["--status", id]);
    assert_eq!(told.json()["id"], id);
}

#[test]
fn failed_or_stopped_research_is_reported() {
    for (says, code, words) in [
        ("echo 'no model' >&2; exit 3", 3, "no model"),
        ("echo nothing of use", 1, "no report between its markers"),
    ] {
        let bench = Bench::new("g3");
        bench.call("skill", json!({"name": "research"})).works();
        let path = fake_g3(&bench, says);
        let job = bench.env.command(bench.dir.join(".g3/bin/g3-research"), &bench.dir);
        bench
            .env
            .run_command(job.env("PATH", path).arg("why?"))
            .exits(code)
            .output_contains("no report");
        let status = status(&bench).unwrap();
        assert_eq!(status["status"], "failed");
        assert!(status["error"].as_str().unwrap().contains(words), "{status}");
    }
    let bench = Bench::new("g3");
    bench.call("skill", json!({"name": "research"})).works();
    let path = fake_g3(&bench, "touch \"$HOME/asked\"; exec sleep 100");
    let job = bench.env.command(bench.dir.join(".g3/bin/g3-research"), &bench.dir);
    let mut running = job.env("PATH", path).arg("why?").spawn().unwrap();
    let asked = bench.env.home().join("asked");
    until("the scout is asked", || asked.exists().then_some(()));
    let pid = status(&bench).unwrap()["pid"].to_string();
    bench.env.run("kill", &bench.dir, [pid.as_str()]).ok();
    until("the script ended", || running.child.try_wait().unwrap());
    assert_eq!(status(&bench).unwrap()["status"], "cancelled");
    let script = bench.dir.join(".g3/bin/g3-research");
    for args in [&["  "][..], &[], &["--status", "../x"]] {
        bench.env.run(&script, &bench.dir, args).exits(2);
    }
    let nested = bench.env.command(&script, &bench.dir).env("RESEARCH_OF_G3", "x").arg("why?");
    bench.env.run_command(nested).exits(2).output_contains("no other scout");
}

const REPORT: &str =
    "printf -- '---SCOUT_REPORT_START---\\n# Found\\nit\\n---SCOUT_REPORT_END---\\n'";

/// Replaces the research agent by a program.
fn scout(stage: &mut Stage, says: &str) {
    let file = stage.env.home().join("scout");
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$HOME/argv\"\n{says}\n");
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    stage.env.set("G3_RESEARCH_PROGRAM", file.display());
}

#[test]
fn the_tool_returns_the_report_of_an_agent_with_the_same_model() {
    let question = json!({"query": "which\n'crate'?"});
    let mut stage =
        Stage::new([ScriptedReply::call("research", question), ScriptedReply::says("done")]);
    stage.env.set("SOME_API_KEY", "sesame");
    scout(&mut stage, &format!("[ \"$SOME_API_KEY\" = sesame ] || exit 7\n{REPORT}"));
    stage.g3(["find out"]).ok();
    let asked = stage.asked();
    assert_eq!(asked[1].tool_results()[0].1, "# Found\nit\n");
    let argv = fs::read_to_string(stage.env.home().join("argv")).unwrap();
    assert!(
        argv.contains("--provider\nanthropic.scripted\n--model\nscripted\n--\nwhich\n'crate'?"),
        "{argv}"
    );
    let dir = fs::read_dir(stage.repo.path().join(".g3/research")).unwrap().next().unwrap();
    let status = fs::read(dir.unwrap().path().join("status.json")).unwrap();
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(
        (&status["status"], &status["query"]),
        (&json!("complete"), &json!("which\n'crate'?"))
    );
    assert_eq!(stage.repo.git(["status", "--porcelain"]).trim(), "", "git does not see it");
}

#[test]
fn a_failing_agent_is_reported_and_no_research_agent_starts_another() {
    let ask = || ScriptedReply::call("research", json!({"query": "why?"}));
    let mut stage =
        Stage::new([ask(), ScriptedReply::says("done"), ask(), ScriptedReply::says("done")]);
    scout(&mut stage, "echo 'no route to anywhere' >&2; exit 3");
    stage.g3(["find out"]).ok();
    let result = stage.asked()[1].tool_results()[0].1.clone();
    assert!(result.contains("no report (exit code 3)"), "{result}");
    stage.env.set("RESEARCH_OF_G3", "research_1");
    stage.g3(["find out"]).ok();
    assert!(stage.asked()[3].tool_results()[0].1.contains("cannot start other research agents"));
}

#[test]
fn cancelled_research_stops_its_agent() {
    let mut stage = Stage::new([ScriptedReply::call("research", json!({"query": "why?"}))]);
    scout(&mut stage, "echo $$ > \"$HOME/pid\"; exec sleep 100");
    let mut running = stage.start(["find out"]);
    let pid_file = stage.env.home().join("pid");
    let pid: u32 =
        until("the scout is asked", || fs::read_to_string(&pid_file).ok()?.trim().parse().ok());
    let g3 = running.id().to_string();
    stage.env.run("kill", stage.env.home(), ["-INT", g3.as_str()]).ok();
    until("g3 ended", || running.child.try_wait().unwrap());
    until("the scout ended", || (!base::process::is_alive(pid)).then_some(()));
}

const BRIEF: &str = "# Which colour\n\nBlue; the README says so.";

/// A model for two conversations: that of the research agent, which reads the README and writes its
/// brief, and that of its caller, with these replies.
fn two_voices(lead: Vec<ScriptedReply>) -> Script {
    Script::by(move |request| {
        let turn = request.assistant_messages();
        if !request.system().contains("You are scout") {
            return lead.get(turn).cloned().expect("the lead has no more to say");
        }
        let brief = format!("Done.\n---SCOUT_REPORT_START---\n{BRIEF}\n---SCOUT_REPORT_END---\n");
        match turn {
            0 => ScriptedReply::call("read_file", json!({"file_path": "README.md"})),
            _ => ScriptedReply::says(brief),
        }
    })
}

/// Returns the requests of the research agent and of its caller.
fn conversations(stage: &Stage) -> (Vec<ReceivedRequest>, Vec<ReceivedRequest>) {
    stage.asked().into_iter().partition(|request| request.system().contains("You are scout"))
}

/// Returns everything in the repository except g3's own files.
fn without_our_own(stage: &Stage) -> BTreeMap<String, String> {
    let mut all = stage.repo.everything();
    all.retain(|name, _| !name.starts_with(".g3"));
    all
}

#[test]
fn a_real_research_agent_reads_writes_nothing_and_returns_its_brief() {
    let ask = ScriptedReply::call("research", json!({"query": "Which colour is it?"}));
    let stage = Stage::new(two_voices(vec![ask, ScriptedReply::says("It is blue.")]));
    stage.repo.write("README.md", "The sky is blue here.\n");
    let before = without_our_own(&stage);

    let ran = stage.g3(["--json", "find out"]);

    ran.ok();
    let (scout, lead) = conversations(&stage);
    assert_eq!((scout.len(), lead.len()), (2, 2));
    assert!(scout[0].first_user().contains("Which colour is it?"));
    assert!(scout[1].tool_results()[0].1.contains("The sky is blue here."));
    for tool in ["write_file", "shell", "research", "str_replace"] {
        assert!(!scout[0].tool_names().contains(&tool.to_owned()), "{tool}");
    }
    assert_eq!(lead[1].tool_results()[0].1.trim_end(), BRIEF);
    assert_eq!(without_our_own(&stage), before, "nobody changed anything");
    let end = ran.json_lines().into_iter().find(|event| event["type"] == "tool_end").unwrap();
    assert_eq!((&end["name"], &end["ok"]), (&json!("research"), &json!(true)));
}

#[test]
fn the_program_of_the_skill_starts_a_real_research_agent() {
    let replies = vec![
        ScriptedReply::call("skill", json!({"name": "research"})),
        ScriptedReply::call(
            "shell",
            json!({"command": ".g3/bin/g3-research 'Which colour is it?'"}),
        ),
        ScriptedReply::says("It is blue."),
    ];
    let mut stage = Stage::new(two_voices(replies));
    stage.repo.write("README.md", "The sky is blue here.\n");
    // It needs g3's configuration, which the command sandbox hides.
    let provider = stage.model.config_toml("anthropic");
    let rule = "[[gate.rules]]\ncommand = \"*g3-research*\"\naction = \"allow\"\n";
    stage.env.config(&format!("{provider}\n{rule}"));
    let beside = std::path::Path::new(crate::agent_env::G3).parent().unwrap().display().to_string();
    stage.env.set("PATH", format!("{beside}:{}", std::env::var("PATH").unwrap()));

    stage.g3(["find out"]).ok();

    let (scout, lead) = conversations(&stage);
    assert_eq!((scout.len(), lead.len()), (2, 3));
    let result = &lead[2].tool_results()[1].1;
    assert!(result.contains(BRIEF), "{result}");
    assert!(!result.contains("SCOUT_REPORT"), "{result}");
}

#[test]
fn web_permission_is_requested_before_a_research_agent_starts() {
    for (answer, allowed) in [("y", true), ("n", false)] {
        let call = ScriptedReply::call("research", json!({ "query": "plums" }));
        let fetch = ScriptedReply::call("webfetch", json!({ "url": "https://docs.invalid/x" }));
        let report = "---SCOUT_REPORT_START---\nread\n---SCOUT_REPORT_END---";
        let replies = [
            vec![call],
            vec![fetch, ScriptedReply::says(report)],
            vec![ScriptedReply::says("done")],
        ];
        let replies: Vec<ScriptedReply> = match allowed {
            true => replies.into_iter().flatten().collect(),
            false => replies.into_iter().step_by(2).flatten().collect(),
        };
        let stage = Stage::new(replies);
        let shown = answered(&stage, "look it up", answer);
        assert!(shown.contains("any page of the public web"), "{shown}");
        let last = stage.asked().pop().unwrap().tool_results().pop().unwrap().1;
        if allowed {
            assert!(last.contains("read"), "{last}");
            let scouts = stage.asked()[2].tool_results();
            assert!(!scouts[0].1.contains("denied"), "{scouts:?}");
        } else {
            assert!(last.contains("denied by the user"), "{last}");
        }
    }
}
