//! Tests of language server queries: operations, positions, and misbehaving servers.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::env::built;

use crate::lsp_support::{Toys, all_are_gone, with_method};
use crate::tools_support::Bench;

#[test]
fn each_operation_returns_positions_counted_from_one() {
    let toys = Toys::new(&[], "");
    let said = |operation: &str| toys.ask(operation, "a.toy", 0, 5).works().to_owned();
    assert_eq!(said("definition"), "a.toy:1:5");
    assert_eq!(said("references"), "a.toy:1:5\na.toy:3:5\nb.toy:2:1\nb.toy:2:7");
    assert_eq!(said("symbols"), "Function alpha (line 1)\n  Method inner (line 2)");
    assert_eq!(said("hover"), "`alpha` is a toy");
    assert_eq!(said("goToImplementation"), "a.toy:1:5");
    assert_eq!(said("prepareCallHierarchy"), "Function alpha a.toy:1:5");
    let callers = "Function caller a.toy:3:5\nFunction caller b.toy:2:1\nFunction caller b.toy:2:7";
    assert_eq!(said("incomingCalls"), callers);
    assert_eq!(said("outgoingCalls"), "No outgoing calls found");
    let other = toys.bench.call("lsp", json!({ "operation": "symbols", "file": "b.toy" }));
    assert_eq!(other.works(), "Function beta (line 1)");
    let query = json!({ "operation": "workspaceSymbol", "filePath": "a.toy", "query": "bet" });
    assert_eq!(toys.bench.call("lsp", query).works(), "Function beta b.toy:1:5");
    let uses = json!({ "operation": "references", "file": "a.toy", "line": 0, "column": 5,
                       "includeDeclaration": false });
    let found = toys.bench.call("lsp", uses);
    assert_eq!(found.works(), "a.toy:3:5\nb.toy:2:1\nb.toy:2:7");
    assert_eq!(found.metadata["count"], 3);
    assert_eq!(found.metadata["locations"][1], json!({ "path": "b.toy", "line": 2, "column": 1 }));
}

#[test]
fn divergence_13_the_parameter_names_decide_whether_positions_count_from_zero() {
    let toys = Toys::new(&[], "");
    let call = |args: Value| toys.bench.call("lsp", args);
    let zero = json!({ "operation": "definition", "file": "a.toy", "line": 2, "column": 10 });
    assert_eq!(call(zero).works(), "b.toy:1:5");
    let one =
        json!({ "operation": "goToDefinition", "filePath": "a.toy", "line": 3, "character": 11 });
    assert_eq!(call(one).works(), "b.toy:1:5");
    // Neither the operation's name nor a neutral name of the file matters.
    let mixed = json!({ "operation": "definition", "path": "a.toy", "line": 3, "character": 11 });
    assert_eq!(call(mixed).works(), "b.toy:1:5");
    for (args, why) in [
        (json!({ "file": "a.toy", "line": 1, "character": 1 }), "`character` and `file`"),
        (json!({ "filePath": "a.toy", "line": 1, "column": 1 }), "`filePath` and `column`"),
        (json!({ "path": "a.toy", "line": 1, "column": 1, "character": 1 }), "use one of the two"),
        (json!({ "file": "a.toy", "line": 1 }), "column is required for `hover`"),
        (json!({ "file": "a.toy", "column": 1 }), "line is required for `hover`"),
        (json!({ "filePath": "a.toy", "line": 1 }), "character is required for `hover`"),
        (json!({ "filePath": "a.toy", "line": 0, "character": 1 }), "`line` counts from 1"),
        (
            json!({ "file": "a.toy", "line": 99, "column": 0 }),
            "line 100 (counted from 1) does not exist",
        ),
    ] {
        let mut args = args;
        args["operation"] = json!("hover");
        let said = call(args);
        assert!(said.fails("validation").contains(why), "{said:?}");
    }
}

