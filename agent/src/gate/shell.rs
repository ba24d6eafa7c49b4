//! What a command line may do unasked.

use std::path::Path;

use base::config::agent::Action;

use super::core::rows::DESTRUCTIVE;
use super::judge::Verdict;
use super::paths;
use super::verbs::{Piece, pieces};

/// Commands that destroy, besides those of [`DESTRUCTIVE`]: asked about wherever they reach.
const MORE: [&str; 4] = ["shred", "truncate", "wipefs", "invoke-expression"];

fn destroys(verb: &str) -> bool {
    DESTRUCTIVE.contains(&verb) || MORE.contains(&verb)
}

/// Statements that destroy data, wherever they stand in a line.
const STATEMENTS: [&str; 3] = ["drop table", "drop database", "truncate table"];

/// Commands whose file arguments are written or removed.
const WRITERS: [&str; 17] = [
    "rm", "rmdir", "mv", "cp", "tee", "dd", "ln", "install", "chmod", "chown", "chgrp", "mkdir",
    "touch", "truncate", "shred", "unlink", "rsync",
];

/// Places outside that anything may write.
const HARMLESS: [&str; 6] =
    ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd", "/proc/self/fd"];

/// Judges a command line that runs in `cwd`. With `careful`, destructive commands ask also inside.
pub fn judge(line: &str, cwd: &Path, root: &Path, careful: bool) -> Verdict {
    let ask = |why: String| Verdict::by_reach(Action::Ask, why);
    let found = pieces(line);
    if let Some(what) = found.iter().find_map(|piece| ruinous(piece, cwd)) {
        let why = format!("forbidden_command: {what} would destroy the machine");
        return Verdict::by_reach(Action::Deny, why);
    }
    if !paths::is_inside(cwd, root) {
        return ask(format!("{} is outside the working directory", cwd.display()));
    }
    if let Some(path) = found.iter().find_map(|piece| written_outside(piece, cwd, root)) {
        return ask(format!("the command writes {path}, which is outside the working directory"));
    }
    if careful && let Some(what) = destructive(line, &found) {
        let why = format!("destructive_command: `{what}`");
        return Verdict { action: Action::Ask, why, ..Verdict::confined() };
    }
    Verdict::confined()
}

/// What no answer allows: making a file system, or removing the root directory.
fn ruinous(piece: &Piece, cwd: &Path) -> Option<String> {
    let verb = piece.verb();
    if verb == "mkfs" || verb.starts_with("mkfs.") {
        return Some(format!("`{verb}`"));
    }
    let recursive = piece
        .words
        .iter()
        .any(|word| word == "--recursive" || (is_short(word) && word.contains(['r', 'R'])));
    let is_root = |word: &String| {
        let all = word.trim_end_matches(['*', '.']);
        let named = all.starts_with('/') && all.trim_matches(['/', '.']).is_empty();
        named || cwd == Path::new("/") && ["*", ".", "./", "./*"].contains(&word.as_str())
    };
    let root = piece.words.iter().skip(1).any(is_root);
    (verb == "rm" && recursive && root).then(|| "`rm -rf /`".to_owned())
}

fn is_short(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--")
}

/// The files that a command names and writes or removes, as far as its words tell.
pub fn written(piece: &Piece) -> Vec<&str> {
    let edits = |word: &String| word.starts_with("-i") || word.starts_with("--in-place");
    let more: Vec<&str> = match piece.verb() {
        // The first word is the script.
        "sed" | "perl" if piece.words.iter().any(edits) => arguments(piece).skip(1).collect(),
        "git" => match piece.words.get(1).map(String::as_str) {
            Some("rm" | "mv" | "checkout" | "restore") => arguments(piece).skip(1).collect(),
            Some(_) | None => Vec::new(),
        },
        _ => Vec::new(),
    };
    named_as_written(piece).chain(more).chain(piece.written.iter().map(String::as_str)).collect()
}

fn arguments(piece: &Piece) -> impl DoubleEndedIterator<Item = &str> {
    let words = piece.words.iter().skip(1).map(String::as_str);
    words.filter(|word| !word.starts_with('-'))
}

fn named_as_written(piece: &Piece) -> impl Iterator<Item = &str> {
    let mut arguments = arguments(piece);
    let named: Vec<&str> = match piece.verb() {
        // These read what stands first; only the last is written.
        "cp" | "ln" | "install" | "rsync" => arguments.next_back().into_iter().collect(),
        verb if WRITERS.contains(&verb) => arguments.collect(),
        _ => Vec::new(),
    };
    named.into_iter().map(|word| word.strip_prefix("of=").unwrap_or(word))
}

fn written_outside(piece: &Piece, cwd: &Path, root: &Path) -> Option<String> {
    let mut named = named_as_written(piece);
    let outside = named.find(|word| reaches_out(word, cwd, root)).map(str::to_owned);
    outside.or_else(|| redirected_outside(piece, cwd, root))
}

