//! A sandbox for the user's shell, on its own terminal: its processes cannot inject input into the
//! user's terminal (`TIOCSTI`), because that is another one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use base::process::{Command, Pty, Stream, exit_code};
use rustix::fs::{Mode, OFlags};
use rustix::termios::tcsetwinsize;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

/// The byte that a terminal sends for Ctrl-C.
const INTERRUPT: u8 = 3;

/// Returns the controlling terminal of this process; `None` in a script without one.
pub(crate) fn ours() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()
}

/// Runs a prepared command on its own terminal, with those standard streams that are redirected
/// elsewhere, and forwards input and output. Returns its exit code.
pub(crate) fn run(job: Command, user: OwnedFd) -> io::Result<i32> {
    let Pty { controller, terminal } = Pty::open()?;
    let controller = Arc::new(File::from(controller));
    if let Ok(settings) = tcgetattr(&user) {
        tcsetattr(&terminal, OptionalActions::Now, &settings)?;
    }
    resize(&user, &controller);
    let stream = |ours: bool| -> io::Result<Stream> {
        if !ours {
            return Ok(Stream::Inherit);
        }
        Ok(Stream::File(File::from(terminal.try_clone()?)))
    };
    let types = isatty(rustix::stdio::stdin());
    let job = job
        .stdin(stream(types)?)
        .stdout(stream(isatty(rustix::stdio::stdout()))?)
        .stderr(stream(isatty(rustix::stdio::stderr()))?)
        .on_terminal(terminal);
    let mut running = job.spawn()?;
    let _raw = types.then(|| Raw::begin(&user)).flatten();
    watch_signals(user.try_clone()?, controller.clone())?;
    if types {
        let typed = controller.clone();
        thread::spawn(move || pass(io::stdin(), &*typed));
    }
    // Returns when the last holder of the terminal is gone, which the sandbox ensures.
    pass(&*controller, File::from(user));
    let status = running.wait_until(None)?;
    Ok(status.map_or(1, exit_code))
}

/// Copies until one side is closed.
fn pass(mut from: impl Read, mut to: impl Write) {
    let mut bytes = [0; 8 << 10];
    loop {
        match from.read(&mut bytes) {
            Ok(n @ 1..) => {
                if to.write_all(&bytes[..n]).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}

fn resize(user: impl AsFd, controller: &File) {
    if let Ok(size) = tcgetwinsize(user) {
        let _ = tcsetwinsize(controller, size);
    }
}

/// Forwards changes of the window size, and a SIGINT that was sent rather than typed.
fn watch_signals(user: OwnedFd, controller: Arc<File>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut window, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::window_change())?, signal(SignalKind::interrupt())?)
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = window.recv() => resize(&user, &controller),
                    _ = interrupt.recv() => {
                        let _ = (&*controller).write_all(&[INTERRUPT]);
                    }
                }
            }
        });
    });
    Ok(())
}

/// The user's terminal in raw mode. Its settings are restored on drop.
struct Raw {
    terminal: OwnedFd,
    before: Termios,
}

impl Raw {
    fn begin(terminal: &OwnedFd) -> Option<Raw> {
        let before = tcgetattr(terminal).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Now, &raw).ok()?;
        Some(Raw { terminal: terminal.try_clone().ok()?, before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
