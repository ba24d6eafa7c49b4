//! The fixtures of the command tests: a repository, a configuration with fake agents, and `studio`.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use serde_json::Value;
use testkit::env::{CommandRun, TestEnv, built, until};
use testkit::repo::Repo;

/// A task that writes a file, and merges the target into its work when it gets a conflict.
pub const RESOLVES: &str = "sh t=$(tr '\\0' '\\n' </proc/$PPID/cmdline | \
     grep -o 'git merge [0-9a-f]\\{40\\}' | head -1 | cut -d' ' -f3) && [ -n \"$t\" ] && \
     git add -A && git commit -qm mine && git merge -q -X ours $t || echo resolved > shared";

/// A repository with the real `studio` program.
pub struct Scene {
    /// The environment; removed on drop.
    pub env: TestEnv,
    /// The user's repository.
    pub repo: Repo,
}

impl Scene {
    /// Creates a repository with one commit, and the agents `fake` (a command), `talk` and `loads`
    /// (ACP, with their own events) and `stranger` (ACP).
    pub fn new() -> Scene {
        Scene::at("my repö")
    }

    /// Like `new`, in a directory with this name.
    pub fn at(name: &str) -> Scene {
        let env = TestEnv::new();
        let repo = env.repo_at(name);
        let scene = Scene { env, repo };
        scene.configure("");
        scene
    }

    /// Like `new`, with these arguments of `git init`.
    pub fn of_format(format: &[&str]) -> Scene {
        let env = TestEnv::new();
        let path = env.home().join("my repö");
        std::fs::create_dir_all(&path).expect("the directory can be made");
        env.run("git", &path, ["init", "-q", "-b", "main"].iter().chain(format)).exits(0);
        let repo = Repo::at(&path);
        repo.commit_file("README.md", "# A repository\n");
        let scene = Scene { env, repo };
        scene.configure("");
        scene
    }

    /// Writes the user's configuration: the fake agents, and additional lines for `[studio]`.
    pub fn configure(&self, more: &str) {
        let fake = built("fake-agent");
        let fake = fake.display();
        self.env.config(&format!(
            "[studio]\nagent = \"fake\"\n{more}\n\
             [studio.agents.fake]\nprotocol = \"command\"\ncommand = [\"{fake}\", \"{{prompt}}\"]\n\
             [studio.agents.talk]\ncommand = [\"{fake}\", \"acp\"]\nevents = true\n\
             [studio.agents.loads]\ncommand = [\"{fake}\", \"acp-load\"]\nevents = true\n\
             [studio.agents.stranger]\ncommand = [\"{fake}\", \"acp\"]\n",
        ));
    }

    /// Writes a configuration with an API key for g3, so that it can start.
    pub fn configure_g3(&self) {
        self.configure("[providers.anthropic.main]\napi_key = \"not a real one\"\n");
    }

    /// Puts the scripted agent in the place of g3. With a hosted provider, no local model is started.
    pub fn scripted_g3(&self) {
        self.configure(&format!(
            "[providers]\ndefault_provider = \"anthropic.a\"\n[providers.anthropic.a]\napi_key = \
             \"k\"\n[studio.agents.g3]\ncommand = [\"{}\", \"acp-load\"]\n",
            built("fake-agent").display()
        ));
    }

    /// Runs `studio` in the repository.
    pub fn studio<const N: usize>(&self, args: [&str; N]) -> CommandRun {
        self.studio_in(self.repo.path(), args)
    }

    /// Runs `studio` in a directory.
    pub fn studio_in<const N: usize>(&self, directory: &Path, args: [&str; N]) -> CommandRun {
        self.env.run(studio(), directory, args)
    }

    /// Starts a session in the background and returns its id.
    pub fn exec<const N: usize>(&self, args: [&str; N]) -> String {
        let mut all = vec!["exec"];
        all.extend(args);
        self.env.run(studio(), self.repo.path(), all).ok().to_owned()
    }

    /// Runs a script of the fake command agent to its end and returns the session's id.
    pub fn ready(&self, script: &str) -> String {
        let id = self.exec([script]);
        self.await_state(&id, "ready");
        id
    }

