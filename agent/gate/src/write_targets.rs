//! Determines what a command writes by its words: a table of commands and of options that name a
//! file or a directory. Used by the policy for commands and by the write scope.

use super::shell_parse::SimpleCommand;

/// Which non-option arguments a command writes or removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenArgs {
    /// None.
    None,
    /// All of them.
    All,
    /// Only the last one.
    Last,
    /// All except the first, which is a script or a mode.
    Rest,
}

/// A command, its written arguments, and the options whose value it writes.
type Writer = (&'static [&'static str], WrittenArgs, &'static [&'static str]);

/// Options of `cp` and similar commands that name the target directory.
const TARGET_OPTIONS: &[&str] = &["-t", "--target-directory"];

/// Commands that write files named in their arguments.
const WRITERS: &[Writer] = &[
    (
        &["rm", "rmdir", "unlink", "shred", "truncate", "touch", "mkdir", "mkfifo"],
        WrittenArgs::All,
        &[],
    ),
    (
        &["mknod", "tee", "sponge", "ed", "ex", "vi", "vim", "nano", "sqlite3"],
        WrittenArgs::All,
        &[],
    ),
    (&["chmod", "chown", "chgrp", "chattr", "setfacl"], WrittenArgs::Rest, &[]),
    (&["mv"], WrittenArgs::All, TARGET_OPTIONS),
    (&["cp", "ln", "install", "link", "symlink"], WrittenArgs::Last, TARGET_OPTIONS),
    (&["rsync", "scp"], WrittenArgs::Last, &[]),
    (&["dd"], WrittenArgs::None, &[]),
    (&["curl"], WrittenArgs::None, &["-o", "--output", "--output-dir", "-c", "--cookie-jar", "-D"]),
    (&["wget"], WrittenArgs::None, &["-O", "--output-document", "-P", "--directory-prefix", "-o"]),
    (&["tar", "bsdtar"], WrittenArgs::None, &["-C", "--directory", "-f", "--file"]),
    (&["unzip"], WrittenArgs::None, &["-d"]),
    (&["sort", "shuf"], WrittenArgs::None, &["-o", "--output"]),
    (&["uniq", "xxd"], WrittenArgs::Rest, &[]),
    (&["split", "csplit"], WrittenArgs::Last, &[]),
    (
        &["cc", "gcc", "g++", "clang", "clang++", "ld", "as", "rustc", "go"],
        WrittenArgs::None,
        &["-o"],
    ),
    (&["openssl"], WrittenArgs::None, &["-out"]),
    (&["gpg"], WrittenArgs::None, &["-o", "--output"]),
    (&["patch"], WrittenArgs::None, &["-d", "--directory", "-o", "--output"]),
    (&["make", "ninja"], WrittenArgs::None, &["-C", "--directory"]),
    (&["strace", "script"], WrittenArgs::Last, &["-o"]),
    (&["pip", "pip3"], WrittenArgs::None, &["-t", "--target", "--prefix", "--root"]),
];

/// Options of `find` that write.
const FIND_WRITES: [&str; 4] = ["-fprint", "-fprint0", "-fprintf", "-fls"];

/// Subcommands of git whose last argument is a directory that they create.
const GIT_CREATING_COMMANDS: [&str; 2] = ["init", "clone"];

/// Returns the files and directories that a command writes or removes, as far as its words show.
pub(crate) fn written_paths(command: &SimpleCommand) -> Vec<String> {
    let words = &command.words;
    let verb = command.name();
    let mut targets: Vec<String> = command.redirect_targets.clone();
    if let Some((_, written_args, options)) =
        WRITERS.iter().find(|(verbs, ..)| verbs.contains(&verb))
    {
        let (values, operands) = split_options(words, options);
        // With a target directory, the sources are only read, or moved away.
        let has_target_dir = options == &TARGET_OPTIONS && !values.is_empty();
        targets.extend(values);
        targets.extend(match written_args {
            WrittenArgs::None => Vec::new(),
            WrittenArgs::All => operands,
            WrittenArgs::Last if has_target_dir => Vec::new(),
            WrittenArgs::Last => operands.last().cloned().into_iter().collect(),
            WrittenArgs::Rest => operands.into_iter().skip(1).collect(),
        });
    }
    let is_in_place = |word: &String| word.starts_with("-i") || word.starts_with("--in-place");
    let operands = || words.iter().skip(1).filter(|word| !word.starts_with('-')).cloned();
    match verb {
        // The first argument is the script.
        "sed" | "perl" | "ruby" if words.iter().any(is_in_place) => {
            targets.extend(operands().skip(1))
        }
        "dd" => {
            targets.extend(words.iter().filter_map(|it| it.strip_prefix("of=")).map(Into::into))
        }
        "find" => targets.extend(find_targets(words)),
        "git" => targets.extend(git_targets(words)),
        _ => {}
    }
    targets.retain(|word| !word.is_empty());
    targets
}

