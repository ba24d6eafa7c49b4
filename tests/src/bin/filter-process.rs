//! A long-running git filter whose conversion is its own inverse: `filter-process DIRECTORY`. It logs
//! what it is asked for in `DIRECTORY/log`, and misbehaves as `DIRECTORY/mode` says.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let state = State { directory: std::env::args_os().nth(1).expect("a directory").into() };
    state.log("start");
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let _ = list(&mut input)?;
    if state.mode() == "greeting" {
        return output.write_all(b"hello, I convert files\n");
    }
    send_list(&mut output, &["git-filter-server", "version=2"])?;
    let _ = list(&mut input)?;
    match state.mode().as_str() {
        "clean-only" => send_list(&mut output, &["capability=clean"])?,
        _ => send_list(&mut output, &["capability=clean", "capability=smudge"])?,
    }
    while let Ok(request) = list(&mut input) {
        let value = |key: &str| request.iter().find_map(|line| line.strip_prefix(key));
        let (command, path) = (value("command="), value("pathname="));
        state.log(&format!("{} {}", command.unwrap_or("?"), path.unwrap_or("?")));
        let mut content = Vec::new();
        while let Some(data) = packet(&mut input)? {
            content.extend_from_slice(&data);
        }
        let content: Vec<u8> = content.into_iter().map(rotate).collect();
        match state.mode().as_str() {
            "die" => {
                let _ = writeln!(io::stderr(), "the key is missing");
                std::process::exit(7);
            }
            "garbage" => output.write_all(b"zzzz not a packet")?,
            "endless list" => loop {
                send(&mut output, b"key=value\n")?;
            },
            "error" | "abort" => {
                let _ = writeln!(io::stderr(), "no such key");
                send_list(&mut output, &[&format!("status={}", state.mode())])?;
                continue;
            }
            "hang" if command == Some("smudge") => {
                state.log(&format!("hangs {}", std::process::id()));
                loop {
                    std::thread::park();
                }
            }
            // Fills the pipe of its stderr.
            "noise" => {
                let _ = io::stderr().write_all(&[b'x'; 300_000]);
            }
            _ => {}
        }
        send_list(&mut output, &["status=success"])?;
        for data in content.chunks(65_516) {
            send(&mut output, data)?;
        }
        output.write_all(b"0000")?;
        let withdrawn: &[&str] = if state.mode() == "withdraw" { &["status=error"] } else { &[] };
        send_list(&mut output, withdrawn)?;
    }
    Ok(())
}

struct State {
    directory: PathBuf,
}

impl State {
    fn mode(&self) -> String {
        std::fs::read_to_string(self.directory.join("mode")).unwrap_or_default()
    }

    /// Appends a line. In a sandbox it cannot.
    fn log(&self, line: &str) {
        let file = OpenOptions::new().append(true).create(true).open(self.directory.join("log"));
        if let Ok(mut file) = file {
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

fn rotate(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
        b'A'..=b'Z' => (byte - b'A' + 13) % 26 + b'A',
        other => other,
    }
}

/// Reads a packet; `None` is a flush packet.
fn packet(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; 4];
    input.read_exact(&mut header)?;
    let header = String::from_utf8_lossy(&header).into_owned();
    let length = usize::from_str_radix(&header, 16).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(None);
    }
    let mut data = vec![0; length - 4];
    input.read_exact(&mut data)?;
    Ok(Some(data))
}

fn list(input: &mut impl Read) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    while let Some(line) = packet(input)? {
        lines.push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
    }
    Ok(lines)
}

fn send(output: &mut impl Write, data: &[u8]) -> io::Result<()> {
    output.write_all(format!("{:04x}", data.len() + 4).as_bytes())?;
    output.write_all(data)
}

fn send_list(output: &mut impl Write, lines: &[&str]) -> io::Result<()> {
    for line in lines {
        send(output, format!("{line}\n").as_bytes())?;
    }
    output.write_all(b"0000")?;
    output.flush()
}