    /// Returns a session of `status --json`.
    pub fn status(&self, id: &str) -> Value {
        self.studio(["status", id, "--json"]).exits(0).json()
    }

    /// Waits for a state; for a final state also until the session's lock is free.
    pub fn await_state(&self, id: &str, state: &str) -> Value {
        let mut last = String::new();
        until(&format!("{id} to be {state}"), || {
            let status = self.status(id);
            let now = status["state"].as_str().unwrap_or_default().to_owned();
            if now != last && now != state && ["ready", "failed", "empty"].contains(&now.as_str()) {
                panic!("{id} is {now}: {}\n{}", status["why"], self.studio(["logs", id]));
            }
            last.clone_from(&now);
            (now == state).then_some(status)
        })
    }

    /// Returns the last session of `list --json`, if there is one.
    pub fn status_of_last(&self) -> Option<Value> {
        self.studio(["list", "--json"]).json()["sessions"].as_array()?.last().cloned()
    }

    /// Waits until the session's run has ended, however.
    pub fn await_end(&self, id: &str) -> Value {
        until(&format!("{id} to end"), || {
            let status = self.status(id);
            let state = status["state"].as_str().unwrap_or_default();
            let is_active =
                ["queued", "starting", "working", "waiting", "checking"].contains(&state);
            (!is_active).then_some(status)
        })
    }

    /// Waits until the session's lock is free.
    pub fn await_free(&self, id: &str) {
        until(&format!("{id} to be free"), || self.is_free(id).then_some(()));
    }

    /// Returns whether nothing works on a session, here or at its place.
    pub fn is_free(&self, id: &str) -> bool {
        self.studio(["explain", id, "--json"]).json()["facts"]["locked"] == false
    }

    /// Returns the process id of the last supervisor of a session.
    pub fn supervisor(&self, id: &str) -> u64 {
        let journal = self.journal(id);
        let line = journal.iter().rev().find(|line| line["entry"] == "spawned");
        line.and_then(|line| line["pid"].as_u64()).expect("a supervisor was started")
    }

    /// Waits until the last supervisor of a session has ended: it prepares the message of a ready
    /// session after it released the session's lock.
    pub fn await_supervisor(&self, id: &str) {
        let supervisor = u32::try_from(self.supervisor(id)).expect("a process id");
        until("the supervisor to end", || (!base::process::is_alive(supervisor)).then_some(()));
    }

    /// Returns a file in a session's directory.
    pub fn session_file(&self, id: &str, name: &str) -> PathBuf {
        self.repo.path().join(".git/studio/sessions").join(id).join(name)
    }

    /// Returns a file of a session outside all sandboxes: its token or its socket.
    pub fn control_file(&self, id: &str, name: &str) -> PathBuf {
        let common = self.repo.path().canonicalize().expect("it is there").join(".git");
        let state = self.env.home().join(".local/state/studio");
        state.join(base::user_dirs::name_for_path(&common)).join(id).join(name)
    }

    /// Returns the worktree of a session.
    pub fn worktree(&self, id: &str) -> Repo {
        Repo::at(&self.repo.worktrees().join(id))
    }

    /// Returns the entries of a session's journal.
    pub fn journal(&self, id: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.session_file(id, "journal.jsonl"));
        let text = text.expect("the journal can be read");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

/// Counts how often a file is opened.
#[derive(Debug)]
pub struct OpenCounter {
    events: OwnedFd,
}

impl OpenCounter {
    /// Starts to count.
    pub fn of(path: &Path) -> OpenCounter {
        let events = init(CreateFlags::NONBLOCK).expect("inotify is available");
        // The kernel joins equal events that follow each other.
        let flags = WatchFlags::OPEN | WatchFlags::CLOSE_NOWRITE;
        add_watch(&events, path, flags).expect("the file is there");
        OpenCounter { events }
    }

    /// Returns the count since the start, and ends it.
    pub fn count(self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(self.events, &mut buffer);
        let events = std::iter::from_fn(|| reader.next().ok().map(|event| event.events()));
        events.filter(|flags| flags.contains(ReadFlags::OPEN)).count()
    }
}

/// Returns the program under test.
pub fn studio() -> &'static str {
    env!("CARGO_BIN_EXE_studio")
}
