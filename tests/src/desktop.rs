//! A private desktop: an X server, a window manager, a session bus with accessibility, and a GTK
//! program that logs its events.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use base::process::{Command, Running, Stream, find_program};

use crate::env::until;

/// The programs of the desktop and their Debian packages.
const PROGRAMS: &[(&str, &str)] =
    &[("Xvfb", "xvfb"), ("openbox", "openbox"), ("dbus-daemon", "dbus")];
/// The system's Python: other installations do not find the system's GTK.
const PYTHON: &str = "/usr/bin/python3";
/// Known paths of the program that starts the accessibility bus.
const LAUNCHERS: &[&str] = &[
    "/usr/libexec/at-spi-bus-launcher",
    "/usr/lib/at-spi2-core/at-spi-bus-launcher",
    "/usr/lib/at-spi-bus-launcher",
];

/// A running desktop of 1280 x 800. Its processes end on drop.
#[derive(Debug)]
pub struct Desktop {
    /// The processes, in the order in which they were started.
    running: Vec<Running>,
    managed: bool,
    display: String,
    address: Option<String>,
    home: tempfile::TempDir,
}

impl Drop for Desktop {
    fn drop(&mut self) {
        // The X server is ended last, because the others depend on it.
        while self.running.pop().is_some() {}
    }
}

/// A running program that logs its events.
#[derive(Debug)]
pub struct DesktopProgram {
    log: PathBuf,
    errors: PathBuf,
    running: Running,
}

/// The position and size of a widget on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesktopDirs {
    /// Distance from the left edge.
    pub x: i32,
    /// Distance from the top edge.
    pub y: i32,
    /// Width in pixels.
    pub width: i32,
    /// Height in pixels.
    pub height: i32,
}

impl DesktopDirs {
    /// Returns its center.
    pub fn middle(self) -> (i32, i32) {
        (self.x + self.width / 2, self.y + self.height / 2)
    }
}

impl Desktop {
    /// Starts a complete desktop: window manager, session bus, accessibility bus.
    pub fn start() -> Desktop {
        let mut desktop = Desktop::bare();
        desktop.start_bus();
        let launcher = LAUNCHERS.iter().map(Path::new).find(|path| path.exists());
        let launcher = launcher.expect("the accessibility bus is missing: install at-spi2-core");
        let job = desktop.job(launcher).arg("--launch-immediately");
        desktop.running.push(spawn(job.stdout(Stream::Null)));
        desktop.start_manager();
        desktop
    }

