//! A repository in a home directory of its own, and the programs that are measured in it.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use base::process::{Command, OutputLimits, Stream};
use testkit::repo::Repo;

use super::measure::reap_orphans;

/// A home directory with a repository, and the programs.
pub struct Bench {
    /// The home directory; removed on drop.
    pub place: tempfile::TempDir,
    /// The repository.
    pub repo: Repo,
}

impl Bench {
    /// Creates a repository with this many small files, a hundred per directory. It is packed, and no
    /// file is as new as the index: git packs many objects in the background of a command, and reads
    /// such files each time.
    pub fn new(files: usize, config: &str) -> Bench {
        let place = tempfile::tempdir().expect("a temporary directory can be made");
        let settings = place.path().join(".config/g3");
        fs::create_dir_all(&settings).expect("writable");
        fs::write(settings.join("config.toml"), config).expect("writable");
        let repo = Repo::make(&place.path().join("repo"));
        for file in 0..files {
            repo.write(
                &format!("d{}/f{file}.txt", file / 100),
                format!("file {file}\n").repeat(20),
            );
        }
        repo.git(["add", "-A"]);
        repo.git(["-c", "gc.auto=0", "commit", "-q", "-m", "Files"]);
        repo.git(["repack", "-a", "-d", "-q"]);
        let bench = Bench { place, repo };
        bench.must(bench.job("sleep").arg("1.1"));
        bench.must(bench.job("git").args(["update-index", "--refresh", "--force-write-index"]));
        bench
    }

    /// Runs this many sessions to their end; returns the id of the last.
    pub fn start(&self, sessions: usize, agent: &str) -> String {
        let list = self.place.path().join("tasks.md");
        let tasks: String = (0..sessions).map(|n| format!("- Task {n}\n")).collect();
        fs::write(&list, tasks).expect("writable");
        let run = self.studio(["run", "--agent", agent, "-j", "8", "--tasks"]).arg(list);
        let out = self.must(run.arg("--json"));
        let last = out.lines().last().expect("the summary");
        let summary: serde_json::Value = serde_json::from_str(last).expect("JSON");
        summary["sessions"][0]["id"].as_str().expect("an id").to_owned()
    }

    /// Prepares a command of studio in the repository.
    pub fn studio<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        self.job(std::env::var_os("BENCH_STUDIO").expect("set by ./benches/run")).args(args)
    }

    /// Prepares a program in the repository.
    pub fn job(&self, program: impl AsRef<Path>) -> Command {
        Command::new(program.as_ref(), self.repo.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.place.path())
            .env("GIT_AUTHOR_NAME", "Ada")
            .env("GIT_AUTHOR_EMAIL", "ada@example.org")
            .env("GIT_COMMITTER_NAME", "Ada")
            .env("GIT_COMMITTER_EMAIL", "ada@example.org")
            .stdout(Stream::Null)
            .stderr(Stream::Null)
    }

    /// Runs a preparation step and returns its output.
    pub fn must(&self, job: Command) -> String {
        let job = job.stdout(Stream::Piped).stderr(Stream::Piped);
        let output = job.output(OutputLimits::seconds(1200)).expect("the program can be started");
        assert!(output.code() <= 1, "a preparation failed: {}", output.error_text());
        reap_orphans();
        output.text()
    }

    /// Creates a repository with a session that changes this many lines of files; returns its id.
    pub fn with_large_change(files: usize, changed_lines: usize) -> (Bench, String) {
        let lines = changed_lines / files / 2;
        let change = "sed -i 's/alpha/beta/' src/*.rs";
        let config = format!(
            "[studio.agents.editor]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", \"{change}\"]\n"
        );
        let bench = Bench::new(1, &config);
        for file in 0..files {
            let line = |n: usize| format!("    let alpha_{n} = call(\"{file}\", {n});\n");
            let body: String = (0..lines).map(line).collect();
            bench.repo.write(&format!("src/f{file}.rs"), format!("fn f{file}() {{\n{body}}}\n"));
        }
        bench.repo.git(["add", "-A"]);
        bench.repo.git(["commit", "-q", "-m", "Code"]);
        let id = bench.start(1, "editor");
        (bench, id)
    }
}