#[test]
fn columns_are_characters_in_every_position_encoding() {
    for encoding in ["utf-8", "utf-16", "utf-32"] {
        let toys = Toys::new(&["--encoding", encoding], "");
        toys.bench.write("c.toy", "𝄞ä😀 def gamma\n😀😀 gamma x\n");
        // After two characters that take two UTF-16 units, or four bytes, each.
        toys.ask("definition", "c.toy", 1, 3).says("c.toy:1:9");
        let found = toys.ask("references", "c.toy", 0, 8);
        assert_eq!(found.works(), "c.toy:1:9\nc.toy:2:4", "{encoding}");
    }
    let toys = Toys::new(&[], "");
    toys.bench.write("c.toy", "😀 def gamma\n");
    toys.ask("definition", "c.toy", 0, 6).says("c.toy:1:7");
    let log = toys.log();
    let asked = with_method(&log, "textDocument/definition")[0];
    assert_eq!(asked["params"]["position"]["character"], 7, "UTF-16 without a word of the server");
    let offered = &log[1]["params"]["capabilities"]["general"]["positionEncodings"];
    assert_eq!(offered, &json!(["utf-32", "utf-8", "utf-16"]));
}

#[test]
fn a_file_is_opened_before_any_query_and_the_server_stops_with_the_call() {
    let toys = Toys::new(&[], "language = \"toy-language\"");
    toys.ask("hover", "a.toy", 0, 5).works();
    let log = toys.log();
    let opened = with_method(&log, "textDocument/didOpen")[0];
    let document = &opened["params"]["textDocument"];
    assert_eq!(document["languageId"], "toy-language");
    assert_eq!(document["text"], toys.bench.read("a.toy"));
    let methods = toys.methods();
    let at = |method: &str| methods.iter().position(|it| it == method).unwrap();
    assert!(at("initialized") < at("textDocument/didOpen"));
    assert!(at("textDocument/didOpen") < at("textDocument/hover"));
    assert!(at("textDocument/hover") < at("textDocument/didClose"));
    assert_eq!(methods[at("textDocument/didClose")..][1..], ["shutdown", "exit"]);
    all_are_gone(&log);
}

#[test]
fn empty_results_are_reported_and_invalid_queries_get_a_hint() {
    let toys = Toys::new(&[], "");
    assert_eq!(toys.ask("definition", "a.toy", 2, 0).works(), "No definition found");
    assert_eq!(toys.ask("references", "b.toy", 2, 99).works(), "b.toy:3:13");
    assert_eq!(toys.ask("hover", "b.toy", 2, 0).says("PATH").metadata["count"], 1);
    assert_eq!(toys.ask("hover", "a.toy", 2, 0).works(), "No hover information");
    toys.bench.write("empty.toy", "nothing\n");
    let said = toys.bench.call("lsp", json!({ "operation": "symbols", "file": "empty.toy" }));
    assert_eq!(said.works(), "No symbols found");
    assert_eq!(said.metadata["count"], 0);
    let said = toys.ask("fly", "a.toy", 0, 0);
    assert!(said.fails("validation").contains("definition, references, symbols, hover"));
    toys.ask("hover", "none.toy", 0, 0).fails("not_found");
    toys.bench.write("binary.toy", [0xff, 0xfe, 0x00]);
    assert!(toys.ask("hover", "binary.toy", 0, 0).fails("failed").contains("not UTF-8"));
}

#[test]
fn without_a_server_the_result_says_what_to_install_and_is_not_a_failure() {
    let toys = Toys::new(&[], "enabled = false");
    let said = toys.ask("hover", "a.toy", 0, 0);
    assert!(said.works().contains("No language server for a.toy"), "{said:?}");
    assert!(toys.log().is_empty(), "one that is switched off is not started");
    toys.bench.env.config("[lsp.toy]\ncommand = \"no-such-server\"\nextensions = [\".toy\"]\n");
    toys.ask("hover", "a.toy", 0, 0).says("The program `no-such-server` of [lsp.toy]").works();
    toys.bench.env.config("[lsp.gleam]\ncommand = \"no-such-gleam\"\n");
    toys.bench.write("a.gleam", "x\n");
    let said = toys.ask("hover", "a.gleam", 0, 0);
    assert!(said.works().contains("install `no-such-gleam` (https://gleam.run)"), "{said:?}");
    assert_eq!(said.metadata["available"], false);
    toys.bench.env.config("[lsp.half]\nextensions = [\".toy\"]\n");
    let args = ["tool", "exec", "--name", "lsp", "--args", "{}"];
    let ran = toys.bench.env.run(crate::tools_support::G3, &toys.bench.dir, args);
    ran.exits(2).output_contains("invalid language server [lsp.half]");
}

