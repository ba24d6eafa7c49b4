//! The limits of memory, processes and disk: what reaches one ends, nothing of it survives, and its
//! work is kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use base::process::OutputLimits;
use base::sandbox::home::home_rules;
use studio_core::sandbox::cgroup::{self, CgroupSupport};
use studio_core::sandbox::limits::{ExceededLimit, SandboxLimits};
use studio_core::sandbox::{self, SandboxFailure, SandboxJob, SandboxSpec};
use testkit::env::{TestEnv, processes_in};

use crate::fixtures::{Scene, studio};

const MIB: u64 = 1 << 20;
/// Takes 600 MiB of memory: `tail` keeps the last line, and there is only one, which is not read for
/// some seconds.
const MEMORY_HOG: &str = "head -c 600M /dev/zero | tail -n 1 | (sleep 5 && wc -c > taken)";
/// Starts 60 processes that wait.
const MANY_PROCESSES: &str = "for i in $(seq 60); do sleep 300 & done; sleep 2";
/// Writes 64 MiB into 16 files, and waits.
const DISK_HOG: &str =
    "for i in $(seq 16); do head -c 4M /dev/urandom > file-$i; done; : > written; sleep 300";

/// A directory and the limits of the sandbox in it.
struct LimitedDir {
    env: TestEnv,
    spec: SandboxSpec,
}

impl LimitedDir {
    fn new(limits: SandboxLimits) -> LimitedDir {
        let env = TestEnv::new();
        let directory = env.home().canonicalize().unwrap().join("limited");
        fs::create_dir(&directory).unwrap();
        let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
        let limits = SandboxLimits { trees: vec![directory.clone()], ..limits };
        let mut rules = home_rules(&env.home().canonicalize().unwrap(), &[]);
        rules.write.push(directory.clone());
        let spec = SandboxSpec {
            confined: true,
            best_effort: true,
            rules,
            directory,
            environment: vec![path],
            limits,
            ..SandboxSpec::default()
        };
        LimitedDir { env, spec }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.spec.directory.join(name)
    }

    /// Runs a line; returns the exit code and the limit that it reached.
    fn sh(&self, line: &str) -> (i32, Option<ExceededLimit>) {
        let job = sandbox::prepare_job_with(studio().as_ref(), &self.spec, "sh", ["-c", line]);
        self.run(job.unwrap())
    }

    fn run(&self, job: SandboxJob) -> (i32, Option<ExceededLimit>) {
        let SandboxJob { command, lifeline, report } = job;
        let output = command.output(OutputLimits::seconds(600)).unwrap();
        drop(lifeline);
        assert!(!output.timed_out, "{}", output.text());
        let limit = match report.read() {
            Some(SandboxFailure::Limit(limit)) => Some(limit),
            Some(SandboxFailure::Start(failure)) => panic!("{failure:?}"),
            None => None,
        };
        (base::process::exit_code(output.status), limit)
    }

    /// Returns whether any process works in the directory.
    fn is_in_use(&self) -> bool {
        !processes_in(&self.spec.directory).is_empty()
    }
}

#[test]
fn memory_is_limited_for_all_processes_together() {
    let unlimited = LimitedDir::new(SandboxLimits::default());
    assert_eq!(unlimited.sh(MEMORY_HOG), (0, None));
    assert_eq!(fs::read_to_string(unlimited.path("taken")).unwrap().trim(), "629145600");
    let max = 200 * MIB;
    let limited = LimitedDir::new(SandboxLimits { memory: Some(max), ..Default::default() });
    assert_eq!(limited.sh(MEMORY_HOG), (137, Some(ExceededLimit::Memory(max))));
    assert!(!limited.is_in_use(), "a process outlived its sandbox");
    assert_eq!(limited.sh("head -c 9M /dev/zero | tail -n 1 | wc -c"), (0, None));
}

#[test]
fn the_number_of_processes_is_limited() {
    let unlimited = LimitedDir::new(SandboxLimits::default());
    let (code, limit) = unlimited.sh(MANY_PROCESSES);
    assert_eq!((code, limit), (0, None));
    let limited = LimitedDir::new(SandboxLimits { tasks: Some(40), ..Default::default() });
    assert_eq!(limited.sh(MANY_PROCESSES), (137, Some(ExceededLimit::Tasks(40))));
    assert!(!limited.is_in_use(), "a process outlived its sandbox");
}

#[test]
fn space_on_disk_is_limited() {
    let unlimited = LimitedDir::new(SandboxLimits::default());
    let line = DISK_HOG.replace("sleep 300", ":");
    assert_eq!(unlimited.sh(&line), (0, None));
    let limited = LimitedDir::new(SandboxLimits { disk: Some(20 * MIB), ..Default::default() });
    assert_eq!(limited.sh(DISK_HOG), (137, Some(ExceededLimit::Disk(20 * MIB))));
    assert!(!limited.is_in_use(), "a process outlived its sandbox");
    let no_space = SandboxLimits { free_disk: Some(u64::MAX), ..Default::default() };
    let limit = LimitedDir::new(no_space).sh("sleep 300").1;
    assert_eq!(limit, Some(ExceededLimit::FreeDisk(u64::MAX)));
}

/// Each process starts two that start two, one of them in its own process session.
const FORK_BOMB: &str = "sh bomb.sh & setsid sh bomb.sh & sh bomb.sh";

/// The program waits for its limit: without room for one more process, a shell exits.
const BOMBED: &str = "sh bomb.sh & sleep 300";

