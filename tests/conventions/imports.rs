//! The layers within a crate: which module may use which of its siblings.

use std::collections::BTreeSet;

use crate::source::rust_files;

/// Top-level module of a crate -> the sibling modules that it may use. A module that is not listed
/// may use none. The order is that of docs/architecture.md, Layers: from the lowest layer up.
const AGENT: &[(&str, &[&str])] = &[
    ("ui", &[]),
    ("trace", &["ui"]),
    ("modes", &["ui"]),
    ("cli", &["ui", "trace", "modes"]),
    ("lib", &[]),
];

const CORE: &[(&str, &[&str])] = &[
    ("bus", &[]),
    ("call_line", &[]),
    ("current_call", &[]),
    ("fragment", &[]),
    ("session_tools", &["fragment"]),
    ("limits", &[]),
    ("loop_detector", &[]),
    ("prompt", &[]),
    ("context", &["fragment"]),
    ("session", &["context"]),
    ("turn", &["limits", "loop_detector", "context"]),
    ("hooks", &["turn"]),
    ("role", &["prompt", "turn"]),
    ("persona", &["prompt", "role"]),
    (
        "run",
        &[
            "bus",
            "call_line",
            "current_call",
            "limits",
            "session",
            "session_tools",
            "prompt",
            "context",
            "turn",
            "hooks",
            "role",
            "persona",
        ],
    ),
    ("lib", &[]),
];

const PROVIDER: &[(&str, &[&str])] = &[
    ("message", &[]),
    ("error", &[]),
    ("provider", &["error", "message"]),
    ("blocking", &[]),
    ("sse", &[]),
    ("models", &["provider"]),
    ("tool_args", &["message"]),
    ("history", &["message", "tool_args"]),
    ("http", &["error"]),
    ("http_error", &["error", "http"]),
    ("oauth", &["error", "http"]),
    ("trace_events", &["error", "http", "message", "provider"]),
    (
        "hosted",
        &[
            "error",
            "http",
            "http_error",
            "message",
            "models",
            "oauth",
            "provider",
            "sse",
            "trace_events",
        ],
    ),
    ("anthropic", WIRE),
    ("gemini", WIRE),
    ("openai_responses", WIRE),
    (
        "openai_chat",
        &[
            "anthropic",
            "error",
            "history",
            "hosted",
            "http_error",
            "message",
            "provider",
            "sse",
            "tool_args",
        ],
    ),
    ("embedded", &["error", "history", "message", "provider"]),
    ("text_calls", &["error", "history", "message", "provider", "tool_args"]),
    ("fallback", &["blocking", "error", "provider"]),
    ("retry", &["error", "fallback", "message", "provider", "trace_events"]),
    (
        "from_config",
        &[
            "anthropic",
            "embedded",
            "fallback",
            "gemini",
            "hosted",
            "http",
            "http_error",
            "models",
            "oauth",
            "openai_chat",
            "openai_responses",
            "provider",
            "retry",
            "text_calls",
        ],
    ),
    ("model_list", &["models", "from_config"]),
    ("lib", &[]),
];

/// The modules that a wire format of a model service may use.
const WIRE: &[&str] =
    &["error", "history", "hosted", "http_error", "message", "provider", "sse", "tool_args"];

const ORCHESTRATOR: &[(&str, &[&str])] = &[
    ("report", &[]),
    ("review", &[]),
    ("commands", &["report", "review"]),
    ("dashboard", &["commands", "report"]),
    ("serve", &["commands", "report"]),
    ("cli", &["commands", "dashboard", "serve"]),
    ("lib", &[]),
    ("main", &[]),
];