#[test]
fn another_known_server_is_used_where_the_first_does_not_start() {
    let mut bench = Bench::new("tools-api");
    let programs = bench.env.home().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let program = |name: &str, script: &str| {
        base::files::replace(&programs.join(name), format!("#!/bin/sh\n{script}\n").as_bytes())
            .unwrap();
        std::fs::set_permissions(programs.join(name), Permissions::from_mode(0o755)).unwrap();
    };
    let path = std::env::var("PATH").unwrap();
    bench.env.set("PATH", format!("{}:{path}", programs.display()));
    bench.write("a.ts", "def alpha\nalpha\n");
    let ask = || {
        let what = json!({ "operation": "symbols", "file": "a.ts" });
        bench.call("lsp", what)
    };
    program("typescript-language-server", "echo no TypeScript >&2; exit 3");
    // Without another one, the first says why. One in `PATH` of the machine would answer as `tsc`.
    program("tsc", "echo an old compiler >&2; exit 1");
    program("tsgo", "exit 1");
    let said = ask();
    assert!(said.works().contains("its last words on stderr: no TypeScript"), "{said:?}");
    program(
        "tsc",
        &format!("test \"$*\" = '--lsp --stdio' && exec {}", built("lsp-server").display()),
    );
    let said = ask();
    assert!(said.works().contains("alpha (line 1)"), "{said:?}");
    bench.env.config("[lsp.typescript]\ncommand = \"no-such-server\"\n");
    let said = ask();
    assert!(said.works().contains("install `no-such-server`"), "the user's own is the only one");
}

#[test]
fn a_crashed_server_is_reported_with_its_stderr() {
    for method in ["initialize", "textDocument/hover", "textDocument/didOpen"] {
        let toys = Toys::new(&["--crash", method], "");
        let said = toys.ask("hover", "a.toy", 0, 5);
        let text = said.works();
        assert!(text.contains("The language server `toy`"), "{method}: {text}");
        assert!(text.contains("code 3; its last words on stderr: I cannot go on"), "{text}");
    }
}

#[test]
fn a_server_that_never_answers_times_out() {
    let toys = Toys::new(&["--mute", "initialize"], "timeout_seconds = 1");
    toys.ask("hover", "a.toy", 0, 5).says("did not answer within 1 s of its start").works();
    all_are_gone(&toys.log());
    toys.configure(&["--mute", "textDocument/hover"], "timeout_seconds = 1");
    toys.ask("hover", "a.toy", 0, 5).says("did not answer within 1 s").works();
    assert!(toys.methods().contains(&"$/cancelRequest".to_owned()), "the question is taken back");
    toys.configure(&["--mute", "shutdown"], "");
    toys.ask("hover", "a.toy", 0, 5).says("is a toy").works();
    all_are_gone(&toys.log());
}

#[test]
fn unsupported_requests_are_not_sent() {
    let toys = Toys::new(&["--without", "hoverProvider"], "");
    toys.ask("hover", "a.toy", 0, 5).says("`toy` does not offer `hover`").works();
    assert!(!toys.methods().contains(&"textDocument/hover".to_owned()));
    toys.ask("definition", "a.toy", 0, 5).says("a.toy:1:5").works();
}

#[test]
fn a_server_with_an_unknown_position_encoding_is_not_used() {
    let toys = Toys::new(&["--encoding", "utf-7"], "");
    toys.ask("hover", "a.toy", 0, 5).says("counts columns in `utf-7`").works();
}

#[test]
fn invalid_messages_are_skipped() {
    let toys = Toys::new(&["--noise"], "");
    toys.ask("hover", "a.toy", 0, 5).says("is a toy").works();
}

#[test]
fn a_server_that_is_still_indexing_is_queried_again() {
    let toys = Toys::new(&["--reading", "3"], "");
    toys.ask("definition", "a.toy", 0, 5).says("a.toy:1:5").works();
    let asked = toys.methods().iter().filter(|it| *it == "textDocument/definition").count();
    assert_eq!(asked, 4);
}

