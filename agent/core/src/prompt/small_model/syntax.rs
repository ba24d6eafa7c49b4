//! Checks the syntax of a file that was just written with the parser for its type.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use base::process::{Command, OutputLimits};

/// Timeout of a parser in seconds.
const TIMEOUT_SECONDS: u64 = 10;
/// Maximum number of bytes read of a first line.
const FIRST_LINE: u64 = 200;

/// Parses a Python file without running or compiling it.
const PYTHON: &str = "\
import ast, sys
try:
    ast.parse(open(sys.argv[1], encoding='utf-8').read())
except SyntaxError as e:
    print(f'line {e.lineno}: {e.msg}: {(e.text or \"\").strip()}', file=sys.stderr)
    sys.exit(3)";
/// The exit codes with which the parsers reject a file; other codes are inconclusive.
const PYTHON_REJECT_CODES: &[i32] = &[3];
const SHELL_REJECT_CODES: &[i32] = &[1, 2];

/// Returns the syntax error of a file, or `None` if there is none or it cannot be determined.
pub(crate) fn syntax_error(path: &Path) -> Option<String> {
    if !path.is_file() {
        return None;
    }
    match path.extension()?.to_str()? {
        "json" => {
            let bytes = base::files::read(path).ok()?;
            let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(&bytes);
            parsed.err().map(|reason| format!("it is not valid JSON: {reason}"))
        }
        "toml" => {
            let text = base::files::read_text(path).ok()?;
            let error = toml::from_str::<toml::Table>(&text).err()?;
            Some(format!("it is not valid TOML: {}", error.message()))
        }
        // Isolated mode; otherwise a file `ast.py` in the same directory would be imported, and so
        // run.
        "py" => run_parser("python3", &["-I", "-c", PYTHON], PYTHON_REJECT_CODES, path),
        "sh" => {
            run_parser(if is_bash(path) { "bash" } else { "sh" }, &["-n"], SHELL_REJECT_CODES, path)
        }
        _ => None,
    }
}

/// Whether a file's first line specifies bash.
pub(crate) fn is_bash(path: &Path) -> bool {
    let mut first = String::new();
    let read = std::fs::File::open(path).ok().filter(|_| path.is_file());
    let read =
        read.and_then(|file| BufReader::new(file.take(FIRST_LINE)).read_line(&mut first).ok());
    read.is_some() && first.starts_with("#!") && first.contains("bash")
}

/// Runs a parser and returns its error message.
fn run_parser(program: &str, args: &[&str], reject_codes: &[i32], path: &Path) -> Option<String> {
    let command = Command::new(program, path.parent()?).args(args).arg(path);
    let command = command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let output = command.output(OutputLimits::seconds(TIMEOUT_SECONDS)).ok()?;
    if output.timed_out || !reject_codes.contains(&output.code()) {
        return None;
    }
    let output_text = output.error_text();
    Some(if output_text.is_empty() { "it cannot be parsed".to_owned() } else { output_text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_invalid_syntax_is_reported_by_its_parser() {
        let dir = tempfile::tempdir().unwrap();
        let says = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            syntax_error(&path)
        };
        assert_eq!(says("a.json", "{\"a\": 1}"), None);
        assert!(says("a.json", "a: 1").unwrap().contains("JSON"));
        assert!(says("a.toml", "a = ").unwrap().contains("TOML"));
        assert_eq!(says("a.py", "def f():\n    return 1\n"), None);
        assert!(says("a.py", "x = 1\ndef f(:\n").unwrap().contains("line 2"));
        assert!(says("a.sh", "if true; then").is_some());
        assert_eq!(says("a.sh", "#!/usr/bin/env bash\na=(1 2)\necho <(ls)\n"), None);
        assert!(says("a.sh", "#!/bin/bash\na=(1\n").is_some());
        assert_eq!(says("a.txt", "((("), None);
        assert_eq!(syntax_error(&dir.path().join("gone.py")), None);
        std::fs::write(dir.path().join("latin.py"), b"# \xe9\nx = 1\n").unwrap();
        assert_eq!(syntax_error(&dir.path().join("latin.py")), None);
        assert!(!dir.path().join("__pycache__").exists());
        says("ast.py", "open('ran', 'w')\n");
        assert_eq!(says("a.py", "x = 1\n"), None);
        assert!(!dir.path().join("ran").exists(), "a file of the project was run");
    }
}