/// Returns the values of these options, and the other non-option words.
fn split_options(words: &[String], options: &[&str]) -> (Vec<String>, Vec<String>) {
    let (mut values, mut operands) = (Vec::new(), Vec::new());
    let mut rest = words.iter().skip(1);
    let mut options_ended = false;
    while let Some(word) = rest.next() {
        if options_ended || !word.starts_with('-') || word == "-" {
            operands.push(word.clone());
            continue;
        }
        options_ended = word == "--";
        if options.contains(&word.as_str()) {
            values.extend(rest.next().cloned());
            continue;
        }
        let long = word.split_once('=').filter(|(name, _)| options.contains(name));
        let short = |option: &&&str| option.len() == 2 && !word.starts_with("--");
        let joined = options.iter().filter(short).find_map(|option| {
            // `-xf FILE`, `-oFILE`, `-t/dir`.
            let index = word.find(option.chars().nth(1)?).filter(|index| *index > 0)?;
            Some((
                index == 1 || word[1..index].chars().all(char::is_alphabetic),
                &word[index + 1..],
            ))
        });
        match (long, joined) {
            (Some((_, value)), _) => values.push(value.to_owned()),
            (None, Some((true, ""))) => values.extend(rest.next().cloned()),
            (None, Some((true, value))) => values.push(value.to_owned()),
            (None, Some((false, _)) | None) => {}
        }
    }
    (values, operands)
}

/// Returns what `find` writes: the files of its reports, and where it deletes.
fn find_targets(words: &[String]) -> Vec<String> {
    let reports = words.windows(2).filter(|pair| FIND_WRITES.contains(&pair[0].as_str()));
    let mut targets: Vec<String> = reports.map(|pair| pair[1].clone()).collect();
    if words.iter().any(|word| word == "-delete") {
        let start_dirs = words.iter().skip(1);
        targets.extend(start_dirs.take_while(|word| !word.starts_with(['-', '(', '!'])).cloned());
    }
    targets
}

