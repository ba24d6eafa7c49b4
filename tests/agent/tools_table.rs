//! Tests of the table of tools: names, schemas, and calls that match none of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tools::kind::ToolKind;
use tools::profile::{Profile, tools};
use tools::tool_switches::{ToolSwitches, offered_tools};

use crate::tools_support::{Bench, G3};

#[test]
fn every_tool_has_a_valid_schema_and_is_found_by_its_name() {
    let bench = Bench::new("g3");
    for profile in ["g3", "egirl", "tools-api", "core", "all"] {
        let listed =
            bench.env.run(G3, &bench.dir, ["tool", "list", "--profile", profile, "--schemas"]);
        let tools: Vec<Value> = serde_json::from_str(listed.ok()).unwrap();
        let names: BTreeSet<&str> = tools.iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), tools.len(), "duplicate name in {profile}");
        for tool in &tools {
            let name = tool["name"].as_str().unwrap();
            assert!(!tool["description"].as_str().unwrap().is_empty(), "{name}");
            let switch = match name {
                "rehydrate" => "--acd",
                "propose_plan" => "plan mode",
                "suggest_escalation" => "providers.escalation",
                "skill" => "skills.enabled",
                "memory_search" | "memory_get" | "memory_set" => "memory.enabled",
                "execute_browser" => "--webdriver, --chrome-headless or webdriver.enabled",
                name if name.starts_with("webdriver_") => {
                    "--webdriver, --chrome-headless or webdriver.enabled"
                }
                "apply_patch" => "another name",
                "execute_computer_use" => "computer_control.computer_use_provider",
                "take_screenshot"
                | "screenshot"
                | "mouse_click"
                | "type_text"
                | "find_element"
                | "list_windows"
                | "execute_gui"
                | "observe_screen"
                | "get_ui_context"
                | "execute_accessible"
                | "maximize_active_window" => "computer_control.enabled",
                _ => "always",
            };
            assert_eq!(tool["enabled_by"], switch, "{name}");
            let schema = &tool["parameters"];
            assert_eq!(schema["type"], "object", "{name}");
            let properties = schema["properties"].as_object().unwrap();
            for (key, property) in properties {
                assert!(property["type"].is_string(), "{name}.{key}");
                assert!(property["description"].is_string(), "{name}.{key} has no description");
            }
            for required in schema["required"].as_array().unwrap() {
                assert!(properties.contains_key(required.as_str().unwrap()), "{name}: {required}");
            }
        }
    }
}