    /// Starts an X server only: no window manager, no bus.
    pub fn bare() -> Desktop {
        for (program, package) in PROGRAMS {
            let there = find_program(program).is_some();
            assert!(there, "`{program}` is missing: `./setup --tests`, or install {package}");
        }
        let home = tempfile::Builder::new().prefix("desktop-test-").tempdir().expect("a directory");
        let run = home.path().join("run");
        fs::create_dir(&run).expect("our own directory");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&run, private).expect("our own directory");
        let job = Command::new("Xvfb", home.path()).stderr(Stream::Null).kill_on_parent_death();
        let job = job.args(["-displayfd", "1", "-screen", "0", "1280x800x24", "-nolisten", "tcp"]);
        let mut server = spawn(job);
        let display = format!(":{}", first_line(&mut server, "the number of the X display"));
        Desktop { running: vec![server], managed: false, display, address: None, home }
    }

    /// Starts a session bus.
    pub fn start_bus(&mut self) {
        let job = self.job("dbus-daemon").args(["--session", "--nofork", "--print-address=1"]);
        let mut bus = spawn(job);
        self.address = Some(first_line(&mut bus, "the address of the session bus"));
        self.running.push(bus);
    }

    /// Starts a window manager and waits until it is ready.
    pub fn start_manager(&mut self) {
        let ready = self.home.path().join("managed");
        let told = format!("touch {}", ready.display());
        let job = self.job("openbox").args(["--sm-disable", "--startup", &told]);
        self.running.push(spawn(job.stdout(Stream::Null)));
        until("the window manager", || ready.exists().then_some(()));
        self.managed = true;
    }

    /// Returns the display's name, e.g. `:99`.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Returns the variables that connect a program to this desktop only.
    pub fn variables(&self) -> Vec<(String, String)> {
        let runtime = self.home.path().join("run").display().to_string();
        let mut variables = vec![
            ("DISPLAY", self.display.clone()),
            ("XDG_RUNTIME_DIR", runtime),
            ("XDG_SESSION_TYPE", "x11".to_owned()),
            ("WAYLAND_DISPLAY", String::new()),
            ("GTK_MODULES", "gail:atk-bridge".to_owned()),
            ("GTK_THEME", "Adwaita".to_owned()),
            ("GSETTINGS_BACKEND", "memory".to_owned()),
        ];
        // An invalid address, so that no program starts its own bus.
        let nowhere = || "unix:path=/nonexistent/bus".to_owned();
        variables.push(("DBUS_SESSION_BUS_ADDRESS", self.address.clone().unwrap_or_else(nowhere)));
        variables.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Prepares a program on this desktop.
    pub fn job(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut job = Command::new(program, self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .kill_on_parent_death();
        for (key, value) in self.variables() {
            job = job.env(key, value);
        }
        job.stderr(Stream::Null)
    }

    /// Starts one of the Python test programs: its log file is its first argument.
    pub fn script(&self, name: &str, log: &str, args: &[&str]) -> DesktopProgram {
        let (log, errors) = (format!("{log}.log"), format!("{log}.err"));
        let (log, errors) = (self.home.path().join(log), self.home.path().join(errors));
        fs::write(&log, "").expect("our own directory");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/desktop").join(name);
        let stderr = fs::File::create(&errors).expect("our own directory");
        let job = self.job(PYTHON).arg(script).arg(&log).args(args);
        let running = spawn(job.stdout(Stream::Null).stderr(Stream::File(stderr)));
        DesktopProgram { log, errors, running }
    }

    /// Returns the directory of the desktop's files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts the GTK program and waits until it is visible; a complete desktop gives it the focus.
    pub fn program(&self, title: &str) -> DesktopProgram {
        let managed: &[&str] = if self.managed { &["managed"] } else { &[] };
        let program = self.script("program.py", title, &[&[title], managed].concat());
        program.saw(&format!("settled {title}"));
        program
    }
}

impl DesktopProgram {
    /// Returns its log.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its log contains this line.
    #[track_caller]
    pub fn saw(&self, line: &str) {
        self.saw_times(line, 1);
    }

    /// Waits until its log contains this line this many times.
    #[track_caller]
    pub fn saw_times(&self, line: &str, times: usize) {
        let seen = || self.log().lines().filter(|known| *known == line).count() >= times;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        until(line, || {
            let late = std::time::Instant::now() > end;
            assert!(
                !late,
                "`{line}` is not among what the program saw (it needs `./setup --tests`):\n{}\n{}",
                self.log(),
                fs::read_to_string(&self.errors).unwrap_or_default()
            );
            seen().then_some(())
        });
    }

    /// Returns the position of a widget, by its name with `_` for spaces.
    #[track_caller]
    pub fn place(&self, name: &str) -> DesktopDirs {
        let start = format!("place {name} ");
        until(&start, || {
            let log = self.log();
            let line = log.lines().rev().find_map(|line| line.strip_prefix(&start))?;
            let numbers: Vec<i32> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
            let [x, y, width, height] = numbers[..] else { return None };
            Some(DesktopDirs { x, y, width, height })
        })
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.running.id()
    }
}

#[track_caller]
fn spawn(job: Command) -> Running {
    job.spawn().unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the first line of a program's output; the rest is read and discarded.
#[track_caller]
fn first_line(running: &mut Running, what: &str) -> String {
    let stdout = running.child.stdout.take().expect("a pipe");
    let mut reader = BufReader::new(stdout);
    let mut line = String::new();
    reader.read_line(&mut line).expect("it is text");
    assert!(!line.trim().is_empty(), "nobody told {what}");
    std::thread::spawn(move || std::io::copy(&mut reader.by_ref(), &mut std::io::sink()));
    line.trim().to_owned()
}