/// As an ordinary user with a limit of its own, so that the test cannot take the machine down.
#[test]
fn nothing_of_a_fork_bomb_survives() {
    let limits = SandboxLimits { tasks: Some(100), ..Default::default() };
    let bombed = LimitedDir::new(limits);
    fs::write(bombed.path("bomb.sh"), FORK_BOMB).unwrap();
    let program = bombed.env.home().join("studio");
    fs::copy(studio(), &program).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let user = match is_root {
        true => "setpriv --reuid=65534 --regid=65534 --clear-groups",
        false => "",
    };
    if is_root {
        let home = bombed.env.home().display().to_string();
        let chown = bombed.env.command("chown", bombed.env.home());
        let chown = chown.args(["-R", "65534:65534", &home]);
        assert!(chown.output(OutputLimits::seconds(30)).unwrap().ok());
    }
    let wrapper = bombed.env.home().join("as-user");
    let line = format!("#!/bin/sh\nexec {user} prlimit --nproc=500 {} \"$@\"", program.display());
    fs::write(&wrapper, line).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let job = sandbox::prepare_job_with(wrapper.as_os_str(), &bombed.spec, "sh", ["-c", BOMBED]);
    assert_eq!(bombed.run(job.unwrap()), (137, Some(ExceededLimit::Tasks(100))));
    assert!(!bombed.is_in_use(), "a process outlived its sandbox");
}

#[test]
fn a_session_that_reaches_a_limit_keeps_its_work_and_can_be_resumed() {
    let scene = Scene::new();
    let script = format!("write kept.txt 1; say soon large; sh {MEMORY_HOG}; sh rm -f taken");
    let id = scene.exec(["--memory", "200M", &script]);
    let status = scene.await_state(&id, "failed");
    let why = format!(
        "it reached its limit of 200 MiB of memory; `studio resume {id} --memory SIZE` or \
         `[studio.limits] memory_bytes` raises it"
    );
    assert_eq!(status["why"], why);
    let limits: Vec<_> =
        scene.journal(&id).into_iter().filter(|it| it["entry"] == "limit").collect();
    assert_eq!(limits.len(), 1, "{limits:?}");
    assert_eq!(limits[0]["what"], "200 MiB of memory");
    scene.studio(["list"]).exits(0).output_contains("it reached its limit of 200 MiB of memory");
    scene.studio(["diff", &id]).exits(0).output_contains("kept.txt");
    scene.studio(["logs", &id]).exits(0).output_contains("limit reached: 200 MiB of memory");
    scene.await_free(&id);
    scene.studio(["resume", &id, "--memory", "8G"]).exits(0);
    scene.await_state(&id, "ready");
    scene.studio(["logs", &id]).exits(0).output_contains("from now on: 8 GiB of memory");
}

#[test]
fn an_acp_agent_that_starts_too_many_processes_is_ended() {
    let scene = Scene::new();
    scene.configure("[studio.limits]\nprocesses = 40\n");
    fs::write(scene.repo.path().join("many.sh"), MANY_PROCESSES).unwrap();
    scene.repo.git(["add", "many.sh"]);
    scene.repo.git(["commit", "-q", "-m", "a script"]);
    let id = scene.exec(["--agent", "talk", "write kept.txt 1; sh sh many.sh"]);
    let status = scene.await_state(&id, "failed");
    let why = status["why"].as_str().unwrap();
    assert!(why.starts_with("it reached its limit of 40 processes and threads; "), "{why}");
    scene.studio(["diff", &id]).exits(0).output_contains("kept.txt");
}

#[test]
fn a_check_that_reaches_a_limit_is_red_with_the_reason() {
    let scene = Scene::new();
    scene.configure("[studio.limits]\nmemory_bytes = 209715200\n");
    let id = scene.exec(["--check", MEMORY_HOG, "write a 1"]);
    let status = scene.await_state(&id, "failed");
    let why = status["why"].as_str().unwrap();
    assert!(
        why.contains("failed with exit code 137: it reached its limit of 200 MiB of memory"),
        "{why}"
    );
    scene.configure("");
    scene.await_free(&id);
    scene.studio(["check", &id]).exits(0);
}

#[test]
fn a_sandbox_has_its_own_cgroup_where_one_can_be_created() {
    let limits = SandboxLimits { tasks: Some(100), ..Default::default() };
    let limited = LimitedDir::new(limits);
    let line = "cat /proc/self/cgroup > cgroup; cat /proc/self/oom_score_adj > score";
    assert_eq!(limited.sh(line), (0, None));
    let text = fs::read_to_string(limited.path("cgroup")).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let name = own.rsplit('/').next().unwrap_or_default();
    let has_own = name.starts_with("studio-");
    assert_eq!(has_own, cgroup::support() != CgroupSupport::None, "{text}");
    if has_own {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
        let root = mount.split(' ').nth(1).unwrap();
        assert!(PathBuf::from(root).is_dir());
        assert!(!PathBuf::from(format!("{root}{own}")).exists(), "{own} was not removed");
    }
    let score = fs::read_to_string(limited.path("score")).unwrap();
    assert_eq!(score.trim(), "500");
}

#[test]
fn a_sandbox_without_a_process_namespace_has_its_own_cgroup_too() {
    let mut scene = Scene::new();
    scene.env.set("G3_TEST_NAMESPACES", "off");
    let run = scene.studio(["sandbox", "--", "cat", "/proc/self/cgroup"]);
    let has_own = run.ok().lines().any(|line| line.contains("/studio-"));
    assert_eq!(has_own, cgroup::support() != CgroupSupport::None, "{run}");
}

#[test]
fn a_time_limit_beyond_the_clock_is_never_reached() {
    let scene = Scene::new();
    scene.configure(&format!("limits.timeout_seconds = {}\n", i64::MAX));
    let id = scene.ready("write a 1");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}