const STUDIO_CORE: &[(&str, &[&str])] = &[
    ("sandbox", &[]),
    ("session", &[]),
    ("path_dependencies", &[]),
    ("leases", &[]),
    ("pool_process", &[]),
    ("exec", &["sandbox", "session", "path_dependencies", "leases"]),
    ("check", &["session", "exec"]),
    ("coach_json", &["session"]),
    ("coach_rounds", &[]),
    ("timeline", &["session", "coach_rounds"]),
    ("radar", &["session"]),
    ("interrupt", &[]),
    ("console", &["interrupt"]),
    ("rate_limit", &[]),
    ("launch", &["sandbox", "session", "exec", "rate_limit"]),
    ("notification", &["session"]),
    ("admission", &[]),
    ("run_budget", &["session"]),
    ("queue_reasons", &["session"]),
    (
        "supervisor",
        &[
            "sandbox",
            "session",
            "exec",
            "check",
            "launch",
            "notification",
            "radar",
            "rate_limit",
            "run_budget",
            "pool_process",
        ],
    ),
    (
        "schedule",
        &[
            "session",
            "supervisor",
            "admission",
            "launch",
            "queue_reasons",
            "rate_limit",
            "run_budget",
            "waker",
        ],
    ),
    ("waker", &[]),
    ("project_args", &["project"]),
    (
        "waker_process",
        &["waker", "queue_reasons", "rate_limit", "schedule", "session", "project_args"],
    ),
    ("session_view", &["session", "coach_json", "radar"]),
    ("seen", &["session_view"]),
    ("inbox", &["session", "session_view", "seen", "radar"]),
    ("stats", &["session", "session_view"]),
    ("invariants", &[]),
    ("selftest", &["invariants"]),
    ("trial", &["session", "session_view"]),
    ("overview", &["session", "session_view", "seen", "radar"]),
    ("standing", &["session", "session_view", "radar"]),
    (
        "project",
        &["session", "interrupt", "console", "queue_reasons", "schedule", "session_view", "waker"],
    ),
    ("live_sessions", &["session", "session_view", "seen", "standing", "project", "queue_reasons"]),
    ("session_changes", &["session", "session_view", "project"]),
    ("check_files", &["session", "project"]),
    ("review", &["session", "session_view", "project", "session_changes", "check_files", "radar"]),
    (
        "doctor",
        &["sandbox", "session", "launch", "schedule", "session_view", "standing", "project"],
    ),
    ("fork", &["session", "session_view", "project"]),
    ("create_session", &["session", "schedule", "project", "fork"]),
    ("redact", &[]),
    ("commit_message", &["session", "redact"]),
    ("tree_checks", &["session", "exec", "check", "project"]),
    (
        "place",
        &[
            "session",
            "admission",
            "interrupt",
            "launch",
            "notification",
            "supervisor",
            "project",
            "exec",
            "check",
            "tree_checks",
        ],
    ),
    (
        "landing",
        &[
            "session",
            "exec",
            "tree_checks",
            "place",
            "coach_json",
            "launch",
            "session_view",
            "project",
            "console",
            "commit_message",
            "check_files",
            "interrupt",
            "radar",
        ],
    ),
    (
        "recheck",
        &["session", "session_view", "project", "project_args", "live_sessions", "landing"],
    ),
    ("forge", &["session", "exec", "session_view", "project", "landing"]),
    (
        "attempts",
        &[
            "session",
            "launch",
            "session_view",
            "project",
            "review",
            "redact",
            "tree_checks",
            "landing",
        ],
    ),
    (
        "supervisor_process",
        &[
            "place",
            "recheck",
            "session",
            "exec",
            "interrupt",
            "launch",
            "notification",
            "rate_limit",
            "run_budget",
            "pool_process",
            "supervisor",
            "project",
            "landing",
        ],
    ),
    (
        "interactive",
        &["session", "exec", "session_view", "supervisor", "project", "supervisor_process"],
    ),
    ("lib", &[]),
];

const NETWORK: &[(&str, &[&str])] = &[
    ("client_hello", &[]),
    ("host", &[]),
    ("upstream", &["host"]),
    ("dial", &["host", "upstream"]),
    ("provider_route", &["host"]),
    ("policy", &["host"]),
    ("forward", &[]),
    ("handler", &["client_hello", "host", "dial", "provider_route", "policy"]),
    ("lib", &[]),
];

