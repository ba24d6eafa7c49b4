//! The helper as g3 sees it: a process that is asked line by line.

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
    /// A helper of this desktop.
    pub fn on(desktop: &Desktop) -> Helper {
        Helper::start(desktop.job(built("g3-desktop")))
    }

    /// A helper of this desktop's session, if it were one of Wayland.
    pub fn under_wayland(desktop: &Desktop) -> Helper {
        let job = desktop.job(built("g3-desktop")).env("DISPLAY", "");
        Helper::start(job.env("WAYLAND_DISPLAY", "wayland-0").env("XDG_SESSION_TYPE", "wayland"))
    }

    /// A helper that is not led to any desktop.
    pub fn nowhere(variables: &[(&str, &str)]) -> Helper {
        let mut job = Command::new(built("g3-desktop"), "/").env_clear();
        for (key, value) in variables {
            job = job.env(key, value);
        }
        Helper::start(job.stderr(Stream::Null))
    }

    /// A helper that this job starts.
    pub fn start(job: Command) -> Helper {
        let mut running = job.stdin(Stream::Piped).kill_on_parent_death().spawn().unwrap();
        let stdin = running.child.stdin.take();
        let stdout = BufReader::new(running.child.stdout.take().unwrap());
        Helper { running, stdin, stdout, next: 0 }
    }

    /// Sends a line as it is.
    pub fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends a question and gives its id.
    pub fn asks(&mut self, what: DesktopRequest) -> u64 {
        self.next += 1;
        let line = serde_json::to_string(&DesktopRequestLine { id: self.next, what }).unwrap();
        self.send(&line);
        self.next
    }

    /// The next answer.
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

    /// Asks, and gives the answer.
    pub fn ask(&mut self, what: DesktopRequest) -> DesktopResponse {
        let id = self.asks(what);
        let told = self.told();
        assert_eq!(told.id, id);
        told.what
    }

    /// Asks what is refused.
    #[track_caller]
    pub fn fault(&mut self, what: DesktopRequest) -> DesktopFault {
        match self.ask(what) {
            DesktopResponse::Fault(fault) => fault,
            other => panic!("{other:?} is no fault"),
        }
    }

    /// Does these steps, without the fail-safe.
    #[track_caller]
    pub fn does(&mut self, steps: &[InputStep]) {
        let told = self.ask(DesktopRequest::Input { steps: steps.to_vec(), fail_safe: false });
        assert_eq!(told, DesktopResponse::Done);
    }

    /// Takes a picture.
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

/// A step to a place.
pub fn to((x, y): (i32, i32)) -> InputStep {
    InputStep::Move { x, y }
}

/// A click of the left button.
pub fn click() -> InputStep {
    InputStep::Click { button: Button::Left, times: 1 }
}

/// A text.
pub fn types(text: &str) -> InputStep {
    InputStep::Type { text: text.to_owned() }
}

/// Keys held together.
pub fn keys(names: &[&str]) -> InputStep {
    InputStep::Keys { keys: names.iter().map(|name| (*name).to_owned()).collect() }
}

/// What a program of the system writes to stdout, e.g. `xprop`.
pub fn output(desktop: &Desktop, program: &str, args: &[&str]) -> String {
    let job: Command = desktop.job(PathBuf::from(program)).args(args);
    let output = job.output(base::process::OutputLimits::seconds(20)).unwrap();
    assert!(output.ok(), "{program} {args:?}: {}", output.error_text());
    output.text()
}
