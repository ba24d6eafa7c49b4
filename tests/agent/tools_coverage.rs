//! Tests of `code_coverage` with a fake cargo on the PATH.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::env::{TestEnv, until};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::tools_support::{Bench, Called};

/// Puts a cargo on the PATH that runs this script.
fn cargo(env: &mut TestEnv, script: &str) {
    let bin = env.home().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("cargo"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    env.set("PATH", format!("{}:{path}", bin.display()));
}

fn measured(script: &str) -> Called {
    let mut bench = Bench::new("g3");
    cargo(&mut bench.env, script);
    bench.call("code_coverage", json!({}))
}

/// Returns the output of `llvm-cov export -summary-only` for these files: name, lines, covered
/// lines.
fn export(files: &[(String, u64, u64)]) -> Value {
    let part = |count: u64, covered: u64| json!({"count": count, "covered": covered, "percent": 0});
    let summary = |count, covered| {
        json!({"lines": part(count, covered), "functions": part(3, 2), "regions": part(9, 9),
            "branches": part(0, 0), "instantiations": part(3, 2)})
    };
    let sum = |of: fn(&(String, u64, u64)) -> u64| files.iter().map(of).sum::<u64>();
    let list: Vec<Value> = files
        .iter()
        .map(|(name, count, covered)| json!({"filename": name, "summary": summary(*count, *covered)}))
        .collect();
    json!({"data": [{"files": list, "totals": summary(sum(|f| f.1), sum(|f| f.2))}],
        "type": "llvm.coverage.json.export", "version": "2.0.1"})
}

#[test]
fn the_files_with_most_uncovered_lines_come_first() {
    let mut bench = Bench::new("g3");
    let at = |name: &str| bench.at(name);
    let files =
        [(at("src/whole.rs"), 10, 10), (at("src/half.rs"), 40, 20), ("/else/x.rs".into(), 4, 3)];
    bench.write("report.json", format!("{{ no report\n{}\n", export(&files)));
    let script =
        "echo \"$CARGO_LLVM_COV_SETUP $*\" > called; echo 'running 3 tests' >&2; cat report.json";
    cargo(&mut bench.env, script);
    let called = bench.call("code_coverage", json!({}));
    called.says("All tests passed. Lines that they ran: 61.1 % (33 of 54)").works();
    let rows: Vec<&str> = called.text.lines().skip(1).take(3).collect();
    let expected = [
        "50.0 % (20 of 40)  src/half.rs",
        "75.0 % (3 of 4)  /else/x.rs",
        "100.0 % (10 of 10)  src/whole.rs",
    ];
    assert_eq!(rows, expected);
    assert_eq!(
        called.metadata["files"][0],
        json!({"path": "src/half.rs", "lines": 40, "covered": 20})
    );
    assert_eq!(bench.read("called"), "no llvm-cov --workspace --json --summary-only\n");
}

#[test]
fn the_report_of_a_large_workspace_is_truncated() {
    let mut bench = Bench::new("g3");
    let files: Vec<_> = (0..900).map(|n| (bench.at(format!("src/{n}.rs")), 1000, n)).collect();
    bench.write("report.json", export(&files).to_string());
    cargo(&mut bench.env, "cat report.json");
    let called = bench.call("code_coverage", json!({}));
    called.says("src/0.rs").says("src/99.rs").says("[800 more files").works();
    assert!(called.text.len() < 10_000 && !called.text.contains("src/100.rs"));
}

#[test]
fn missing_components_are_reported_with_a_hint() {
    let without = measured("echo 'error: no such command: `llvm-cov`' >&2; exit 101");
    without
        .says("cargo-llvm-cov is not installed")
        .says("cargo install cargo-llvm-cov")
        .fails("failed");
    let tools = "error: failed to find llvm-tools-preview, please install llvm-tools-preview";
    measured(&format!("echo '{tools}' >&2; exit 1")).says("rustup component add").fails("failed");
    let manifest = "error: could not find `Cargo.toml` in `/x` or any parent directory";
    measured(&format!("echo '{manifest}' >&2; exit 101")).says("no Cargo.toml").fails("failed");
    let mut bench = Bench::new("g3");
    let bin = bench.env.home().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).unwrap();
    bench.env.set("PATH", bin.display());
    bench.call("code_coverage", json!({})).says("cargo was not found").fails("failed");
}

