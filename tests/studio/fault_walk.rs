//! The walk of faults: enumerates the points that a command passes, then runs the command in a
//! fresh copy of a prepared repository with each fault at each point, then what a user does next,
//! and checks the invariants each time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base::fault::Fault;
use base::process::{Command, OutputLimits, Running, Stream};
use serde_json::Value;
use studio_core::invariants::{self, Baseline};
use testkit::env::{CommandRun, poll};

use crate::fixtures::{Scene, studio};

/// The variable that selects the cases: `all`, or a name of a point. Without it a subset runs.
const SELECTION: &str = "FAULT_WALK";
/// One of this many cases belongs to the subset.
const SUBSET: u64 = 40;

/// A command under test.
pub struct WalkedCommand {
    /// The name for reports.
    pub name: &'static str,
    /// Prepares the repository, and returns the ids of the sessions that the command names.
    pub prepare: fn(&Scene) -> Vec<String>,
    /// Returns the arguments.
    pub args: fn(&[String]) -> Vec<String>,
    /// Checks what the command reaches, with a fault or after it was repeated.
    pub goal: fn(&Scene, &[String]) -> Result<(), String>,
    /// Whether the command deletes the data of the first session.
    pub deletes_first: bool,
}

/// A point at which a fault can happen: its name, with the number of its pass in one process.
type Point = (String, u32);

/// A prepared repository and its copy.
struct Walk {
    command: WalkedCommand,
    scene: Scene,
    copy: tempfile::TempDir,
    ids: Vec<String>,
    baseline: Baseline,
}

/// What a case found.
enum CaseResult {
    /// The command did not pass the point this time.
    NotReached,
    /// The violated invariants, one sentence each.
    Reached(Vec<String>),
}

/// Walks through all points and faults of a command, prints the numbers, and panics with all
/// violations.
#[expect(clippy::print_stdout, reason = "the numbers show that the walk is exhaustive")]
pub fn walk(command: WalkedCommand) {
    let walk = Walk::new(command);
    let points = walk.points();
    assert!(points.len() >= 5, "{}: {points:?}", walk.command.name);
    let pairs: Vec<(&Point, Fault, &str)> = points
        .iter()
        .flat_map(|point| faults_at(&point.0).into_iter().map(move |(name, it)| (point, it, name)))
        .collect();
    let selection = std::env::var(SELECTION).ok();
    let (mut cases, mut missed, mut report) = (0, 0, String::new());
    for (point, fault, name) in &pairs {
        let case = format!("{name}@{}:{}", point.0, point.1);
        let is_selected = match selection.as_deref() {
            Some("all") => true,
            Some(text) => case.contains(text),
            None => hash(&format!("{} {case}", walk.command.name)).is_multiple_of(SUBSET),
        };
        if !is_selected {
            continue;
        }
        cases += 1;
        match walk.run_case(*fault, &case) {
            CaseResult::NotReached => missed += 1,
            CaseResult::Reached(violations) => {
                for violation in violations {
                    let _ = writeln!(report, "{} {case}: {violation}", walk.command.name);
                }
            }
        }
    }
    println!(
        "{}: {} points, {} pairs of point and fault, {cases} walked, {missed} not reached",
        walk.command.name,
        points.len(),
        pairs.len(),
    );
    assert!(report.is_empty(), "\n{report}");
    assert!(cases == 0 || missed * 4 <= cases, "{missed} of {cases} faults did not happen");
}