/// The file outside that a command's output is sent into.
pub fn redirected_outside(piece: &Piece, cwd: &Path, root: &Path) -> Option<String> {
    piece.written.iter().find(|word| reaches_out(word, cwd, root)).cloned()
}

fn reaches_out(word: &str, cwd: &Path, root: &Path) -> bool {
    let relative = !word.starts_with(['/', '~']) && !word.contains("..");
    // What a variable holds, and what is no path (`if=`, a mode), is not ours to know.
    !relative
        && !word.contains(['$', ':'])
        && !HARMLESS.iter().any(|harmless| word.starts_with(harmless))
        && !temporary(word)
        && paths::resolve(cwd, word).is_ok_and(|path| !paths::is_inside(&path, root))
}

/// Scratch files are no reach outside.
fn temporary(word: &str) -> bool {
    let below = |directory: &Path| {
        paths::resolve(Path::new("/"), word)
            .is_ok_and(|path| path != directory && path.starts_with(directory))
    };
    below(Path::new("/tmp")) || below(&std::env::temp_dir())
}

/// The destructive command in a line, if there is one.
fn destructive(line: &str, found: &[Piece]) -> Option<String> {
    let lower = line.to_lowercase();
    if let Some(statement) = STATEMENTS.iter().find(|statement| lower.contains(*statement)) {
        return Some((*statement).to_owned());
    }
    let verb = |piece: &Piece| piece.verb().to_lowercase();
    let listed = |verb: &String| {
        let verb = verb.strip_suffix(".exe").unwrap_or(verb);
        destroys(verb) || verb.starts_with("mkfs.")
    };
    if let Some(verb) = found.iter().map(verb).find(listed) {
        return Some(verb);
    }
    let deletes = |piece: &&Piece| {
        piece.verb() == "find" && piece.words.iter().any(|word| word == "-delete" || destroys(word))
    };
    found.iter().find(deletes).map(|_| "find -delete".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(line: &str, careful: bool) -> Action {
        judge(line, Path::new("/w"), Path::new("/w"), careful).action
    }

    #[test]
    fn inside_a_command_runs_unasked() {
        for line in
            ["rm -rf target", "mv a b", "echo x > y", "cp /etc/hosts .", "cat /etc/hosts", "make"]
        {
            assert_eq!(action(line, false), Action::Allow, "{line}");
        }
        for line in ["make 2>/dev/null", "touch /tmp/scratch", "echo a:/b > $HOME_DIR/x"] {
            assert_eq!(action(line, false), Action::Allow, "{line}");
        }
    }

    #[test]
    fn what_writes_outside_asks() {
        for line in [
            "rm -rf /etc/x",
            "echo x > /etc/y",
            "cp a /usr/bin/a",
            "mv ../other/file .",
            "tee ~/.bashrc",
            "bash -c 'rm /etc/x'",
            "dd if=/dev/zero of=/home/other/disk",
        ] {
            assert_eq!(action(line, false), Action::Ask, "{line}");
        }
        assert_eq!(judge("ls", Path::new("/etc"), Path::new("/w"), false).action, Action::Ask);
    }

    #[test]
    fn the_core_profile_asks_before_anything_destructive() {
        for line in [
            "rm a",
            "sudo /bin/rm a",
            "ls; mv a b",
            "echo $(kill 1)",
            "find . -delete",
            "sqlite3 x.db 'DROP TABLE users'",
            "find . | xargs rm",
        ] {
            assert_eq!(action(line, true), Action::Ask, "{line}");
        }
        for line in ["git mv a b", "docker run --rm x", "grep kill a", "cargo --format=json"] {
            assert_eq!(action(line, true), Action::Allow, "{line}");
        }
    }

    #[test]
    fn nothing_allows_the_end_of_the_machine() {
        for line in [
            "rm -rf /",
            "sudo rm -fr /*",
            "sudo -u root rm -rf //.",
            "mkfs.ext4 /dev/sda",
            "true && rm -r --force /",
            "find x -exec rm -rf / +",
        ] {
            assert_eq!(action(line, false), Action::Deny, "{line}");
        }
        for (line, cwd) in [("rm -rf /", "/"), ("rm -rf *", "/"), ("rm -rf /", "/etc")] {
            let verdict = judge(line, Path::new(cwd), Path::new("/w"), false);
            assert_eq!(verdict.action, Action::Deny, "{line} in {cwd}");
        }
    }

    proptest::proptest! {
        /// Every line is judged before it runs, so none may stop the judge.
        #[test]
        fn no_line_breaks_the_judge(line in "[a-z0-9 \\t\\n;|&()<>{}$`'\"#/=~é-]{0,40}|.{0,20}") {
            let verdict = judge(&line, Path::new("/w"), Path::new("/w"), true);
            proptest::prop_assert!(verdict.action != Action::Box);
        }
    }
}
