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
const CTRL_C: u8 = 3;

/// Returns the controlling terminal of this process; `None` in a script without one.
pub(crate) fn open_controlling() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()
}

/// Runs a prepared command on its own terminal, with those standard streams that are redirected
/// elsewhere, and forwards input and output. Returns its exit code.
pub(crate) fn run(command: Command, user: OwnedFd) -> io::Result<i32> {
    let Pty { controller, terminal } = Pty::open()?;
    let controller = Arc::new(File::from(controller));
    if let Ok(settings) = tcgetattr(&user) {
        tcsetattr(&terminal, OptionalActions::Now, &settings)?;
    }
    resize(&user, &controller);
    let stream = |is_terminal: bool| -> io::Result<Stream> {
        if !is_terminal {
            return Ok(Stream::Inherit);
        }
        Ok(Stream::File(File::from(terminal.try_clone()?)))
    };
    let reads_terminal = isatty(rustix::stdio::stdin());
    let command = command
        .stdin(stream(reads_terminal)?)
        .stdout(stream(isatty(rustix::stdio::stdout()))?)
        .stderr(stream(isatty(rustix::stdio::stderr()))?)
        .on_terminal(terminal);
    let mut running = command.spawn()?;
    let _raw_mode = reads_terminal.then(|| Raw::enable(&user)).flatten();
    watch_signals(user.try_clone()?, controller.clone())?;
    if reads_terminal {
        let input = controller.clone();
        thread::spawn(move || copy_stream(io::stdin(), &*input));
    }
    // Returns when the last holder of the terminal is gone, which the sandbox ensures.
    copy_stream(&*controller, File::from(user));
    let status = running.wait_until(None)?;
    Ok(status.map_or(1, exit_code))
}

/// Copies until one side is closed.
fn copy_stream(mut reader: impl Read, mut writer: impl Write) {
    let mut bytes = [0; 8 << 10];
    loop {
        match reader.read(&mut bytes) {
            Ok(n @ 1..) => {
                if writer.write_all(&bytes[..n]).and_then(|()| writer.flush()).is_err() {
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
        let _guard = runtime.enter();
        (signal(SignalKind::window_change())?, signal(SignalKind::interrupt())?)
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = window.recv() => resize(&user, &controller),
                    _ = interrupt.recv() => {
                        let _ = (&*controller).write_all(&[CTRL_C]);
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
    saved: Termios,
}

impl Raw {
    fn enable(terminal: &OwnedFd) -> Option<Raw> {
        let saved = tcgetattr(terminal).ok()?;
        let mut raw = saved.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Now, &raw).ok()?;
        Some(Raw { terminal: terminal.try_clone().ok()?, saved })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.saved);
    }
}