/// Each documented tool: its profile, name, and parameters, required and optional.
const DOCUMENTED: &[(Profile, &str, &[&str], &[&str])] = &[
    (Profile::G3, "shell", &["command"], &[]),
    (Profile::G3, "background_process", &["name", "command"], &["working_dir"]),
    (Profile::G3, "read_file", &["file_path"], &["start", "end"]),
    (Profile::G3, "read_image", &["file_paths"], &[]),
    (Profile::G3, "code_coverage", &[], &[]),
    (Profile::G3, "write_file", &["file_path", "content"], &[]),
    (Profile::G3, "str_replace", &["file_path", "diff"], &["start", "end"]),
    (Profile::G3, "code_search", &["searches"], &["max_concurrency", "max_matches_per_search"]),
    (Profile::G3, "todo_read", &[], &[]),
    (Profile::G3, "todo_write", &["content"], &[]),
    (Profile::G3, "research", &["query"], &[]),
    (Profile::G3, "remember", &["notes"], &[]),
    (Profile::G3, "skill", &["name"], &["file"]),
    (Profile::G3, "memory_search", &["query"], &["limit"]),
    (Profile::Egirl, "memory_search", &["query"], &["limit"]),
    (Profile::Egirl, "memory_get", &["key"], &[]),
    (Profile::Egirl, "memory_set", &["key", "value"], &[]),
    (Profile::Egirl, "read_file", &["path"], &["start_line", "end_line"]),
    (Profile::Egirl, "write_file", &["path", "content"], &["create_directories"]),
    (Profile::Egirl, "edit_file", &["path", "old_text", "new_text"], &[]),
    (Profile::Egirl, "execute_command", &["command"], &["working_dir", "timeout"]),
    (Profile::Egirl, "glob_files", &["pattern"], &["dir"]),
    (Profile::ToolsApi, "todowrite", &["todos"], &["phases"]),
    (Profile::ToolsApi, "grep", &["pattern"], &["path", "include"]),
    (Profile::ToolsApi, "glob", &["pattern"], &["path"]),
    (Profile::ToolsApi, "lsp", &["operation", "file"], &["line", "column", "includeDeclaration"]),
    (Profile::ToolsApi, "write", &["filePath", "content"], &[]),
    (Profile::ToolsApi, "edit", &["filePath", "oldString", "newString"], &["replaceAll"]),
    (
        Profile::ToolsApi,
        "bash",
        &["command", "description"],
        &["timeout", "run_in_background", "workdir"],
    ),
    (Profile::ToolsApi, "webfetch", &["url"], &["format", "timeout"]),
    (Profile::ToolsApi, "codesearch", &["query"], &["tokens_num"]),
    (
        Profile::ToolsApi,
        "websearch",
        &["query"],
        &["num_results", "livecrawl", "search_type", "context_max_characters"],
    ),
    (Profile::G3, "take_screenshot", &["path", "window_id"], &["region"]),
    (Profile::G3, "mouse_click", &["x", "y"], &["button"]),
    (Profile::G3, "type_text", &["text"], &[]),
    (Profile::G3, "find_element", &[], &["text", "role", "attributes", "app"]),
    (Profile::G3, "list_windows", &[], &[]),
    (Profile::Egirl, "screenshot", &[], &["display", "region"]),
    (Profile::Core, "execute_gui", &["action"], &["x", "y", "text", "key", "direction", "clicks"]),
    (Profile::Core, "observe_screen", &[], &["mode", "intent"]),
    (Profile::Core, "get_ui_context", &[], &["max_depth"]),
    (Profile::Core, "execute_accessible", &["action"], &["element_name", "value"]),
    (Profile::Core, "execute_computer_use", &["instruction"], &[]),
    (Profile::Core, "maximize_active_window", &[], &[]),
    (Profile::Core, "execute_cli", &["command"], &[]),
    (Profile::Core, "wait", &["seconds"], &[]),
    (Profile::Core, "get_action_history", &[], &["last_n"]),
    (Profile::Core, "execute_browser", &["action"], &["url", "params"]),
    (Profile::G3, "webdriver_start", &[], &[]),
    (Profile::G3, "webdriver_navigate", &["url"], &[]),
    (Profile::G3, "webdriver_get_url", &[], &[]),
    (Profile::G3, "webdriver_get_title", &[], &[]),
    (Profile::G3, "webdriver_find_element", &["selector"], &[]),
    (Profile::G3, "webdriver_find_elements", &["selector"], &[]),
    (Profile::G3, "webdriver_click", &["selector"], &[]),
    (Profile::G3, "webdriver_send_keys", &["selector", "text"], &["clear_first"]),
    (Profile::G3, "webdriver_execute_script", &["script"], &[]),
    (Profile::G3, "webdriver_get_page_source", &[], &["max_length", "save_to_file"]),
    (Profile::G3, "webdriver_screenshot", &["path"], &[]),
    (Profile::G3, "webdriver_back", &[], &[]),
    (Profile::G3, "webdriver_forward", &[], &[]),
    (Profile::G3, "webdriver_refresh", &[], &[]),
    (Profile::G3, "webdriver_quit", &[], &[]),
];

#[test]
fn the_documented_parameters_exist() {
    for (profile, name, required, optional) in DOCUMENTED {
        let known = tools(*profile);
        let face = known.iter().find(|face| face.name == *name).unwrap();
        assert_eq!(face.required().collect::<Vec<_>>(), *required, "{name}");
        let properties = face.parameters["properties"].as_object().unwrap();
        let shown: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        let expected: BTreeSet<&str> = required.iter().chain(*optional).copied().collect();
        assert_eq!(shown, expected, "{name}");
    }
}

#[test]
fn the_g3_profile_has_one_tool_per_kind() {
    let mut engines: Vec<ToolKind> = Vec::new();
    for face in tools(Profile::G3) {
        assert!(!engines.contains(&face.kind), "duplicate kind: {}", face.name);
        engines.push(face.kind);
    }
}

