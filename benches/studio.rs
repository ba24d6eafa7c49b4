//! Benchmarks of studio against git, worktrunk and workmux: many sessions listed, landed and discarded.
//!
//! Run by `./benches/run`. `BENCH_STUDIO` and `BENCH_G3` name the release binaries; worktrunk's
//! `wt` is measured if `BENCH_WT` names it, `workmux` if `BENCH_WORKMUX` does (`BENCH_TMUX` is the
//! socket of a tmux for it), clash-sh's `clash` if `BENCH_CLASH` does. `git status` and `git worktree add` are the lower
//! bounds for the measurements beside them. `BENCH_FILES` (50,000) and `BENCH_SESSIONS` (1,000) set
//! the sizes.

#[allow(dead_code, reason = "shared by all benchmarks, each of which uses a part")]
mod common {
    pub mod bench_repo;
    pub mod measure;
    pub mod table;
}

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::process::{Command, Pty, Running, Stream};
use common::bench_repo::Bench;
use common::measure::{Sample, adopt_orphans, measure, memory, process_cpu, reap_orphans};
use common::table::{Row, head};
use rustix::termios::Winsize;
use serde_json::json;
use testkit::env::until;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

/// Two agents: one writes a small file, one does nothing.
const AGENTS: &str = "[studio]\npool = 0\n[studio.agents.writer]\nprotocol = \"command\"\n\
    command = [\"sh\", \"-c\", \"echo more > new.txt\"]\n\
    [studio.agents.idle]\nprotocol = \"command\"\ncommand = [\"true\"]\n";

/// An agent that changes five files and one line of a common file, chosen by its directory, and
/// commits: other programs compare commits only.
const EDITOR: &str = "[studio.agents.editor]\nprotocol = \"command\"\n\
    command = [\"sh\", \"-c\", \"n=$(pwd | cksum | cut -d' ' -f1); for i in 1 2 3 4 5; do f=$(( (n / i + i * 397) % 2000 )); echo $n >> d$((f / 100))/f$f.txt; done; sed -i \\\"$((n % 20 + 1))s/.*/$n/\\\" d0/f0.txt; git add -A; git commit -q -m work\"]\n";

fn main() {
    adopt_orphans();
    head();
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let row = |name: &str, measured: &dyn Fn() -> Row| {
        if chosen.is_empty() || chosen.iter().any(|it| it == name) {
            measured().print();
        }
    };
    let sessions = size("BENCH_SESSIONS", 1000);
    let files = size("BENCH_FILES", 50_000);
    row("list", &|| listed(sessions));
    for worktrees in [1, 50, 500] {
        row("list-beside", &|| listed_beside_peers(worktrees));
    }
    row("dashboard", &|| dashboard_start(sessions));
    row("idle", &|| dashboard_idle(50));
    row("conflicts", &|| conflicts(50, 2000));
    row("at-once", &|| at_once(20));
    row("create", &|| made(files));
    row("create-small", &|| made(2_000));
    row("pool", &|| made_from_pool(files));
    row("discard", &|| dropped(files));
    row("accept", &|| landed(files));
    row("review", &|| reviewed(300));
}

