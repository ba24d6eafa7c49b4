//! The sandbox, through the real `studio __box`: what it confines, and that no process outlives it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base::process::{Command, Stream, is_alive};
use base::sandbox::home::home_rules;
use studio_core::sandbox::limits::SandboxLimits;
use studio_core::sandbox::{
    self, Lifeline, NetworkAccess, SandboxFailure, SandboxJob, SandboxSpec, StartFailure,
};
use testkit::env::{CommandRun, TestEnv, process_in, sandbox_of, until};

/// A home with a secret, and a directory that the sandbox may write.
pub(crate) struct Den {
    pub(crate) env: TestEnv,
    pub(crate) spec: SandboxSpec,
    /// Whether the system seems to allow namespaces.
    pub(crate) has_namespaces: bool,
}

impl Den {
    pub(crate) fn new() -> Den {
        let env = TestEnv::new();
        let home = env.home().canonicalize().unwrap();
        for name in [".ssh", ".config/g3", "den/a", "den/b", "outside"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        fs::write(home.join(".ssh/id"), "canary-ssh").unwrap();
        fs::write(home.join(".config/g3/config.toml"), "canary-config").unwrap();
        fs::write(home.join("outside/notes"), "notes").unwrap();
        let mut rules = home_rules(&home, &[]);
        rules.write.push(home.join("den"));
        let variables = [
            ("HOME", home.display().to_string()),
            ("PATH", std::env::var("PATH").unwrap()),
            ("LC_ALL", "C".to_owned()),
        ];
        let spec = SandboxSpec {
            confined: true,
            best_effort: false,
            namespaces: false,
            rules,
            directory: home.join("den"),
            environment: variables.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            temp: Some(home.join("den-temp")),
            network: NetworkAccess::Open,
            descriptors: Vec::new(),
            limits: SandboxLimits::default(),
        };
        Den { env, spec, has_namespaces: true }
    }

    /// Makes the rules for the home as it is now.
    pub(crate) fn refresh(&mut self) {
        self.spec.rules = home_rules(&self.path(""), &[]);
        self.spec.rules.write.push(self.path("den"));
    }

    /// Disables the confinement, as a positive control.
    pub(crate) fn open(mut self) -> Den {
        self.spec.confined = false;
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.env.home().canonicalize().unwrap().join(name)
    }

    fn job(&self, program: &str, args: &[&str]) -> (Command, Lifeline) {
        let SandboxJob { command: job, lifeline, .. } = self.reporting(program, args);
        (job, lifeline)
    }

    fn reporting(&self, program: &str, args: &[&str]) -> SandboxJob {
        sandbox::prepare_job_with(studio().as_ref(), &self.spec, program, args).unwrap()
    }

    fn run(&self, program: &str, args: &[&str]) -> CommandRun {
        let (job, _lifeline) = self.job(program, args);
        let hidden = (!self.has_namespaces).then_some(("G3_TEST_NAMESPACES", "off"));
        let job = hidden.into_iter().fold(job, |job, (name, value)| job.env(name, value));
        self.env.run_command(job)
    }

    pub(crate) fn sh(&self, line: &str) -> CommandRun {
        self.run("sh", &["-c", line])
    }

    /// Returns the ids of the running processes that wrote their own ids to a file.
    fn pids(&self, file: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.path("den").join(file)).unwrap_or_default();
        let own_ids = text.lines().filter_map(|line| line.trim().parse().ok());
        own_ids.filter_map(|own_id| process_in(&self.path("den"), own_id)).collect()
    }

    /// Waits until a script has written this many process ids.
    fn await_pids(&self, file: &str, count: usize) -> Vec<u32> {
        until("the processes start", || Some(self.pids(file)).filter(|pids| pids.len() == count))
    }
}

fn studio() -> &'static str {
    env!("CARGO_BIN_EXE_studio")
}