/// Returns the faults that make sense at a point, with their names.
fn faults_at(point: &str) -> Vec<(&'static str, Fault)> {
    let call = point.split(' ').nth(1).unwrap_or_default();
    let applies = |fault: &Fault| match (call, fault) {
        ("step", fault) => !matches!(fault, Fault::NoSpace | Fault::Io | Fault::TooManyFiles),
        (_, Fault::Io) => true,
        ("write", Fault::NoSpace | Fault::Kill) => true,
        ("create" | "open" | "lock", Fault::NoSpace | Fault::TooManyFiles) => true,
        ("rename", Fault::Kill | Fault::NoSpace) => true,
        _ => false,
    };
    Fault::ALL.into_iter().filter(|(_, fault)| applies(fault)).collect()
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Walk {
    fn new(command: WalkedCommand) -> Walk {
        let scene = Scene::at("repo");
        scene.repo.write("edited", "old\n");
        scene.repo.write("other", "o\n");
        scene.repo.git(["add", "-A"]);
        scene.repo.git(["commit", "-q", "-m", "Start"]);
        scene.repo.git(["tag", "of-the-user"]);
        scene.repo.git(["branch", "of-the-user"]);
        // Changes of the user that no session touches.
        scene.repo.write("edited", "edited by the user\n");
        scene.repo.write("staged", "staged by the user\n");
        scene.repo.git(["add", "staged"]);
        scene.repo.write("untracked", "written by the user\n");
        let ids = (command.prepare)(&scene);
        settle(&scene).expect("nothing runs after the preparation");
        let baseline = baseline(&scene);
        let copy = tempfile::tempdir().expect("a temporary directory");
        copy_tree(scene.env.home(), &copy.path().join("home"));
        let baseline = match command.deletes_first {
            true => baseline.without(&ids[0]),
            false => baseline,
        };
        Walk { command, scene, copy, ids, baseline }
    }

    fn points_file(&self) -> PathBuf {
        self.copy.path().join("points")
    }

    /// Restores the prepared repository, and removes the records of the last case.
    fn restore(&self) {
        let home = self.scene.env.home();
        for entry in fs::read_dir(home).expect("the home").flatten() {
            let path = entry.path();
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.expect("the home is ours");
        }
        copy_tree(&self.copy.path().join("home"), home);
        for name in ["points", "points.go"] {
            let _ = fs::remove_file(self.copy.path().join(name));
        }
    }

    fn start(&self, fault: Option<&str>) -> Running {
        let args = (self.command.args)(&self.ids);
        let job = self.scene.env.command(studio(), self.scene.repo.path()).args(args);
        let (out, err) = (self.copy.path().join("out"), self.copy.path().join("err"));
        let file = |path: &Path| Stream::File(fs::File::create(path).expect("it is ours"));
        let job = job.stdout(file(&out)).stderr(file(&err));
        let job = job.env("G3_TEST_POINTS", self.points_file());
        let job = match fault {
            Some(fault) => job.env("G3_TEST_FAULT", fault),
            None => job,
        };
        job.spawn().expect("studio can be started")
    }

    /// Returns the exit code and the output of a started command; `None` if it hangs.
    fn finish(&self, mut running: Running) -> Option<CommandRun> {
        let status = poll(|| running.child.try_wait().ok().flatten())?;
        let read = |name: &str| fs::read_to_string(self.copy.path().join(name)).unwrap_or_default();
        let code = base::process::exit_code(status);
        Some(CommandRun { code, out: read("out"), err: read("err") })
    }

    /// Returns the recorded lines: process, mark, point.
    fn records(&self) -> Vec<(String, String, String)> {
        let text = fs::read_to_string(self.points_file()).unwrap_or_default();
        let fields = |line: &str| {
            let mut fields = line.splitn(3, '\t').map(str::to_owned);
            Some((fields.next()?, fields.next()?, fields.next()?))
        };
        text.lines().filter_map(fields).collect()
    }

    /// Runs the command without a fault, and returns all points that it passes.
    fn points(&self) -> BTreeSet<Point> {
        self.restore();
        let ran = self.finish(self.start(None)).expect("the command ends");
        assert!(ran.code <= 1, "{}: {ran}", self.command.name);
        settle(&self.scene).expect("everything ends");
        let records = self.records();
        (self.command.goal)(&self.scene, &self.ids).expect("the goal is reached without a fault");
        let mut violations = Vec::new();
        self.end_trial(&mut violations);
        violations.extend(self.violations());
        assert!(violations.is_empty(), "{}: without a fault: {violations:#?}", self.command.name);
        let mut passes: BTreeMap<(String, String), u32> = BTreeMap::new();
        for (process, _, point) in records {
            *passes.entry((process, point)).or_insert(0) += 1;
        }
        let each = passes.into_iter();
        each.flat_map(|((_, point), count)| (1..=count).map(move |n| (point.clone(), n))).collect()
    }

    fn run_case(&self, fault: Fault, case: &str) -> CaseResult {
        self.restore();
        let mut found = Vec::new();
        let mut running = self.start(Some(case));
        if fault == Fault::LostLocks {
            let happened = || self.records().iter().any(|(_, mark, _)| mark == "fault");
            let _ = poll(|| {
                let ended = running.child.try_wait().ok().flatten().is_some();
                (happened() || ended && settle(&self.scene).is_ok()).then_some(())
            });
            self.look(&mut found);
            fs::write(self.copy.path().join("points.go"), "").expect("it is ours");
        }
        match self.finish(running) {
            Some(ran) => judge("the command", &ran, &mut found),
            None => found.push("the command hangs".to_owned()),
        }
        found.extend(settle(&self.scene).err());
        if !self.records().iter().any(|(_, mark, _)| mark == "fault") {
            return CaseResult::NotReached;
        }
        self.look(&mut found);
        found.extend(settle(&self.scene).err());
        self.end_trial(&mut found);
        found.extend(self.violations());
        self.repeat(&mut found);
        self.undo(&mut found);
        CaseResult::Reached(found)
    }

    /// Runs what a user runs to look at what happened.
    fn look(&self, found: &mut Vec<String>) {
        make_old(self.scene.env.home());
        let list = self.studio(&["list", "--all", "--json"]);
        judge("list", &list, found);
        if list.code != 0 {
            found.push(format!("list fails: {list}"));
        }
        judge("doctor", &self.studio(&["doctor"]), found);
    }

    /// Ends a trial, so that the main checkout has the user's files.
    fn end_trial(&self, found: &mut Vec<String>) {
        if self.command.name != "try" {
            return;
        }
        let ended = self.studio(&["try", "--end"]);
        judge("try --end", &ended, found);
    }

    /// Repeats the command, as a user does after a failure, and checks that it reaches its goal.
    fn repeat(&self, found: &mut Vec<String>) {
        if (self.command.goal)(&self.scene, &self.ids).is_ok() {
            return;
        }
        let before = found.len();
        judge("resume --all", &self.studio(&["resume", "--all"]), found);
        found.extend(settle(&self.scene).err());
        if (self.command.goal)(&self.scene, &self.ids).is_err() {
            let args = (self.command.args)(&self.ids);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let again = self.studio(&args);
            judge("the repeated command", &again, found);
            found.extend(settle(&self.scene).err());
            if let Err(reason) = (self.command.goal)(&self.scene, &self.ids) {
                found.push(format!("repeated: {reason}: {again}"));
            }
        }
        self.end_trial(found);
        found.extend(self.violations().into_iter().map(|it| format!("repeated: {it}")));
        found.truncate(before + 12);
    }

    /// Undoes the last operation, if one can be undone.
    fn undo(&self, found: &mut Vec<String>) {
        let operations = self.studio(&["operations", "--json"]);
        if operations.code != 0 {
            found.push(format!("operations fails: {operations}"));
            return;
        }
        let operations = operations.json();
        let last = operations["operations"].as_array().and_then(|all| all.last().cloned());
        let Some(last) = last else { return };
        let can_undo =
            ["accept", "accept_hunks", "discard"].iter().any(|kind| last["kind"] == *kind)
                && last["undone_by"].is_null()
                && !self.command.deletes_first;
        if can_undo {
            let undone = self.studio(&["undo"]);
            if undone.code != 0 {
                found.push(format!("undo fails: {undone}"));
            }
            found.extend(self.violations().into_iter().map(|it| format!("undone: {it}")));
        }
    }

    fn studio(&self, args: &[&str]) -> CommandRun {
        let job = self.scene.env.command(studio(), self.scene.repo.path()).args(args);
        let output = job.output(OutputLimits::seconds(60)).expect("studio can be started");
        CommandRun {
            code: if output.timed_out { 124 } else { output.code() },
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn violations(&self) -> Vec<String> {
        let mut found = match self.baseline.violations() {
            Ok(found) => found,
            Err(failure) => vec![failure.sentence()],
        };
        let list = self.studio(&["list", "--all", "--json"]);
        let list: Value = serde_json::from_str(&list.out).unwrap_or_default();
        match self.baseline.inconsistent_sessions(&list) {
            Ok(inconsistent) => found.extend(inconsistent),
            Err(failure) => found.push(failure.sentence()),
        }
        found
    }
}

fn baseline(scene: &Scene) -> Baseline {
    // `plan` writes its texts into the main checkout.
    let plan = scene.repo.path().join("g3-plan");
    let worktrees = [scene.repo.worktrees(), scene.repo.path().join(".worktrees"), plan];
    Baseline::read(scene.repo.path(), &worktrees).expect("the repository can be read")
}

/// Adds a violation if a command hung, crashed or failed without a reason.
fn judge(what: &str, ran: &CommandRun, found: &mut Vec<String>) {
    let is_known = (0..=5).contains(&ran.code) || ran.code == 137;
    if !is_known || ran.err.contains("panicked") {
        found.push(format!("{what} ends with exit code {}: {ran}", ran.code));
    }
}

/// Waits until no process of the scene runs; returns those that do not end.
fn settle(scene: &Scene) -> Result<(), String> {
    let running = || invariants::processes_in(scene.env.home());
    match poll(|| running().is_empty().then_some(())) {
        Some(()) => Ok(()),
        None => Err(format!("processes are left: {:?}", running())),
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the directory can be made");
    let job = Command::new("cp", "/").args(["-a", "--"]).arg(from.join(".")).arg(to);
    let output = job.output(OutputLimits::seconds(60)).expect("cp runs");
    assert!(output.ok(), "{}", output.error_text());
}

/// Makes temporary files old enough to be recognized as leftovers.
fn make_old(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_temporary = [".tmp-", ".new-", "tmp_obj_", "tmp_pack_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            || name.ends_with(".lock") && name != "operations.lock";
        if is_temporary && let Ok(file) = fs::File::open(&path) {
            let _ = file.set_modified(SystemTime::now() - Duration::from_secs(7200));
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_old(&path);
        }
    }
}
