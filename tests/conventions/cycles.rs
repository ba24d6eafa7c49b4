//! No import cycle spans more than one folder of a crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::rust_files;

/// The path of a module, by its names from the root of the crate.
type Module = Vec<String>;

/// The checked crates, by their source folders.
const CRATES: &[&str] = &[
    "agent/src/",
    "agent/core/src/",
    "agent/desktop/src/",
    "agent/g3/src/",
    "agent/gate/src/",
    "agent/memory/src/",
    "agent/model/src/",
    "agent/provider/src/",
    "agent/skills/src/",
    "agent/tools/src/",
    "agent/tools/desktop/src/",
    "agent/tools/lsp/src/",
    "agent/tools/mcp/src/",
    "agent/tools/standard/src/",
    "agent/tools/syntax/src/",
    "agent/tools/web/src/",
    "base/grammars/src/",
    "base/src/",
    "network/src/",
    "orchestrator/core/src/",
    "orchestrator/git/src/",
    "orchestrator/src/",
    "orchestrator/syntax/src/",
    "planner/src/",
];

#[test]
fn no_import_cycle_spans_more_than_one_folder() {
    let mut wrong = String::new();
    for source in CRATES {
        let files = Files::of(source);
        for cycle in files.cycles() {
            if files.folders(&cycle).len() > 1 {
                wrong.push_str(&format!(
                    "{source}: {} files:\n{}\n",
                    cycle.len(),
                    files.shown(&cycle)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "import cycles over more than one folder\n{wrong}");
}

/// The production files of a crate and their imports.
struct Files {
    names: Vec<String>,
    uses: Vec<BTreeSet<usize>>,
}

impl Files {
    fn of(source: &str) -> Files {
        let files = rust_files();
        let files = files.iter().filter(|file| file.is_production());
        let named = files.filter_map(|file| {
            let name = file.name.strip_prefix(source)?.to_owned();
            let is_tests = name.ends_with("/tests.rs") || name == "main.rs";
            (!is_tests).then(|| (name, code(&file.production())))
        });
        let (names, texts): (Vec<String>, Vec<String>) = named.unzip();
        let modules: BTreeMap<Module, usize> =
            names.iter().enumerate().map(|(at, name)| (module(name), at)).collect();
        let uses = |(at, text): (usize, &String)| {
            let used = used(&module(&names[at]), text, &modules);
            used.into_iter().filter(|used| *used != at).collect()
        };
        let uses = texts.iter().enumerate().map(uses).collect();
        Files { names, uses }
    }

    /// Returns the folder of a module: that of its children, if it has any.
    fn folder(&self, at: usize) -> &str {
        let name = &self.names[at];
        let own = name.trim_end_matches(".rs");
        let has_children = self
            .names
            .iter()
            .any(|it| it.strip_prefix(own).is_some_and(|rest| rest.starts_with('/')));
        if has_children { own } else { name.rsplit_once('/').map_or("", |(folder, _)| folder) }
    }

    fn folders(&self, cycle: &[usize]) -> BTreeSet<&str> {
        cycle.iter().map(|at| self.folder(*at)).collect()
    }

    fn shown(&self, cycle: &[usize]) -> String {
        let line = |at: &usize| {
            let within = self.uses[*at].iter().filter(|used| cycle.contains(used));
            let within: Vec<&str> = within.map(|used| self.names[*used].as_str()).collect();
            format!("{} uses {}", self.names[*at], within.join(", "))
        };
        cycle.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Returns the strongly connected components of more than one file.
    fn cycles(&self) -> Vec<Vec<usize>> {
        let reached: Vec<BTreeSet<usize>> =
            (0..self.names.len()).map(|at| self.reach(at)).collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for at in 0..self.names.len() {
            let both = |other: &usize| reached[*other].contains(&at);
            let cycle: Vec<usize> = reached[at].iter().copied().filter(both).collect();
            if cycle.len() > 1 && seen.insert(cycle.clone()) {
                cycles.push(cycle);
            }
        }
        cycles
    }

    fn reach(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            open.extend(self.uses[at].iter().copied().filter(|next| reached.insert(*next)));
        }
        reached
    }
}

/// Returns the module path of a file: `tools/edit/mod.rs` and `tools/edit.rs` are `tools::edit`.
fn module(name: &str) -> Module {
    let name = name.trim_end_matches(".rs");
    let name = name.strip_suffix("/mod").unwrap_or(name);
    if name == "lib" { Vec::new() } else { name.split('/').map(str::to_owned).collect() }
}

/// Returns a source text without comments.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the files whose modules a source text uses: through `crate::`, `super::` and `self::`,
/// through the names of its own submodules, and through imported modules.
fn used(own: &Module, text: &str, modules: &BTreeMap<Module, usize>) -> BTreeSet<usize> {
    let parent = own.split_last().map_or(own.as_slice(), |(_, parent)| parent);
    let mut starts: BTreeMap<String, Module> = BTreeMap::new();
    for child in modules.keys().filter(|it| it.len() == own.len() + 1 && it.starts_with(own)) {
        starts.insert(child[own.len()].clone(), child.clone());
    }
    starts.insert("crate".into(), Vec::new());
    starts.insert("super".into(), parent.to_vec());
    starts.insert("self".into(), own.clone());
    let mut found = BTreeSet::new();
    // The second pass knows the modules that the first pass found to be imported.
    for _ in 0..2 {
        let mut imported = Vec::new();
        for path in paths(text) {
            let Some(start) = path.first().and_then(|first| starts.get(first)) else { continue };
            let whole: Module = start.iter().chain(&path[1..]).cloned().collect();
            let known = (0..=whole.len()).rev().find(|n| modules.contains_key(&whole[..*n]));
            let Some(known) = known else { continue };
            found.insert(modules[&whole[..known]]);
            if known == whole.len() && path.len() > 1 {
                imported.push((path[path.len() - 1].clone(), whole));
            }
        }
        starts.extend(imported);
    }
    found
}

/// Returns all paths of a source text, such as `crate::a::B`, with `use` trees expanded.
fn paths(text: &str) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_word) {
        let before = rest[..at].ends_with("::") || rest[..at].ends_with('$');
        rest = &rest[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if before || !rest[end..].starts_with("::") {
            rest = &rest[end..];
            continue;
        }
        let length = tree(rest, &[], &mut found);
        rest = &rest[length..];
    }
    found
}

/// Parses one `use` tree, `a::b::{c, d::E}`; returns its length.
fn tree(text: &str, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        let word = text[at..].find(|c: char| !c.is_alphanumeric() && c != '_');
        let end = word.map_or(text.len(), |length| at + length);
        if end > at {
            path.push(text[at..end].to_owned());
        }
        at = end;
        if !text[at..].starts_with("::") {
            found.push(path);
            return at;
        }
        at += 2;
        if text[at..].starts_with('{') {
            at += 1;
            loop {
                at += text[at..].len() - text[at..].trim_start_matches([' ', '\n', ',']).len();
                if text[at..].is_empty() || text[at..].starts_with('}') {
                    return (at + 1).min(text.len());
                }
                let length = tree(&text[at..], &path, found);
                at += if length == 0 { 1 } else { length };
            }
        }
        if !text[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            found.push(path);
            return at;
        }
    }
}

#[test]
fn the_path_parser_recognizes_every_form() {
    let text = "use crate::a::{b::C, d}; use super::e; fn f() { e::g::h(); self::i() } $crate::no";
    let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["crate::a::b::C", "crate::a::d", "super::e", "e::g::h", "self::i"]);
}

#[test]
fn a_cycle_is_found_through_submodules_and_imported_modules() {
    let names = ["lib.rs", "a/mod.rs", "a/b.rs", "c.rs"];
    let modules: BTreeMap<Module, usize> =
        names.iter().enumerate().map(|(at, name)| (module(name), at)).collect();
    let used = |at: usize, text: &str| used(&module(names[at]), text, &modules);
    assert_eq!(used(1, "mod b; fn f() { b::g() }"), BTreeSet::from([2]));
    assert_eq!(used(2, "use crate::c; use super::X; fn f() { c::h() }"), BTreeSet::from([1, 3]));
    assert_eq!(used(3, "use crate::a; fn f() { a::b::g() }"), BTreeSet::from([1, 2]));
}