/// Three daemons: one in its own process session, one forked twice, one that ignores SIGTERM.
const DAEMONS: &str = "
    setsid sh -c 'echo $$ >> pids; exec sleep 300' &
    (setsid sh -c 'sh -c \"echo \\$\\$ >> pids; exec sleep 300\" &' &)
    sh -c 'trap \"\" TERM HUP; echo $$ >> pids; while :; do sleep 300; done' &
    until [ \"$(wc -l < pids 2>/dev/null || echo 0)\" -eq 3 ]; do :; done
";

fn kill_9(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[track_caller]
fn all_gone(pids: &[u32]) {
    assert!(!pids.is_empty());
    until("every process of the box ends", || pids.iter().all(|pid| !is_alive(*pid)).then_some(()));
}

#[test]
fn a_program_writes_only_inside_its_sandbox() {
    let attempt = "echo x > inside && echo x > ../outside/notes";
    let den = Den::new();
    assert_ne!(den.sh(attempt).code, 0);
    assert_eq!(fs::read_to_string(den.path("den/inside")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(den.path("outside/notes")).unwrap(), "notes");
    for line in
        ["rm ../outside/notes", "mkdir ../new", "touch /tmp/box-marker", ": > ../outside/notes"]
    {
        assert_ne!(den.sh(line).code, 0, "{line}");
    }
    assert_eq!(fs::read_to_string(den.path("outside/notes")).unwrap(), "notes");
    assert!(!Path::new("/tmp/box-marker").exists() && !den.path("new").exists());

    let control = Den::new().open();
    control.sh(attempt).ok();
    assert_eq!(fs::read_to_string(control.path("outside/notes")).unwrap(), "x\n");
}

#[test]
fn only_opened_parts_of_a_home_are_readable() {
    let mut den = Den::new();
    for secret in ["../.ssh/id", "../.config/g3/config.toml", "../outside/notes"] {
        let file = den.path("den").join(secret);
        let content = fs::read_to_string(file).unwrap();
        assert!(!den.run("cat", &[secret]).exits(1).out.contains(&content));
    }
    den.spec.rules.read.push(den.path("outside"));
    assert_eq!(den.run("cat", &["../outside/notes"]).ok(), "notes");
    den.run("ls", &["../.ssh"]).exits(2);
    std::os::unix::fs::symlink("../.ssh", den.path("den/link")).unwrap();
    den.run("cat", &["link/id"]).exits(1).output_lacks("canary");

    let control = Den::new().open();
    assert_eq!(control.run("cat", &["../.ssh/id"]).ok(), "canary-ssh");
}

#[test]
fn ordinary_programs_run_with_devices_and_their_own_temporary_directory() {
    let den = Den::new();
    assert_eq!(den.sh("echo x > /dev/null; head -c 3 /dev/zero | wc -c | tr -d ' '").ok(), "3");
    assert_eq!(den.sh("cat <<END\nhere\nEND").ok(), "here");
    let temp = den.sh("f=$(mktemp) && echo x > $f && echo $f").ok().to_owned();
    assert!(Path::new(&temp).starts_with(den.path("den-temp")), "{temp}");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(den.path("den-temp")).unwrap());
    assert_eq!(mode & 0o777, 0o700);
    den.sh("git init -q . && git config user.name a && git config user.email a@b && echo 1 > f &&
         git add -A && git commit -qm one && echo 2 > f && git stash -q && git stash pop -q &&
         git commit -qam two && git rebase -q --root && git gc -q && git fsck")
        .ok();
    assert_eq!(den.sh("git log --format=%s | wc -l | tr -d ' '").ok(), "2");
    den.sh("printf 'int main(){return 0;}' > m.c && cc m.c -o m && ./m").ok();
}

#[test]
fn files_are_renamed_within_the_sandbox_and_not_out_of_it() {
    let den = Den::new();
    den.sh("echo x > a/f && mv a/f b/f && mkdir a/d && mv a/d b/d && ln b/f a/g").ok();
    assert!(den.path("den/b/f").exists() && den.path("den/b/d").is_dir());
    let link = |from: &str, to: &str| {
        let script = format!("import os; os.link({from:?}, {to:?})");
        den.run("python3", &["-c", &script]).code
    };
    assert_ne!(link("b/f", "../outside/f"), 0);
    assert_ne!(link("../.ssh/id", "stolen"), 0, "a link would make the secret readable");
    let rename = "import os; os.rename('b/f', '../outside/f')";
    assert_ne!(den.run("python3", &["-c", rename]).code, 0);
    assert!(den.path("den/b/f").exists() && !den.path("outside/f").exists());
    assert!(!den.path("den/stolen").exists());
    let control = Den::new().open();
    control.sh("echo x > b/f && ln b/f ../outside/f && ln ../.ssh/id stolen").ok();
}

#[test]
fn exit_codes_and_streams_are_passed_through() {
    let den = Den::new();
    for code in [0, 1, 7, 255] {
        den.sh(&format!("exit {code}")).exits(code);
    }
    den.sh("kill -TERM $$").exits(143);
    den.sh("kill -KILL $$").exits(137);
    den.run("no-such-program", &[]).exits(127).output_contains("no-such-program");
    den.run("/dev/null", &[]).exits(126);
    let (job, _lifeline) = den.job("cat", &[]);
    let ran = den.env.run_command(job.input("through"));
    assert_eq!(ran.ok(), "through");
}

#[test]
fn a_failed_start_is_reported_and_output_cannot_fake_one() {
    let den = Den::new();
    let report = |program: &str, args: &[&str]| {
        let SandboxJob { command: job, lifeline: _lifeline, report } = den.reporting(program, args);
        let ran = den.env.run_command(job);
        (ran.code, report.read())
    };
    let (code, failure) = report("no-such-program", &[]);
    assert!(matches!(
        (code, failure),
        (127, Some(SandboxFailure::Start(StartFailure::NotFound(_))))
    ));
    let (code, failure) = report("/dev/null", &[]);
    assert!(matches!(
        (code, failure),
        (126, Some(SandboxFailure::Start(StartFailure::NotExecutable(_))))
    ));
    let words = "echo 'studio: cannot start `sh`: gone' >&2; exit 127";
    assert_eq!(report("sh", &["-c", words]), (127, None));
    let (_, shown) = (report("ls", &["/proc/self/fd"]), den.run("ls", &["/proc/self/fd"]));
    assert!(!shown.out.lines().any(|fd| fd == "5"), "the pipe is not the program's: {shown}");
}

#[test]
fn a_sandbox_that_cannot_be_set_up_reports_why() {
    let mut den = Den::new();
    den.spec.directory = den.path("gone");
    den.run("true", &[]).exits(127).output_contains("cannot start `true`");
    let ran = den.env.run(studio(), den.env.home(), ["__box", "--spec-fd", "9", "--", "true"]);
    ran.exits(125).output_contains("cannot set up the sandbox");
}

#[test]
fn daemons_end_with_the_program() {
    for den in [Den::new(), Den::new().open()] {
        let line = format!("{DAEMONS} until [ -e go ]; do sleep 0.01; done; exit 5");
        let (job, _lifeline) = den.job("sh", &["-c", &line]);
        let mut running = job.spawn().unwrap();
        let pids = den.await_pids("pids", 3);
        fs::write(den.path("den/go"), "").unwrap();
        assert_eq!(running.wait_until(None).unwrap().unwrap().code(), Some(5));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "something outlived its box");
    }
}

#[test]
fn sigterm_ends_all_processes_in_the_sandbox() {
    let den = Den::new();
    let (job, _lifeline) = den.job("sh", &["-c", &format!("{DAEMONS} echo $$ >> pids; sleep 300")]);
    let mut running = job.spawn().unwrap();
    let pids = den.await_pids("pids", 4);
    let status = running.end(base::process::GRACE).unwrap();
    assert_eq!(status.code(), Some(143));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "something outlived its box");
}

#[test]
fn a_dropped_handle_or_lifeline_ends_all_processes_in_the_sandbox() {
    let script = format!("{DAEMONS} echo $$ >> pids; sleep 300");
    let den = Den::new();
    let (job, lifeline) = den.job("sh", &["-c", &script]);
    let mut running = job.spawn().unwrap();
    let pids = den.await_pids("pids", 4);
    drop(lifeline);
    assert!(running.wait_until(None).unwrap().is_some());
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "something outlived its box");

    let den = Den::new();
    let (job, _lifeline) = den.job("sh", &["-c", &script]);
    let running = job.spawn().unwrap();
    let pids = den.await_pids("pids", 4);
    drop(running);
    all_gone(&pids);
}