fn size(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn listed(sessions: usize) -> Row {
    let bench = Bench::new(3, AGENTS);
    bench.start(sessions, "idle");
    let mut row = Row::new(&format!("`studio list`, {sessions} sessions"), ["studio"]);
    for _ in 0..11 {
        row.add(0, measure(vec![bench.studio(["list"])]));
    }
    row.add_memory(0, memory(vec![bench.studio(["list"])]));
    row
}

fn listed_beside_peers(worktrees: usize) -> Row {
    let bench = Bench::new(100, AGENTS);
    bench.start(worktrees, "writer");
    let peers = Peer::installed();
    let names = std::iter::once("studio list")
        .chain(peers.iter().map(|peer| peer.name("wt list", "workmux list")));
    let mut row = Row::new(&format!("list, {worktrees} worktrees"), names);
    for _ in 0..11 {
        row.add(0, measure(vec![bench.studio(["list"])]));
        for (column, peer) in peers.iter().enumerate() {
            row.add(1 + column, measure(vec![peer.list(&bench)]));
        }
    }
    row.add_memory(0, memory(vec![bench.studio(["list"])]));
    for (column, peer) in peers.iter().enumerate() {
        row.add_memory(1 + column, memory(vec![peer.list(&bench)]));
    }
    row
}

/// Another program for worktrees.
enum Peer {
    /// worktrunk.
    Worktrunk { program: PathBuf },
    /// workmux, and the socket of the tmux in which it opens windows.
    Workmux { program: PathBuf, tmux: String },
}

impl Peer {
    /// Returns those that are installed.
    fn installed() -> Vec<Peer> {
        let program = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let worktrunk = program("BENCH_WT").map(|program| Peer::Worktrunk { program });
        let tmux = std::env::var("BENCH_TMUX").ok();
        let workmux = program("BENCH_WORKMUX").zip(tmux);
        let workmux = workmux.map(|(program, tmux)| Peer::Workmux { program, tmux });
        worktrunk.into_iter().chain(workmux).collect()
    }

    /// Returns the name for a row, of worktrunk or of workmux.
    fn name(&self, of_worktrunk: &'static str, of_workmux: &'static str) -> &'static str {
        match self {
            Peer::Worktrunk { .. } => of_worktrunk,
            Peer::Workmux { .. } => of_workmux,
        }
    }

    fn command(&self, bench: &Bench, args: &[&str]) -> Command {
        match self {
            Peer::Worktrunk { program } => bench.job(program).args(args),
            Peer::Workmux { program, tmux } => bench
                .job(program)
                .env("TMUX", format!("{tmux},0,0"))
                .env("TMUX_PANE", "%0")
                .env("TERM", "screen-256color")
                .args(args),
        }
    }

    fn list(&self, bench: &Bench) -> Command {
        self.command(bench, &["list"])
    }

    /// Creates a branch with a worktree.
    fn create(&self, bench: &Bench, name: &str) -> Command {
        match self {
            Peer::Worktrunk { .. } => {
                self.command(bench, &["switch", "--create", name, "--no-cd", "--no-hooks"])
            }
            Peer::Workmux { .. } => {
                self.command(bench, &["add", name, "--background", "--no-hooks"])
            }
        }
    }

    /// Removes a worktree with its branch, whatever it contains.
    fn remove(&self, bench: &Bench, name: &str) -> Command {
        match self {
            Peer::Worktrunk { .. } => self.command(
                bench,
                &["remove", name, "--force", "--force-delete", "--foreground", "--no-hooks"],
            ),
            Peer::Workmux { .. } => self.command(bench, &["remove", name, "--force"]),
        }
    }

    /// Merges a branch without asking for a message, and removes its worktree.
    fn land(&self, bench: &Bench, name: &str) -> Command {
        match self {
            Peer::Worktrunk { .. } => {
                let worktree = worktree_of(bench, name);
                let worktree = worktree.to_string_lossy();
                self.command(bench, &["-C", &worktree, "merge", "--no-squash", "--no-hooks"])
            }
            Peer::Workmux { .. } => self.command(bench, &["merge", name, "--no-hooks"]),
        }
    }
}

/// Returns the worktree of a branch.
fn worktree_of(bench: &Bench, branch: &str) -> PathBuf {
    let list = bench.repo.git(["worktree", "list", "--porcelain"]);
    let end = format!("branch refs/heads/{branch}");
    let entry = list.split("\n\n").find(|entry| entry.lines().any(|line| line == end));
    let entry = entry.expect("the worktree was created");
    entry.lines().next().and_then(|line| line.strip_prefix("worktree ")).expect("a path").into()
}