/// Returns what git writes besides its own directory.
fn git_targets(words: &[String]) -> Vec<String> {
    let (options, rest) = split_git_options(words);
    let Some(verb) = rest.first().map(String::as_str) else { return Vec::new() };
    let operands = || rest.iter().skip(1).filter(|word| !word.starts_with('-'));
    let value = |names: &[&str]| split_options(rest, names).0;
    let reads = GIT_READS.contains(&verb) && !rest.iter().any(|word| word.starts_with("--output"));
    let mut targets = match verb {
        "rm" | "mv" | "checkout" | "restore" => operands().cloned().collect(),
        "worktree" => operands().nth(1).cloned().into_iter().collect(),
        "bundle" => operands().nth(1).cloned().into_iter().collect(),
        "diff" | "log" | "show" => value(&["--output"]),
        "format-patch" | "archive" => value(&["-o", "--output", "--output-directory"]),
        "config" => value(&["-f", "--file"]),
        verb if GIT_CREATING_COMMANDS.contains(&verb) => {
            let min = if verb == "clone" { 2 } else { 1 };
            let operands: Vec<&String> = operands().collect();
            operands
                .get(min - 1..)
                .and_then(|it| it.last())
                .map(|it| (*it).clone())
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    };
    if verb == "config" && rest.iter().any(|word| word == "--global" || word == "--system") {
        targets.push("~/.gitconfig".to_owned());
    }
    if !reads {
        targets.extend(options);
    }
    targets
}

/// Subcommands of git that only read.
pub(crate) const GIT_READS: [&str; 16] = [
    "status",
    "log",
    "diff",
    "show",
    "blame",
    "grep",
    "ls-files",
    "ls-tree",
    "rev-parse",
    "describe",
    "cat-file",
    "shortlog",
    "rev-list",
    "merge-base",
    "for-each-ref",
    "help",
];

/// Returns the values of options before the subcommand that select another directory, and the words
/// from the subcommand on.
pub(crate) fn split_git_options(words: &[String]) -> (Vec<String>, &[String]) {
    let mut values = Vec::new();
    let mut index = 1;
    while let Some(word) = words.get(index) {
        match word.as_str() {
            "-C" | "--git-dir" | "--work-tree" | "--namespace" | "--exec-path" => {
                values.extend(words.get(index + 1).cloned());
                index += 2;
            }
            "-c" | "--config-env" | "--attr-source" | "--super-prefix" => index += 2,
            word if word.starts_with('-') => {
                let prefixes = ["--git-dir=", "--work-tree=", "--exec-path="];
                values.extend(prefixes.iter().find_map(|it| word.strip_prefix(it)).map(Into::into));
                index += 1;
            }
            _ => break,
        }
    }
    (values, words.get(index..).unwrap_or_default())
}

/// Whether a git command changes the configuration of its repository or overrides it.
pub(crate) fn changes_git_configuration(command: &SimpleCommand) -> bool {
    let words = &command.words;
    if command.name() != "git" {
        return false;
    }
    let (_, rest) = split_git_options(words);
    let before = &words[..words.len() - rest.len()];
    let has_any = |names: &[&str]| rest.iter().any(|word| names.contains(&word.as_str()));
    let overrides_config =
        before.iter().any(|word| word == "-c" || word.starts_with("--config-env"));
    let operands = rest.iter().skip(1).filter(|word| !word.starts_with('-')).count();
    overrides_config
        || match rest.first().map(String::as_str) {
            Some("config") => {
                !has_any(&["--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"])
                    && (operands > 1
                        || has_any(&["--unset", "--add", "--edit", "-e", "set", "unset"]))
            }
            Some("remote") => has_any(&["add", "remove", "rm", "rename", "set-url", "set-head"]),
            Some("push") => has_any(&["-u", "--set-upstream"]),
            Some("branch") => {
                has_any(&["-u", "--set-upstream-to", "--unset-upstream", "--edit-description"])
            }
            Some("submodule") => has_any(&["add", "init", "sync", "deinit", "set-url"]),
            Some("maintenance" | "lfs" | "flow") => true,
            Some(_) | None => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell_parse::parse;

    #[test]
    fn written_files_are_determined_by_the_words() {
        for (line, expected) in [
            ("cp a b", "b"),
            ("cp -t /out a b", "/out"),
            ("cp -rt/out a", "/out"),
            ("cp --target-directory=/out a", "/out"),
            ("mv -t /out a", "/out a"),
            ("install -m 755 a /out/b", "/out/b"),
            ("curl -fsSLo /out/x https://h/x", "/out/x"),
            ("wget -O /out/x u", "/out/x"),
            ("tar xf a.tar -C /out", "/out"),
            ("tar -xf a.tar -C /out", "a.tar /out"),
            ("sort -o /out x", "/out"),
            ("find /out -name x -delete", "/out"),
            ("find . -fprint /out/x", "/out/x"),
            ("sed -i s/a/b/ /out/x", "/out/x"),
            ("dd if=a of=/out/x", "/out/x"),
            ("git -C /out commit -m x", "/out"),
            ("git -C /out status", ""),
            ("git init /out", "/out"),
            ("git clone u /out", "/out"),
            ("git clone u", ""),
            ("git worktree add /out", "/out"),
            ("git config --global a b", "~/.gitconfig"),
            ("git diff --output=/out/x", "/out/x"),
            ("gcc a.c -o /out/x", "/out/x"),
            ("chmod 600 a b", "a b"),
            ("echo x > a", "a"),
            ("ls -t x", ""),
        ] {
            let targets: Vec<String> = parse(line).iter().flat_map(written_paths).collect();
            assert_eq!(targets.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn changes_of_gits_configuration_are_detected() {
        let changes = |line: &str| parse(line).iter().any(changes_git_configuration);
        for line in [
            "git config core.fsmonitor ./x",
            "git config --unset a.b",
            "git remote add o u",
            "git -c alias.x=!touch x",
            "git push -u origin main",
        ] {
            assert!(changes(line), "{line}");
        }
        for line in ["git config --get a.b", "git config user.name", "git commit -m x", "git push"]
        {
            assert!(!changes(line), "{line}");
        }
    }
}