const BASE: &[(&str, &[&str])] = &[
    ("address", &[]),
    ("allowed_hosts", &["files", "lock", "user_dirs"]),
    ("runtime", &[]),
    ("sync", &[]),
    ("test_hooks", &[]),
    ("text", &[]),
    ("fault", &["sync", "test_hooks"]),
    ("clock", &["fault", "test_hooks"]),
    ("desktop_protocol", &["failure"]),
    ("event", &[]),
    ("failure", &[]),
    ("files", &["fault", "test_hooks"]),
    ("credentials", &["text"]),
    ("id", &[]),
    ("lock", &["fault"]),
    ("parallel", &[]),
    ("process", &["sandbox", "sync"]),
    ("random", &["text"]),
    ("secret", &[]),
    ("user_dirs", &["text"]),
    ("workspace", &[]),
    ("known_repositories", &["files", "user_dirs"]),
    ("git_version", &["failure", "files", "process", "user_dirs"]),
    ("git", &["process", "failure", "git_version"]),
    (
        "sandbox",
        &["failure", "files", "known_repositories", "random", "test_hooks", "text", "user_dirs"],
    ),
    ("redact", &["sandbox"]),
    (
        "config",
        &[
            "clock",
            "failure",
            "files",
            "lock",
            "sandbox",
            "secret",
            "process",
            "test_hooks",
            "text",
        ],
    ),
    (
        "model_host",
        &["config", "event", "failure", "files", "lock", "process", "sync", "test_hooks", "text"],
    ),
    ("lib", &[]),
];

const DESKTOP: &[(&str, &[&str])] = &[
    ("cancel", &[]),
    ("picture", &[]),
    ("ocr", &[]),
    ("window_search", &[]),
    ("x11", &["cancel", "window_search"]),
    ("input_backend", &[]),
    ("keys", &[]),
    ("typing", &["input_backend", "enigo", "cancel", "x11"]),
    ("enigo", &["input_backend", "cancel", "typing"]),
    ("portal", &["input_backend", "cancel"]),
    ("window_system", &["input_backend", "enigo", "portal", "x11"]),
    ("input", &["input_backend", "keys", "enigo", "cancel", "portal", "window_system"]),
    ("capture", &["picture", "portal", "window_system", "window_search", "x11"]),
    ("a11y", &["cancel", "x11"]),
    ("dispatch", &["a11y", "capture", "input", "ocr", "window_system", "x11"]),
    ("serve", &["dispatch"]),
    ("lib", &[]),
    ("main", &[]),
];

#[test]
fn modules_import_only_lower_layers() {
    check("agent/src/", AGENT);
    check("agent/core/src/", CORE);
    check("agent/provider/src/", PROVIDER);
    check("orchestrator/src/", ORCHESTRATOR);
    check("orchestrator/core/src/", STUDIO_CORE);
    check("base/src/", BASE);
    check("network/src/", NETWORK);
    check("agent/desktop/src/", DESKTOP);
}

fn check(folder: &str, layers: &[(&str, &[&str])]) {
    for file in rust_files() {
        let Some(rest) = file.name.strip_prefix(folder) else { continue };
        let module = rest.split(['/', '.']).next().unwrap_or_default();
        // Tests may use every module.
        if module.ends_with("_tests") || file.name.ends_with("/tests.rs") {
            continue;
        }
        let Some((_, allowed)) = layers.iter().find(|(name, _)| *name == module) else {
            panic!(
                "`{folder}{module}` has no place yet: give it one in tests/conventions/imports.rs"
            );
        };
        for used in siblings_used(&file.production()) {
            assert!(
                used == module || allowed.contains(&used.as_str()),
                "{}: `{module}` may not use `{used}`; see docs/architecture.md, Layers",
                file.name
            );
        }
    }
}

/// Returns every `crate::NAME` in a source text, including those inside `use crate::{…}`.
fn siblings_used(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for rest in code.join("\n").split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 0;
                let mut name = String::new();
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => found.extend(first_name(&std::mem::take(&mut name))),
                        c => name.push(c),
                    }
                }
                found.extend(first_name(&name));
            }
            None => found.extend(first_name(rest)),
        }
    }
    found
}

/// Returns the first name of a path, if it is a module (lower case).
fn first_name(path: &str) -> Option<String> {
    let name: String =
        path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    name.starts_with(|c: char| c.is_ascii_lowercase()).then_some(name)
}

#[test]
fn the_import_parser_recognizes_every_form() {
    let text = "use crate::a::X; use crate::{b::{Y, z}, c}; fn f() { crate::d::g(); crate::Big }";
    let found: Vec<String> = siblings_used(text).into_iter().collect();
    assert_eq!(found, ["a", "b", "c", "d"]);
}