/// Measures all pairs of sessions and each beside its branch, without and with cached results. Each
/// session changes five files of its own choice, and one line of a file that all of them change.
fn conflicts(sessions: usize, files: usize) -> Row {
    let bench = Bench::new(files, EDITOR);
    bench.start(sessions, "editor");
    let peer = std::env::var_os("BENCH_CLASH").map(PathBuf::from);
    let names =
        ["studio conflicts", "again"].into_iter().chain(peer.iter().map(|_| "clash status"));
    let pairs = sessions * (sessions + 1) / 2;
    let mut row = Row::new(&format!("conflicts, {pairs} pairs, {files} files"), names);
    let cache = bench.repo.path().join(".git/studio/cache/pair-conflicts.json");
    for _ in 0..11 {
        let _ = fs::remove_file(&cache);
        row.add(0, measure(vec![bench.studio(["conflicts", "--json"])]));
        row.add(1, measure(vec![bench.studio(["conflicts", "--json"])]));
        if let Some(clash) = &peer {
            row.add(2, measure(vec![bench.job(clash).args(["status", "--json"])]));
        }
    }
    row.add_memory(0, memory(vec![bench.studio(["conflicts", "--json"])]));
    row
}

/// Measures the time to the first frame of the dashboard, beside the time of `studio list`.
fn dashboard_start(sessions: usize) -> Row {
    let bench = Bench::new(3, AGENTS);
    bench.start(sessions, "idle");
    let name = format!("first frame of the dashboard, {sessions} sessions");
    let mut row = Row::new(&name, ["studio", "studio list"]);
    for _ in 0..11 {
        row.add(0, Dashboard::open(&bench).first_frame);
        row.add(1, measure(vec![bench.studio(["list"])]));
    }
    row
}

/// Measures the dashboard during a minute in which nothing changes.
fn dashboard_idle(sessions: usize) -> Row {
    let bench = Bench::new(3, AGENTS);
    bench.start(sessions, "writer");
    let mut row = Row::new(&format!("idle dashboard, {sessions} sessions"), ["studio"]);
    let mut dashboard = Dashboard::open(&bench);
    // The comparisons with the branch end before the minute begins.
    dashboard.wait(Duration::from_secs(5));
    let (cpu, begin) = (dashboard.cpu(), Instant::now());
    dashboard.wait(Duration::from_secs(60));
    row.add(0, Sample { wall: begin.elapsed(), cpu: dashboard.cpu() - cpu });
    row
}

/// A dashboard on a terminal. It is killed on drop.
struct Dashboard {
    program: Running,
    first_frame: Sample,
}

impl Dashboard {
    fn open(bench: &Bench) -> Dashboard {
        let Pty { controller, terminal } = Pty::open().expect("a terminal can be made");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&controller, size).expect("it is a terminal");
        let stream = || Stream::File(File::from(terminal.try_clone().expect("it can be copied")));
        let job = bench.studio([""; 0]).env("TERM", "xterm-256color");
        let job = job.stdin(stream()).stdout(stream()).stderr(stream());
        let begin = Instant::now();
        let job = job.on_terminal(terminal.try_clone().expect("it can be copied"));
        let program = job.spawn().expect("the program can be started");
        let mut controller = File::from(controller);
        let (mut shown, mut bytes) = (Vec::<u8>::new(), [0; 4096]);
        while !shown.windows(4).any(|word| word == b"quit") {
            let count = controller.read(&mut bytes).expect("the dashboard draws");
            shown.extend(&bytes[..count]);
        }
        let wall = begin.elapsed();
        // What it draws must be read, or it blocks.
        std::thread::spawn(move || std::io::copy(&mut controller, &mut std::io::sink()));
        let mut dashboard =
            Dashboard { program, first_frame: Sample { wall, cpu: Duration::ZERO } };
        dashboard.first_frame.cpu = dashboard.cpu();
        dashboard
    }

    fn wait(&mut self, time: Duration) {
        let ended = self.program.wait_until(Some(Instant::now() + time));
        assert!(ended.expect("it is our child").is_none(), "the dashboard ended");
    }

    /// Returns its user and system time.
    fn cpu(&self) -> Duration {
        process_cpu(self.program.id())
    }
}

