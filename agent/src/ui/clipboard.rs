//! Sets the clipboard with a program of the desktop, or else through the terminal.

use std::io::Write;
use std::path::Path;

use base::process::{Command, OutputLimits, Stream, find_program};

/// Programs that set the clipboard from stdin, and the environment variable that each one requires.
const PROGRAMS: [(&str, &[&str], Option<&str>); 4] = [
    ("wl-copy", &[], Some("WAYLAND_DISPLAY")),
    ("xclip", &["-selection", "clipboard"], Some("DISPLAY")),
    ("xsel", &["--clipboard", "--input"], Some("DISPLAY")),
    ("pbcopy", &[], None),
];
/// Maximum number of bytes that terminals accept in a control sequence.
const TERMINAL_BYTES: usize = 74_000;
/// Timeout of a program, in seconds.
const TIME: u64 = 5;

/// Sets the clipboard and returns how. The error says why it cannot be set.
pub(crate) fn copy(text: &str, cwd: &Path) -> Result<String, String> {
    for (name, args, variable) in PROGRAMS {
        let usable = variable.is_none_or(|name| std::env::var_os(name).is_some());
        let Some(program) = find_program(name).filter(|_| usable) else { continue };
        // The program stays in the background for as long as it owns the clipboard.
        let job = Command::new(program, cwd).args(args).input(text).detached();
        let job = job.stdout(Stream::Null).stderr(Stream::Null);
        let done = job.output(OutputLimits::seconds(TIME));
        if done.is_ok_and(|output| output.code() == 0) {
            return Ok(format!("with {name}"));
        }
    }
    by_terminal(text)
}

/// Asks the terminal with OSC 52. A terminal does not report whether it complied.
fn by_terminal(text: &str) -> Result<String, String> {
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(text);
    if data.len() > TERMINAL_BYTES {
        return Err(format!("{} bytes are too many for the terminal", text.len()));
    }
    let mut terminal = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/tty")
        .map_err(|_| "no terminal and no clipboard program".to_owned())?;
    terminal
        .write_all(format!("\u{1b}]52;c;{data}\u{7}").as_bytes())
        .map_err(|error| format!("cannot write to the terminal: {error}"))?;
    Ok("through the terminal (OSC 52); some terminals do not allow it".to_owned())
}
