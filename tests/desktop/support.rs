//! The helper process, controlled line by line as g3 does.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout};

use base::desktop_protocol::{
    Button, CaptureTarget, DesktopFault, DesktopRequest, DesktopRequestLine, DesktopResponse,
    DesktopResponseLine, InputStep, Picture,
};
use base::process::{Command, Running, Stream};
use image::RgbImage;
use testkit::desktop::Desktop;
use testkit::env::built;

/// A running helper.
pub struct Helper {
    pub running: Running,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Helper {
    /// Starts a helper on this desktop.
    pub fn on(desktop: &Desktop) -> Helper {
        Helper::start(desktop.job(built("g3-desktop")))
    }

    /// Starts a helper as if this desktop's session used Wayland.
    pub fn under_wayland(desktop: &Desktop) -> Helper {
        let job = desktop.job(built("g3-desktop")).env("DISPLAY", "");
        Helper::start(job.env("WAYLAND_DISPLAY", "wayland-0").env("XDG_SESSION_TYPE", "wayland"))
    }

    /// Starts a helper without a desktop.
    pub fn nowhere(variables: &[(&str, &str)]) -> Helper {
        let mut job = Command::new(built("g3-desktop"), "/").env_clear();
        for (key, value) in variables {
            job = job.env(key, value);
        }
        Helper::start(job.stderr(Stream::Null))
    }

    /// Starts a helper with this command.
    pub fn start(job: Command) -> Helper {
        let mut running = job.stdin(Stream::Piped).kill_on_parent_death().spawn().unwrap();
        let stdin = running.child.stdin.take();
        let stdout = BufReader::new(running.child.stdout.take().unwrap());
        Helper { running, stdin, stdout, next: 0 }
    }

    /// Sends a raw line.
    pub fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends a request and returns its id.
    pub fn asks(&mut self, what: DesktopRequest) -> u64 {
        self.next += 1;
        let line = serde_json::to_string(&DesktopRequestLine { id: self.next, what }).unwrap();
        self.send(&line);
        self.next
    }

    /// Returns the next response.
    pub fn told(&mut self) -> DesktopResponseLine {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Closes its stdin and stdout.
    pub fn hang_up(self) -> Running {
        self.running
    }

    /// Closes its stdin.
    pub fn says_no_more(&mut self) {
        self.stdin = None;
    }

    /// Sends a request and returns its response.
    pub fn ask(&mut self, what: DesktopRequest) -> DesktopResponse {
        let id = self.asks(what);
        let told = self.told();
        assert_eq!(told.id, id);
        told.what
    }

    /// Sends a request that must be rejected.
    #[track_caller]
    pub fn fault(&mut self, what: DesktopRequest) -> DesktopFault {
        match self.ask(what) {
            DesktopResponse::Fault(fault) => fault,
            other => panic!("{other:?} is no fault"),
        }
    }

    /// Executes these steps without the fail-safe.
    #[track_caller]
    pub fn does(&mut self, steps: &[InputStep]) {
        let told = self.ask(DesktopRequest::Input { steps: steps.to_vec(), fail_safe: false });
        assert_eq!(told, DesktopResponse::Done);
    }

    /// Takes a screenshot.
    #[track_caller]
    pub fn captures(&mut self, wanted: CaptureTarget) -> (Picture, RgbImage) {
        match self.ask(DesktopRequest::Capture(wanted)) {
            DesktopResponse::Picture(picture) => {
                let bytes = base64::Engine::decode(
                    &base64::engine::general_purpose::STANDARD,
                    &picture.data,
                );
                let pixels = image::load_from_memory(&bytes.unwrap()).unwrap().to_rgb8();
                (picture, pixels)
            }
            other => panic!("{other:?} is no picture"),
        }
    }
}

/// Returns a step that moves the pointer.
pub fn to((x, y): (i32, i32)) -> InputStep {
    InputStep::Move { x, y }
}

/// Returns a step that clicks the left button.
pub fn click() -> InputStep {
    InputStep::Click { button: Button::Left, times: 1 }
}

/// Returns a step that types a text.
pub fn types(text: &str) -> InputStep {
    InputStep::Type { text: text.to_owned() }
}

/// Returns a step that presses keys together.
pub fn keys(names: &[&str]) -> InputStep {
    InputStep::Keys { keys: names.iter().map(|name| (*name).to_owned()).collect() }
}

/// Returns the stdout of a system program, e.g. `xprop`.
pub fn output(desktop: &Desktop, program: &str, args: &[&str]) -> String {
    let job: Command = desktop.job(PathBuf::from(program)).args(args);
    let output = job.output(base::process::OutputLimits::seconds(20)).unwrap();
    assert!(output.ok(), "{program} {args:?}: {}", output.error_text());
    output.text()
}