#[test]
fn killing_the_supervisor_leaves_no_process_alive() {
    let den = Den::new();
    let file = den.path("spec.json");
    fs::File::create(&file).unwrap().write_all(&serde_json::to_vec(&den.spec).unwrap()).unwrap();
    fs::write(den.path("den/work.sh"), format!("{DAEMONS} echo $$ >> pids; sleep 300")).unwrap();
    // A shell acts as the supervisor: only it holds the writing end of the lifeline.
    let supervisor = format!(
        "mkfifo lifeline; {} __box --spec-fd 3 --lifeline-fd 4 -- sh work.sh \
         3<spec.json 4<lifeline & echo $! > box-pid; exec 5>lifeline; wait",
        studio()
    );
    let job = den.env.command("sh", &den.path("")).args(["-c", &supervisor]);
    let running = job.stdout(Stream::Null).stderr(Stream::Null).detached().spawn().unwrap();
    let mut pids = den.await_pids("pids", 4);
    pids.push(fs::read_to_string(den.path("box-pid")).unwrap().trim().parse().unwrap());
    kill_9(running.id());
    all_gone(&pids);
}

#[test]
fn killing_the_sandbox_or_its_reaper_leaves_no_process_alive() {
    let script = format!("{DAEMONS} echo $$ >> pids; sleep 300");
    for den in [Den::new(), Den::new().open()] {
        let (job, _lifeline) = den.job("sh", &["-c", &script]);
        let mut running = job.spawn().unwrap();
        let pids = den.await_pids("pids", 4);
        kill_9(sandbox_of(pids[3]).unwrap());
        let status = running.wait_until(None).unwrap().unwrap();
        assert_eq!(status.code(), Some(137));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "something outlived its box");
    }
    let den = Den::new();
    let (job, _lifeline) = den.job("sh", &["-c", &script]);
    let running = job.spawn().unwrap();
    let pids = den.await_pids("pids", 4);
    kill_9(running.id());
    all_gone(&pids);
}