/// Measures sessions of g3 with five turns each: supervisors, sandboxes and agents together.
fn at_once(sessions: usize) -> Row {
    let server = ModelServer::start(Script::by(|request| {
        let done = request.tool_results().len();
        if done >= 5 {
            return ScriptedReply::says("Done.");
        }
        ScriptedReply::call("shell", json!({"command": format!("echo hi {done} >> hi.txt")}))
    }));
    let bench = Bench::new(100, &server.config_toml("openai"));
    let many = sessions.to_string();
    let tasks = || (0..sessions).map(|n| format!("Say hi, {n}"));
    let job = || bench.studio(["run", "--agent", "g3", "-j", &many]).args(tasks());
    let name = format!("`studio run`, {sessions} g3 sessions at once, five turns each");
    let mut row = Row::new(&name, ["studio"]);
    row.add(0, measure(vec![job()]));
    assert!(server.requests().len() >= sessions * 5, "the sessions did not do their work");
    row.add_memory(0, memory(vec![job()]));
    row
}

/// Measures a session whose agent does nothing, beside git's worktree and beside the least that any
/// program must do: two threads that only create and write the files.
fn made(files: usize) -> Row {
    let bench = Bench::new(files, AGENTS);
    let name = format!("a session from start to end, {files} files");
    let peers = Peer::installed();
    let programs = ["studio run", "git worktree add", "two threads, files alone"];
    let mut row = Row::new(
        &name,
        programs
            .into_iter()
            .chain(peers.iter().map(|peer| peer.name("wt switch --create", "workmux add"))),
    );
    for turn in 0..5 {
        row.add(
            0,
            measure(vec![bench.studio(["run", "--agent", "idle", &format!("Idle {turn}")])]),
        );
        let args = ["worktree", "add", "-q", "--detach", &format!(".worktrees/{turn}")];
        row.add(1, measure(vec![bench.job("git").args(args)]));
        row.add(2, write_files_alone(&bench.place.path().join(format!("alone-{turn}")), files));
        for (column, peer) in peers.iter().enumerate() {
            let branch = format!("peer-{column}-{turn}");
            row.add(3 + column, measure(vec![peer.create(&bench, &branch)]));
            worktree_of(&bench, &branch);
        }
    }
    row
}