#[test]
fn the_offered_tools_are_stable_and_few_for_small_models() {
    let all = ToolSwitches::default();
    assert_eq!(offered_tools(Profile::G3, all), offered_tools(Profile::G3, all));
    let few = offered_tools(Profile::G3, ToolSwitches { small: true, ..ToolSwitches::default() });
    let names: Vec<&str> = few.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["shell", "read_file", "write_file", "edit"]);
}

#[test]
fn the_content_of_a_file_may_be_given_as_json() {
    let bench = Bench::new("g3");
    let content = json!({"name": "app", "ports": [80, 443]});
    bench.call("write_file", json!({"file_path": "a.json", "content": content})).works();
    let written: Value = serde_json::from_str(&bench.read("a.json")).unwrap();
    assert_eq!(written, content);
    let few = offered_tools(Profile::G3, ToolSwitches { small: true, ..ToolSwitches::default() });
    let types = &few[2].parameters["properties"]["content"]["type"];
    assert_eq!(types, &json!(["string", "object", "array"]));
}

#[test]
fn arguments_are_lenient_in_type_and_strict_in_meaning() {
    let bench = Bench::new("g3");
    bench.write("a.txt", "0123456789");
    let read = |args: Value| bench.call("read_file", args);
    read(json!({ "file_path": "a.txt", "start": "2", "end": 5.0 })).says("\n234");
    read(json!({ "file_path": "a.txt", "start": null, "colour": 1 }))
        .says("ignored unknown parameter `colour`")
        .works();
    let bad = |args: Value| read(args).fails("validation").to_owned();
    assert!(bad(json!({})).contains("missing required parameter `file_path`"));
    assert!(
        bad(json!({ "file_path": "a.txt", "start": 1.5 })).contains("`start` must be an integer")
    );
    assert!(
        bad(json!({ "file_path": "a.txt", "start": -1 })).contains("`start` must be at least 0")
    );
    assert!(bad(json!({ "file_path": ["a.txt"] })).contains("`file_path` must be a string"));
    assert!(bad(json!({ "file_path": "a.txt", "path": "b.txt" })).contains("contradict"));
    assert!(
        bad(json!({ "file_path": "a.txt", "start": 1, "start_line": 1 })).contains("do not mix")
    );
    assert!(bad(json!({})).contains("- file_path (string, required)"));
    read(json!({ "file_path": "a.txt", "path": "a.txt" })).works();
}

#[test]
fn an_unknown_tool_suggests_a_similar_one() {
    let bench = Bench::new("g3");
    let unknown = bench.call("readfile", json!({}));
    unknown.says("unknown tool `readfile`").says("`read_file`").fails("unknown_tool");
    let malformed = bench.call_text("shell", r#"{"command": "ls"#);
    malformed.says("break off").says("- command (string, required)").fails("validation");
    bench.call_text("shell", "[1]").says("not a JSON object").fails("validation");
}

#[test]
fn names_of_other_profiles_work_if_unambiguous() {
    let bench = Bench::new("tools-api");
    bench.call("execute_cli", json!({ "command": "echo hi" })).says(r#""stdout":"hi\n""#).works();
    // Two profiles have write_file; the parameters decide.
    bench.call("write_file", json!({ "path": "a", "content": "é" })).says("1 characters").works();
    bench.call("write_file", json!({ "file_path": "a", "content": "é" })).says("2 bytes").works();
    let both = bench.call("write_file", json!({ "content": "x" }));
    both.says("g3, egirl").fails("unknown_tool");
}

#[test]
fn the_tools_page_matches_the_table() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md");
    let bench = Bench::new("g3");
    let made = bench.env.run(G3, &bench.dir, ["tool", "list", "--markdown"]);
    made.ok();
    let page = std::fs::read_to_string(page).unwrap_or_default();
    assert!(
        page == made.out,
        "docs/tools.md is out of date; run: g3 tool list --markdown > docs/tools.md"
    );
}

#[test]
fn the_full_suite_has_a_name_for_each_capability() {
    let suite: Vec<&str> = tools(Profile::G3).iter().map(|face| face.kind.family()).collect();
    for face in tools(Profile::All) {
        assert!(suite.contains(&face.kind.family()), "no name for what {} does", face.name);
    }
}