#[test]
fn a_program_sees_only_its_own_environment() {
    let mut den = Den::new();
    den.spec.environment.push(("GIVEN".into(), "yes".into()));
    let (job, _lifeline) = den.job("sh", &["-c", "env; cat /proc/$PPID/environ"]);
    let ran = den.env.run_command(job.env("ANTHROPIC_API_KEY", "canary-key"));
    ran.output_contains("GIVEN=yes").output_lacks("canary-key");

    den.spec.confined = false;
    let (job, _lifeline) = den.job("sh", &["-c", "env; cat /proc/$PPID/environ"]);
    let ran = den.env.run_command(job.env("ANTHROPIC_API_KEY", "canary-key"));
    ran.output_contains("canary-key");
}

#[test]
fn a_program_sees_no_processes_outside_of_its_sandbox() {
    const LINE: &str = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; sleep 0.7654 & kill -0 $!";
    let den = Den::new();
    let _outside = den.env.start("sleep", den.env.home(), ["299.125"]);
    den.sh(LINE).exits(0).output_contains("cat /proc/").output_lacks("sleep 299.125");
    Den::new().open().sh(LINE).exits(0).output_contains("sleep 299.125");
}

#[test]
fn orphans_in_a_sandbox_are_waited_for() {
    let line = "for i in 1 2 3; do (sh -c 'exit 3' &); done; sleep 0.2; \
                cat /proc/[0-9]*/stat | grep -c ') Z '";
    Den::new().sh(line).output_contains("0").exits(1);
}