#[test]
fn system_programs_replace_the_missing_component() {
    let mut bench = Bench::new("g3");
    bench.write("report.json", export(&[(bench.at("src/a.rs"), 4, 4)]).to_string());
    let refuses =
        "[ -n \"$LLVM_COV\" ] || { echo 'error: failed to find llvm-tools-preview' >&2; exit 1; }
echo \"$LLVM_COV $LLVM_PROFDATA\" > tools; cat report.json";
    cargo(&mut bench.env, refuses);
    let bin = bench.env.home().join("bin");
    let program = |name: &str, script: &str| {
        fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("rustc", "echo 'rustc 1.0'; echo 'LLVM version: 977.1.2'");
    bench.call("code_coverage", json!({})).says("rustup component add").fails("failed");
    program("llvm-cov-977", "");
    program("llvm-profdata-977", "");
    let called = bench.call("code_coverage", json!({}));
    called.says("100.0 % (4 of 4)  src/a.rs").works();
    let bin = bin.display();
    called.says(&format!("LLVM_PROFDATA='{bin}/llvm-profdata-977' cargo llvm-cov report"));
    assert_eq!(bench.read("tools"), format!("{bin}/llvm-cov-977 {bin}/llvm-profdata-977\n"));
}

#[test]
fn failing_tests_are_shown_and_long_output_is_truncated() {
    let script = "i=0; while [ $i -lt 3000 ]; do echo \"noise $i\"; i=$((i+1)); done
echo 'test tests::adds ... FAILED'; echo 'error: test failed' >&2; exit 101";
    let called = measured(script);
    called.says("the tests failed").says("tests::adds ... FAILED").says("exit code 101");
    called.says("left out").fails("failed");
    assert!(called.text.len() < 15_000, "{}", called.text.len());
    measured("echo done").says("its report cannot be read").fails("failed");
}

#[test]
fn a_timeout_kills_all_processes() {
    let mut bench = Bench::new("g3");
    cargo(&mut bench.env, "sleep 60 & echo $! > pid; echo building >&2; wait");
    let called = bench.call("code_coverage", json!({ "timeout": 1500 }));
    called.says("longer than 1500 ms").says("building").fails("timeout");
    let pid: u32 = bench.read("pid").trim().parse().unwrap();
    until("the child to be gone", || (!base::process::is_alive(pid)).then_some(()));
}

#[test]
fn the_gate_checks_it_like_a_command() {
    let mut bench = Bench::new("g3");
    bench.env.config("[[gate.rules]]\ncommand = \"cargo llvm-cov*\"\naction = \"deny\"\n");
    cargo(&mut bench.env, "echo ran > ran");
    bench.call("code_coverage", json!({ "command": "true" })).fails("denied");
    assert!(!bench.has("ran"));
}

#[test]
fn an_interrupt_kills_all_processes() {
    let mut stage = Stage::new([ScriptedReply::call("code_coverage", json!({}))]);
    cargo(&mut stage.env, "sleep 60 & echo $! > pid; wait");
    let mut g3 = stage.start(["measure it"]);
    let file = stage.repo.path().join("pid");
    let child: u32 = until("the child", || fs::read_to_string(&file).ok()?.trim().parse().ok());
    let pid = rustix::process::Pid::from_raw(g3.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let status = g3.wait_until(None).unwrap().unwrap();
    assert_eq!(base::process::exit_code(status), 130);
    until("the child to be gone", || (!base::process::is_alive(child)).then_some(()));
}

#[test]
fn a_model_measures_coverage() {
    let mut stage = Stage::new([
        ScriptedReply::call("code_coverage", json!({})),
        ScriptedReply::says("Half of it is tested."),
    ]);
    let files = [(stage.repo.path().join("src/lib.rs").display().to_string(), 8, 4)];
    cargo(&mut stage.env, &format!("echo '{}'", export(&files)));
    assert_eq!(stage.g3(["how well is it tested?"]).ok(), "Half of it is tested.");
    let asked = stage.asked();
    let (_, result) = &asked[1].tool_results()[0];
    assert!(result.contains("50.0 % (4 of 8)  src/lib.rs"), "{result}");
}