#[test]
fn requests_of_a_server_are_answered() {
    let toys = Toys::new(&["--ask"], "");
    toys.ask("definition", "a.toy", 2, 0).works();
    let log = toys.log();
    let answer = |id: usize| {
        let id = format!("ask-{id}");
        log.iter().find(|it| it["id"] == *id).unwrap_or_else(|| panic!("no answer to {id}"))
    };
    assert_eq!(answer(0)["result"], json!([null, null]));
    assert_eq!(answer(1).get("result"), Some(&Value::Null));
    assert_eq!(answer(2).get("result"), Some(&Value::Null));
    assert_eq!(answer(3)["result"]["applied"], false);
    assert_eq!(answer(4).get("result"), Some(&Value::Null));
    assert_eq!(answer(5)["error"]["code"], -32601);
}

#[test]
fn a_server_gets_the_configured_environment_without_secrets() {
    let mut toys = Toys::new(&[], "env = { TOY_HOME = \"${LANG}\", OWN_TOKEN = \"x\" }");
    toys.bench.env.set("ANTHROPIC_API_KEY", "sk-0");
    toys.bench.env.set("MY_TOKEN", "t-0");
    let said = toys.ask("hover", "b.toy", 2, 3);
    let names: Vec<&str> = said.works().split(' ').collect();
    assert!(names.contains(&"TOY_HOME") && names.contains(&"OWN_TOKEN"), "{names:?}");
    assert!(!names.contains(&"ANTHROPIC_API_KEY") && !names.contains(&"MY_TOKEN"), "{names:?}");
}

#[test]
fn a_repository_configures_a_server_only_if_trusted() {
    let toys = Toys::new(&[], "");
    let config = std::fs::read_to_string(toys.bench.env.home().join(".config/g3/config.toml"));
    toys.bench.env.config("");
    toys.bench.write("g3.toml", config.unwrap());
    toys.ask("hover", "a.toy", 0, 5).says("No language server for a.toy").works();
    assert!(toys.log().is_empty());
    toys.bench.env.run(crate::tools_support::G3, &toys.bench.dir, ["trust"]).ok();
    toys.ask("hover", "a.toy", 0, 5).says("is a toy").works();
}

#[test]
fn a_file_outside_the_work_tree_passes_through_the_gate() {
    let toys = Toys::new(&[], "");
    std::fs::write(toys.bench.env.home().join("out.toy"), "def out\n").unwrap();
    toys.ask("hover", "../out.toy", 0, 5).fails("denied");
    assert!(toys.log().is_empty());
}

#[test]
fn a_real_server_answers_about_a_real_project() {
    let rustup = |what: &str| std::env::var(what).ok();
    let home = rustup("HOME").unwrap();
    let bench = Bench::new("g3");
    let rust = rustup("RUSTUP_HOME").unwrap_or_else(|| format!("{home}/.rustup"));
    let cargo = rustup("CARGO_HOME").unwrap_or_else(|| format!("{home}/.cargo"));
    bench.env.config(&format!(
        "[lsp.rust]\ntimeout_seconds = 90\nenv = {{ RUSTUP_HOME = {}, CARGO_HOME = {}, \
         CARGO_NET_OFFLINE = \"true\", RUSTUP_TOOLCHAIN = {} }}\n",
        json!(rust),
        json!(cargo),
        json!(rustup("RUSTUP_TOOLCHAIN").unwrap_or_else(|| "stable".to_owned()))
    ));
    bench.write(
        "Cargo.toml",
        "[package]\nname = \"toy\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    bench.write("src/main.rs", "mod other;\n\nfn main() {\n    other::hello();\n}\n");
    bench.write("src/other.rs", "/// Says 😀 hello.\npub fn hello() {}\n");
    let ask = |operation: &str| {
        let args =
            json!({ "operation": operation, "file": "src/main.rs", "line": 3, "column": 12 });
        let said = bench.call("lsp", args);
        assert!(
            said.metadata["available"] != false,
            "this test needs rust-analyzer; `./setup --tests` installs it: {}",
            said.text
        );
        said.works().to_owned()
    };
    assert_eq!(ask("definition"), "src/other.rs:2:8");
    assert_eq!(ask("references"), "src/main.rs:4:12\nsrc/other.rs:2:8");
    assert!(ask("hover").contains("Says 😀 hello."));
    assert_eq!(ask("symbols"), "Module other (line 1)\nFunction main (line 3)");
    assert_eq!(ask("incomingCalls"), "Function main src/main.rs:3:4");
}
