//! Benchmarks of g3's searches against ripgrep, fd and ast-grep: whole processes on a generated
//! repository.
//!
//! Run by `./benches/run`. `BENCH_G3` names the release binary; `BENCH_RG`, `BENCH_FD` and
//! `BENCH_AST_GREP` name the peers; missing ones are omitted. `BENCH_SEARCH_FILES` (5,000) sets the
//! size.

#[allow(dead_code, reason = "a part of it is for other benchmarks")]
mod common {
    pub mod measure;
    pub mod table;
}

use std::fs;
use std::path::{Path, PathBuf};

use base::process::{Command, OutputLimits, Stream};
use common::measure::{adopt_orphans, measure, memory};
use common::table::{Row, head};
use serde_json::{Value, json};

/// Number of interleaved runs of each program.
const TURNS: usize = 21;

/// An ast-grep rule for calls of a function by its name.
const ANY_CALL: &str = "{id: calls, language: rust, rule: {kind: call_expression, \
                        has: {field: function, kind: identifier}}}";

/// A home directory with a repository.
struct Bench {
    place: tempfile::TempDir,
    repo: PathBuf,
}

/// A measured program.
struct Program<'a> {
    name: &'static str,
    job: Box<dyn Fn() -> Command + 'a>,
}

fn main() {
    adopt_orphans();
    let files = std::env::var("BENCH_SEARCH_FILES").ok().and_then(|text| text.parse().ok());
    let bench = Bench::new(files.unwrap_or(5000));
    head();
    bench.text("grep, a rare word", "needle_\\d+", "needle");
    bench.text("grep, a word of many files", "fn step_\\d+1\\(", "step_");
    bench.files();
    let args = ["run", "-p", "needle($$$)", "-l", "rust"];
    bench.syntax("code_search, calls of one function", "(#eq? @f \"needle\")", &args);
    // The query contains no text that a file could lack, so every file is parsed and searched.
    let any = ["scan", "--inline-rules", ANY_CALL];
    bench.syntax("code_search, calls of any function", "", &any);
}

impl Bench {
    /// Creates a repository with this many Rust files, fifty per directory, and some ignored ones.
    fn new(files: usize) -> Bench {
        let place = tempfile::tempdir().expect("a temporary directory can be made");
        let repo = place.path().join("repo");
        for number in 0..files {
            let folder = repo.join(format!("crate{}/src/part{}", number / 500, number / 50));
            fs::create_dir_all(&folder).expect("writable");
            let file = if number % 10 == 9 {
                format!("note{number}.md")
            } else {
                format!("file{number}.rs")
            };
            fs::write(folder.join(file), content(number)).expect("writable");
        }
        let ignored = repo.join("target/debug");
        fs::create_dir_all(&ignored).expect("writable");
        for number in 0..files / 10 {
            fs::write(ignored.join(format!("made{number}.rs")), content(number)).expect("writable");
        }
        fs::write(repo.join(".gitignore"), "target/\n").expect("writable");
        let bench = Bench { place, repo };
        let output = bench.job("git").args(["init", "-q"]).output(OutputLimits::seconds(60));
        assert_eq!(output.expect("git is there").code(), 0);
        bench
    }

    fn text(&self, what: &str, pattern: &str, word: &str) {
        let args = json!({ "pattern": pattern });
        self.must_say("grep", &args, word);
        let rg = |rg: &Path| self.job(rg).args(["-n", pattern]);
        self.row(what, "grep", &args, "BENCH_RG", "rg", &rg);
    }

    fn files(&self) {
        let args = json!({ "pattern": "**/part1*/*[13579].rs" });
        self.must_say("glob", &args, ".rs");
        let fd =
            |fd: &Path| self.job(fd).args(["--glob", "-p", "**/part1*/*[13579].rs", "-t", "f"]);
        self.row("glob, one file in eight", "glob", &args, "BENCH_FD", "fd", &fd);
    }

    /// Measures a search for calls, of a given name or of any.
    fn syntax(&self, what: &str, predicate: &str, peer: &[&str]) {
        let query = format!("((call_expression function: (identifier) @f) @call {predicate})");
        let search = json!({ "name": "calls", "query": query, "language": "rust" });
        let args = json!({ "searches": [search] });
        self.must_say("code_search", &args, "needle");
        let ast_grep = |program: &Path| self.job(program).args(peer).args(["--color", "never"]);
        self.row(what, "code_search", &args, "BENCH_AST_GREP", "ast-grep", &ast_grep);
    }

    /// Measures g3 and its peer in interleaved runs.
    fn row(
        &self,
        what: &str,
        tool: &str,
        args: &Value,
        variable: &str,
        name: &'static str,
        peer: &dyn Fn(&Path) -> Command,
    ) {
        let mut programs = vec![Program { name: "g3", job: Box::new(|| self.g3(tool, args)) }];
        if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
            programs.push(Program { name, job: Box::new(move || peer(&path)) });
        }
        let mut row = Row::new(what, programs.iter().map(|program| program.name));
        for turn in 0..=TURNS {
            for (column, program) in programs.iter().enumerate() {
                let sample = measure(vec![(program.job)()]);
                // The first run fills the caches.
                if turn > 0 {
                    row.add(column, sample);
                }
            }
        }
        for (column, program) in programs.iter().enumerate() {
            row.add_memory(column, memory(vec![(program.job)()]));
        }
        row.print();
    }

    /// Runs a tool once and checks that it found the expected word.
    fn must_say(&self, tool: &str, args: &Value, word: &str) {
        let job = self.g3(tool, args).stdout(Stream::Piped).stderr(Stream::Piped);
        let output = job.output(OutputLimits::seconds(120)).expect("g3 can be started");
        assert!(output.code() == 0 && output.text().contains(word), "{tool}: {}", output.text());
    }

    fn g3(&self, tool: &str, args: &Value) -> Command {
        let g3 = std::env::var_os("BENCH_G3").expect("set by ./benches/run");
        let args = args.to_string();
        self.job(g3).args(["tool", "exec", "--name", tool, "--args", args.as_str()])
    }

    fn job(&self, program: impl AsRef<Path>) -> Command {
        Command::new(program.as_ref(), &self.repo)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.place.path())
            .stdout(Stream::Null)
            .stderr(Stream::Null)
    }
}

/// Returns the content of a file of about 6 KiB; every hundredth contains the rare word.
fn content(number: usize) -> String {
    let mut text = format!("//! Part {number}.\n\nuse std::collections::BTreeMap;\n\n");
    for step in 0..30 {
        text.push_str(&format!(
            "/// Does step {step}.\nfn step_{number}{step}(map: &mut BTreeMap<u32, String>) -> usize {{\n    \
             if map.len() > {step} {{\n        map.insert({step}, format!(\"{{}}\", {number}));\n    }}\n    \
             map.values().filter(|value| value.len() > 3).count()\n}}\n\n"
        ));
    }
    if number % 100 == 1 {
        text.push_str(&format!("fn needle_{number}() {{\n    needle({number});\n}}\n"));
    }
    text
}
