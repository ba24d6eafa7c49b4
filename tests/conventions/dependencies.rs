//! Rules about dependencies: a maximum number, a reason for each, and the layers of the crates.

use crate::source::read;

/// Maximum number of external packages. It is raised deliberately, in a commit whose message says
/// which packages were added.
const MOST_PACKAGES: usize = 640;

#[test]
fn the_lock_file_stays_below_its_maximum() {
    let packages = read("Cargo.lock").matches("\nsource = ").count();
    assert!(packages <= MOST_PACKAGES, "Cargo.lock holds {packages} packages");
}

#[test]
fn every_dependency_has_a_reason() {
    let text = read("Cargo.toml");
    let list = text.split("[workspace.dependencies]").nth(1).expect("the table is there");
    let list = list.split("\n[").next().expect("a first part");
    let mut reason = false;
    for line in list.lines() {
        if line.starts_with('#') {
            reason = true;
        } else if line.is_empty() {
            reason = false;
        } else {
            let name = line.split(" =").next().unwrap_or_default();
            assert!(reason, "`{name}` needs a comment above it that says what it is for");
        }
    }
}

/// Crate -> the crates of this project that it may use; see docs/architecture.md, Layers.
const MAY_USE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("base/grammars", &[]),
    ("planner", &[]),
    ("network", &["base"]),
    ("agent/desktop", &["base"]),
    ("agent/model", &["base"]),
    ("agent/provider", &["base"]),
    ("agent/gate", &["base"]),
    ("agent/skills", &["base", "gate"]),
    ("agent/memory", &["base", "provider"]),
    ("agent/tools", &["base", "gate", "memory", "provider", "skills"]),
    ("agent/tools/standard", &["base", "gate", "memory", "provider", "skills", "tools"]),
    ("agent/tools/syntax", &["base", "gate", "grammars", "provider", "tools"]),
    ("agent/tools/web", &["base", "gate", "provider", "tools"]),
    ("agent/tools/lsp", &["base", "gate", "provider", "tools"]),
    ("agent/tools/mcp", &["base", "gate", "provider", "tools"]),
    ("agent/tools/desktop", &["base", "gate", "provider", "tools"]),
    ("agent/core", &["base", "gate", "mcp_client", "memory", "provider", "skills", "tools"]),
    (
        "agent",
        &[
            "agent_core",
            "base",
            "gate",
            "mcp_client",
            "memory",
            "planner",
            "provider",
            "skills",
            "tools",
        ],
    ),
    (
        "agent/g3",
        &[
            "agent",
            "agent_core",
            "base",
            "desktop_tools",
            "lsp_tools",
            "standard_tools",
            "syntax_tools",
            "tools",
            "web_tools",
        ],
    ),
    ("orchestrator/syntax", &["grammars"]),
    ("orchestrator/git", &["base", "planner", "syntax_merge"]),
    ("orchestrator/core", &["base", "network", "planner", "studio-git"]),
    ("orchestrator", &["base", "planner", "studio-core", "studio-git"]),
    ("tests", &["base"]),
];

/// The names by which source code refers to the crates of this project.
const OURS: [&str; 24] = [
    "agent",
    "agent_core",
    "base",
    "desktop",
    "desktop_tools",
    "gate",
    "grammars",
    "lsp_tools",
    "mcp_client",
    "memory",
    "model",
    "network",
    "orchestrator",
    "planner",
    "provider",
    "skills",
    "standard_tools",
    "syntax_merge",
    "syntax_tools",
    "studio-core",
    "studio-git",
    "testkit",
    "tools",
    "web_tools",
];

#[test]
fn crates_use_only_lower_layers() {
    for (folder, allowed) in MAY_USE {
        let text = read(&format!("{folder}/Cargo.toml"));
        let used = text.split("[dependencies]").nth(1).unwrap_or_default();
        let used = used.split("\n[").next().unwrap_or_default();
        for ours in OURS {
            let names = [format!("{ours}.workspace"), format!("{ours} = ")];
            let uses = used.lines().any(|line| names.iter().any(|name| line.starts_with(name)));
            assert!(!uses || allowed.contains(&ours), "`{folder}` may not use `{ours}`");
        }
    }
}

#[test]
fn only_the_model_host_links_llama() {
    for (folder, _) in MAY_USE.iter().filter(|(folder, _)| *folder != "agent/model") {
        let text = read(&format!("{folder}/Cargo.toml"));
        assert!(!text.contains("llama-cpp-2"), "`{folder}` would need a C++ compiler");
    }
}

#[test]
fn only_the_desktop_helper_links_desktop_libraries() {
    for (folder, _) in MAY_USE.iter().filter(|(folder, _)| *folder != "agent/desktop") {
        let text = read(&format!("{folder}/Cargo.toml"));
        for library in ["enigo", "x11rb", "xcap", "zbus"] {
            assert!(!text.contains(library), "`{folder}` would need a desktop: {library}");
        }
    }
}

#[test]
fn versions_are_declared_in_one_place() {
    for (folder, _) in MAY_USE {
        let text = read(&format!("{folder}/Cargo.toml"));
        let table = text.split("dependencies]").skip(1).collect::<String>();
        for line in table.lines().filter(|line| line.contains('=') && !line.starts_with('#')) {
            let shared = line.contains("workspace = true") || line.contains(".workspace=true");
            let feature = !line.contains("version");
            assert!(shared || feature, "{folder}/Cargo.toml: `{line}` belongs into the workspace");
        }
    }
}