#[test]
fn signals_do_not_leave_the_sandbox() {
    let den = Den::new();
    let mut outside = den.env.start("sleep", den.env.home(), ["300"]);
    let line = format!("kill -9 {}; kill -9 $PPID; sleep 300 & kill -9 $!", outside.id());
    den.sh(&line).ok();
    assert!(is_alive(outside.id()));
    let control = Den::new().open();
    control.sh(&format!("kill -9 {}", outside.id())).ok();
    assert!(outside.wait_until(None).unwrap().is_some());
}

#[test]
fn only_named_descriptors_reach_the_program() {
    let mut den = Den::new();
    den.spec.descriptors = vec![7];
    let (job, _lifeline) = den.job("ls", &["/proc/self/fd"]);
    let lock = |name: &str| fs::File::create(den.path(name)).unwrap().into();
    let ran = den.env.run_command(job.descriptor(lock("given"), 7).descriptor(lock("kept"), 8));
    // The last one is the directory that `ls` reads.
    assert_eq!(ran.ok().lines().collect::<Vec<_>>(), ["0", "1", "2", "3", "7"]);
}

/// These tests need the right to create device nodes.
mod needs_device_nodes {
    use super::*;

    #[test]
    #[ignore = "needs the right to make device nodes"]
    fn root_cannot_create_devices_in_the_sandbox() {
        let attempt = "mknod disk b 8 0";
        assert_eq!(Den::new().open().sh(attempt).code, 0, "this user may make no devices");
        let den = Den::new();
        assert_ne!(den.sh(attempt).code, 0);
        assert!(!den.path("den/disk").exists());
    }
}

/// Returns whether a process is stopped, from `/proc`.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Parents exit at random moments while the sandbox is repeatedly stopped and continued: no process
/// of an orphaned group is killed by the SIGHUP that the kernel sends to stopped groups.
#[test]
fn stopping_a_sandbox_kills_none_of_its_processes() {
    const ORPHANS: &str = "
        orphan='trap \"echo hup >> hups; exit\" HUP; echo $$ >> orphans; while :; do sleep 0.05; done'
        for i in $(seq 40); do bash -c \"set -m; sh -c '$orphan' &\" & sleep 0.02; done
        echo done > done; sleep 300
    ";
    let den = Den::new();
    let (job, lifeline) = den.job("sh", &["-c", ORPHANS]);
    let guard = job.spawn().unwrap();
    until("all to be started", || {
        drop(sandbox::freeze(&[guard.child.id()]));
        den.path("den/done").exists().then_some(())
    });
    let orphans = den.await_pids("orphans", 40);
    assert!(orphans.iter().all(|pid| is_alive(*pid)));
    assert!(!den.path("den/hups").exists());
    drop(lifeline);
    all_gone(&orphans);
}

#[test]
fn all_processes_of_a_frozen_sandbox_stop_and_continue_afterwards() {
    let den = Den::new();
    let (job, lifeline) = den.job("sh", &["-c", &format!("{DAEMONS} sleep 300")]);
    let guard = job.spawn().unwrap();
    let pids = den.await_pids("pids", 3);
    assert!(!pids.iter().any(|pid| is_stopped(*pid)));
    let frozen = sandbox::freeze(&[guard.child.id()]);
    assert!(pids.iter().all(|pid| is_alive(*pid)), "stopping ends no process");
    assert!(pids.iter().all(|pid| is_stopped(*pid)), "everything is stopped");
    drop(frozen);
    until("all to go on", || (!pids.iter().any(|pid| is_stopped(*pid))).then_some(()));
    let frozen = sandbox::freeze(&[guard.child.id()]);
    drop(lifeline);
    all_gone(&pids);
    drop(frozen);
}