/// Creates the files of the repository on two threads, without git.
fn write_files_alone(directory: &Path, files: usize) -> Sample {
    let id = std::process::id();
    let (cpu, begin) = (process_cpu(id), Instant::now());
    let next = AtomicUsize::new(0);
    let write = || {
        let directories = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        for number in directories.take_while(|number| number * 100 < files) {
            let directory = directory.join(format!("d{number}"));
            fs::create_dir_all(&directory).expect("writable");
            for file in number * 100..files.min(number * 100 + 100) {
                let text = format!("file {file}\n").repeat(20);
                fs::write(directory.join(format!("f{file}.txt")), text).expect("writable");
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(write);
        scope.spawn(write);
    });
    Sample { wall: begin.elapsed(), cpu: process_cpu(id).saturating_sub(cpu) }
}

/// Measures sessions that take over a worktree that was prepared before.
fn made_from_pool(files: usize) -> Row {
    let bench = Bench::new(files, &AGENTS.replace("pool = 0", "pool = 1"));
    let name = format!("a session from start to end with a prepared worktree, {files} files");
    let mut row = Row::new(&name, ["studio run", "git status"]);
    let run = |turn: usize| bench.studio(["run", "--agent", "idle", &format!("Idle {turn}")]);
    bench.must(run(0));
    for turn in 1..6 {
        await_prepared(&bench);
        row.add(0, measure(vec![run(turn)]));
        row.add(1, measure(vec![bench.job("git").arg("status")]));
    }
    row
}

fn dropped(files: usize) -> Row {
    let bench = Bench::new(files, AGENTS);
    let peers = Peer::installed();
    let programs = ["studio discard", "git worktree remove"];
    let programs = programs
        .into_iter()
        .chain(peers.iter().map(|peer| peer.name("wt remove", "workmux remove")));
    let mut row = Row::new(&format!("drop a worktree, {files} files"), programs);
    for turn in 0..5 {
        let id = bench.start(1, "writer");
        row.add(0, measure(vec![bench.studio(["discard", &id, "--yes"])]));
        let path = format!(".worktrees/{turn}");
        bench.must(bench.job("git").args(["worktree", "add", "-q", "--detach", &path]));
        row.add(1, measure(vec![bench.job("git").args(["worktree", "remove", "--force", &path])]));
        for (column, peer) in peers.iter().enumerate() {
            let branch = format!("peer-{column}-{turn}");
            bench.must(peer.create(&bench, &branch));
            let worktree = worktree_of(&bench, &branch);
            fs::write(worktree.join("new.txt"), "more\n").expect("writable");
            row.add(2 + column, measure(vec![peer.remove(&bench, &branch)]));
            assert!(!worktree.exists(), "{branch} was not removed");
        }
    }
    row
}

fn landed(files: usize) -> Row {
    let bench = Bench::new(files, AGENTS);
    let peers = Peer::installed();
    let programs = ["studio accept", "git status"];
    let programs =
        programs.into_iter().chain(peers.iter().map(|peer| peer.name("wt merge", "workmux merge")));
    let mut row = Row::new(&format!("land one file, {files} files"), programs);
    for turn in 0..5 {
        let id = bench.start(1, "writer");
        let worktree = bench.repo.worktrees().join(&id);
        // The first one refreshes the index, so that both the measured status and the landing find
        // it refreshed.
        let status = || bench.job("git").arg("-C").arg(&worktree).arg("status");
        bench.must(status());
        row.add(1, measure(vec![status()]));
        row.add(0, measure(vec![bench.studio(["accept", &id, "-m", "Add a file"])]));
        bench.must(bench.studio(["undo"]));
        bench.must(bench.studio(["discard", &id, "--yes"]));
        for (column, peer) in peers.iter().enumerate() {
            let branch = format!("peer-{column}-{turn}");
            bench.must(peer.create(&bench, &branch));
            let worktree = worktree_of(&bench, &branch);
            let name = format!("{branch}.txt");
            fs::write(worktree.join(&name), "more\n").expect("writable");
            let git = |args: &[&str]| bench.job("git").arg("-C").arg(&worktree).args(args);
            bench.must(git(&["add", "-A"]));
            bench.must(git(&["commit", "-q", "-m", "Add a file"]));
            bench.must(status_of(&bench));
            row.add(2 + column, measure(vec![peer.land(&bench, &branch)]));
            let landed = bench.repo.path().join(&name).exists();
            assert!(landed, "{branch} did not land");
        }
    }
    row
}

/// Prepares a command that refreshes the index of the checkout.
fn status_of(bench: &Bench) -> Command {
    bench.job("git").arg("status")
}

/// Measures opening a diff of 20,000 lines in a review on a terminal: the whole process, from its
/// start over the frame with syntax colours to the key that quits.
fn reviewed(files: usize) -> Row {
    let (bench, id) = Bench::with_large_change(files, 20_000);
    let studio = std::env::var("BENCH_STUDIO").expect("set by ./benches/run");
    let name = format!("review a diff of 20,000 lines in {files} files");
    let mut row = Row::new(&name, ["studio review", "git diff"]);
    let review = || {
        // The key is read after the first frame.
        let line = format!(
            "printf q | script -qec 'stty rows 24 cols 80; {studio} review {id}' /dev/null"
        );
        bench.job("sh").env("TERM", "xterm-256color").env("SHELL", "/bin/sh").args(["-c", &line])
    };
    let worktree = bench.repo.worktrees().join(&id);
    for _ in 0..11 {
        row.add(0, measure(vec![review()]));
        row.add(1, measure(vec![bench.job("git").arg("-C").arg(&worktree).arg("diff")]));
    }
    row.add_memory(0, memory(vec![review()]));
    row
}

/// Waits until a worktree is prepared for the next session.
fn await_prepared(bench: &Bench) {
    let pool = bench.repo.path().join(".git/studio/pool");
    let is_prepared = || {
        let mut entries = fs::read_dir(&pool).into_iter().flatten().flatten();
        entries.any(|entry| entry.path().join("commit").exists())
    };
    until("a worktree to be prepared", || is_prepared().then_some(()));
    reap_orphans();
}
