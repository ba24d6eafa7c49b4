//! The sandbox on macOS: the same rules as a profile of Seatbelt, for `/usr/bin/sandbox-exec`.

use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use super::SandboxRules;

/// The program that starts another one with a profile.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// What every program needs: to start others, to signal those of its own sandbox, to ask the kernel
/// for facts, to look names up, to check certificates, and to work on a terminal. Names, sizes and
/// times of files are visible, contents are not.
const BASE: &str = "\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem ipc-posix-shm)
(allow pseudo-tty)
(allow file-read-metadata)
(allow file-ioctl (regex #\"^/dev/(tty|ttys[0-9]+|ptmx)$\"))
(allow mach-lookup
  (global-name \"com.apple.system.opendirectoryd.libinfo\")
  (global-name \"com.apple.system.opendirectoryd.membership\")
  (global-name \"com.apple.system.logger\")
  (global-name \"com.apple.system.notification_center\")
  (global-name \"com.apple.trustd.agent\")
  (global-name \"com.apple.dnssd.service\"))
(allow network* system-socket)
";

/// Returns the program and its arguments that start `program` with these rules.
pub fn wrap(
    rules: &SandboxRules,
    program: OsString,
    args: impl IntoIterator<Item = OsString>,
) -> io::Result<(OsString, Vec<OsString>)> {
    let mut wrapped = vec!["-p".into(), profile(rules)?.into(), program];
    wrapped.extend(args);
    Ok((SANDBOX_EXEC.into(), wrapped))
}

/// Returns the profile of these rules. Paths are resolved, as the kernel sees them, and those that do
/// not exist are left out.
pub fn profile(rules: &SandboxRules) -> io::Result<String> {
    let existing = |paths: &[PathBuf]| -> Vec<PathBuf> {
        paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
    };
    let mut resolved = rules.clone();
    resolved.read = existing(&rules.read);
    resolved.write = existing(&rules.write);
    resolved.fixed = existing(&rules.fixed);
    profile_text(&resolved)
}

/// Returns the text of a profile; the last rule that applies to a path decides.
fn profile_text(rules: &SandboxRules) -> io::Result<String> {
    let mut text = BASE.to_owned();
    let sections = [
        ("allow file-read* file-map-executable", &rules.read),
        ("allow file-read* file-map-executable file-write*", &rules.write),
        ("deny file-write*", &rules.fixed),
    ];
    for (operations, paths) in sections {
        for path in paths {
            let _ = writeln!(text, "({operations} (subpath {}))", quoted(path)?);
        }
    }
    Ok(text)
}

/// Returns a path as a string of the profile's language, a dialect of Scheme.
fn quoted(path: &Path) -> io::Result<String> {
    let Some(path) = path.to_str() else {
        let message = format!("{} is not valid UTF-8", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let mut text = String::from("\"");
    for c in path.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => {
                let message = format!("the path {path:?} contains a control character");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            c => text.push(c),
        }
    }
    text.push('"');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_profile_contains_exactly_the_rules_whatever_the_names_are() {
        let path = |text: &str| PathBuf::from(text);
        let rules = SandboxRules {
            read: vec![path("/usr"), path("/a b/\") (allow default) (\""), path("/back\\slash\\")],
            write: vec![path("/work/new\nline"), path("/work/tab\tund ümlaut")],
            ..SandboxRules::default()
        };
        let fixed = vec![path("/work/new\nline/.git/config")];
        let rules = SandboxRules { fixed, ..rules };
        let text = profile_text(&rules).unwrap();
        let rest = text.strip_prefix(BASE).unwrap();
        let expected = [
            r#"(allow file-read* file-map-executable (subpath "/usr"))"#,
            r#"(allow file-read* file-map-executable (subpath "/a b/\") (allow default) (\""))"#,
            r#"(allow file-read* file-map-executable (subpath "/back\\slash\\"))"#,
            r#"(allow file-read* file-map-executable file-write* (subpath "/work/new\nline"))"#,
            r#"(allow file-read* file-map-executable file-write* (subpath "/work/tab\tund ümlaut"))"#,
            r#"(deny file-write* (subpath "/work/new\nline/.git/config"))"#,
        ];
        assert_eq!(rest.lines().collect::<Vec<_>>(), expected);
        // Outside of strings, all parentheses match, and each rule is one line.
        let (mut depth, mut in_string, mut escaped) = (0, false, false);
        for c in text.chars() {
            match c {
                _ if escaped => escaped = false,
                '\\' if in_string => escaped = true,
                '"' => in_string = !in_string,
                '(' if !in_string => depth += 1,
                ')' if !in_string => depth -= 1,
                _ => {}
            }
            assert!(depth >= 0, "{text}");
        }
        assert_eq!((depth, in_string), (0, false));
    }

    #[test]
    fn a_name_that_cannot_be_written_is_refused() {
        for bad in [&b"/work/\x1b[2J"[..], b"/work/\xff"] {
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(bad));
            let rules = SandboxRules { write: vec![path], ..SandboxRules::default() };
            assert!(profile_text(&rules).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn missing_paths_are_left_out_and_others_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/usr", &link).unwrap();
        let rules = SandboxRules {
            read: vec![link, dir.path().join("missing")],
            ..SandboxRules::default()
        };
        let text = profile(&rules).unwrap();
        let rest = text.strip_prefix(BASE).unwrap();
        assert_eq!(rest, "(allow file-read* file-map-executable (subpath \"/usr\"))\n");
        let (program, args) = wrap(&rules, "sh".into(), ["-c".into(), "true".into()]).unwrap();
        assert_eq!((program.to_str(), args.len()), (Some(SANDBOX_EXEC), 5));
        assert_eq!(args[2..], ["sh", "-c", "true"].map(OsString::from));
    }
}
