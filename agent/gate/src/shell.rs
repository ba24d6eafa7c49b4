//! Decides which command lines may run without permission.

use std::path::Path;

use base::config::agent::GateAction;

use super::core_exact::rows::DESTRUCTIVE;
use super::paths;
use super::policy::PolicyVerdict;
use super::shell_parse::{self, ShellLine, SimpleCommand};
use super::write_targets::{self, written_paths};

/// Destructive commands besides those of [`DESTRUCTIVE`], which ask regardless of what they access.
const OTHER_DESTRUCTIVE: [&str; 4] = ["shred", "truncate", "wipefs", "invoke-expression"];

fn is_destructive(verb: &str) -> bool {
    DESTRUCTIVE.contains(&verb) || OTHER_DESTRUCTIVE.contains(&verb)
}

/// Statements that destroy data, anywhere in a line.
const STATEMENTS: [&str; 3] = ["drop table", "drop database", "truncate table"];

/// Files outside that anything may write.
const ALWAYS_WRITABLE: [&str; 5] =
    ["/dev/null", "/dev/zero", "/dev/stdout", "/dev/stderr", "/dev/tty"];

/// Commands that only read, so they may access any path.
const READ_ONLY_COMMANDS: [&str; 40] = [
    "ls", "cat", "grep", "rg", "head", "tail", "wc", "echo", "printf", "pwd", "cd", "pushd",
    "popd", "test", "[", "[[", "true", "false", ":", "stat", "file", "du", "df", "which", "type",
    "sort", "uniq", "cut", "tr", "diff", "cmp", "tree", "env", "date", "id", "uname", "whoami",
    "basename", "dirname", "find",
];

/// g3's and studio's own programs, which cannot work without the files that the sandbox hides.
const OWN_PROGRAMS: [&str; 3] = ["g3", "g3-research", "studio"];

/// Programs that run code given as an argument.
const INTERPRETERS: [&str; 12] = [
    "python", "python2", "python3", "perl", "ruby", "node", "deno", "bun", "php", "lua", "awk",
    "gawk",
];

/// Decides about a command line that runs in `cwd`. With `confirm_destructive`, destructive commands ask even
/// inside the root.
pub(crate) fn judge(
    line: &str,
    cwd: &Path,
    root: &Path,
    confirm_destructive: bool,
) -> PolicyVerdict {
    let ask = |reason: String| PolicyVerdict::by_access(GateAction::Ask, reason);
    let parsed = shell_parse::parse_line(line);
    let commands = &parsed.commands;
    if let Some(what) = commands.iter().find_map(|command| always_denied_reason(command, cwd)) {
        let reason = format!("forbidden_command: {what} would destroy the machine");
        return PolicyVerdict::by_access(GateAction::Deny, reason);
    }
    if !paths::is_inside(cwd, root) {
        return ask(format!("{} is outside the working directory", cwd.display()));
    }
    let resolver = ReachedPaths { cwd, root, variables: &parsed.variables };
    if let Some(path) = commands.iter().find_map(|command| resolver.written_outside(command)) {
        return ask(format!("the command writes {path}, which is outside the working directory"));
    }
    if let Some(reason) = resolver.leaves_root_reason(commands) {
        return ask(reason);
    }
    if let Some(command) = commands.iter().find(|command| OWN_PROGRAMS.contains(&command.name())) {
        let verb = command.name();
        return ask(format!(
            "`{verb}` reads g3's configuration and keys, which the sandbox protects"
        ));
    }
    if let Some(reason) = uncertainty(&parsed, &resolver) {
        return PolicyVerdict::unsure(reason);
    }
    if confirm_destructive && let Some(what) = find_destructive(line, commands) {
        let reason = format!("destructive_command: `{what}`");
        return PolicyVerdict { action: GateAction::Ask, reason, ..PolicyVerdict::confined() };
    }
    PolicyVerdict::confined()
}

/// Returns why a command is always denied: it creates a file system or removes the root directory.
fn always_denied_reason(command: &SimpleCommand, cwd: &Path) -> Option<String> {
    let verb = command.name();
    if verb == "mkfs" || verb.starts_with("mkfs.") {
        return Some(format!("`{verb}`"));
    }
    let recursive = command
        .words
        .iter()
        .any(|word| word == "--recursive" || (is_short(word) && word.contains(['r', 'R'])));
    let is_root = |word: &String| {
        let all = word.trim_end_matches(['*', '.']);
        let is_root_path = all.starts_with('/') && all.trim_matches(['/', '.']).is_empty();
        is_root_path || cwd == Path::new("/") && ["*", ".", "./", "./*"].contains(&word.as_str())
    };
    let root = command.words.iter().skip(1).any(is_root);
    (verb == "rm" && recursive && root).then(|| "`rm -rf /`".to_owned())
}

fn is_short(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--")
}

/// Resolves the words of a line to paths.
struct ReachedPaths<'a> {
    cwd: &'a Path,
    root: &'a Path,
    variables: &'a [(String, String)],
}

/// The location of a word's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathTarget {
    /// In the working directory, or anywhere that is always writable.
    Inside,
    /// Elsewhere.
    Outside,
    /// Known only to the shell.
    Unknown,
}

impl ReachedPaths<'_> {
    /// Returns a path outside that a command writes.
    fn written_outside(&self, command: &SimpleCommand) -> Option<String> {
        let mut words = written_paths(command).into_iter().chain(code_paths(command));
        words.find(|word| self.locate(word) == PathTarget::Outside)
    }

    /// Returns why a line that changes the directory may write there.
    fn leaves_root_reason(&self, commands: &[SimpleCommand]) -> Option<String> {
        let directory = self.changed_directory(commands, PathTarget::Outside)?;
        let writes = commands.iter().any(|command| !is_read_only(command));
        writes.then(|| {
            format!("the command goes to {directory}, which is outside the working directory")
        })
    }

    /// Returns the directory that a line changes to, if its location is `target`.
    fn changed_directory(&self, commands: &[SimpleCommand], target: PathTarget) -> Option<String> {
        let cd_commands =
            commands.iter().filter(|command| ["cd", "pushd"].contains(&command.name()));
        let mut directories = cd_commands.filter_map(|command| {
            let directory =
                command.words.iter().skip(1).find(|word| !word.starts_with('-') || *word == "-");
            Some(directory.map_or("~", String::as_str).to_owned())
                .filter(|_| command.words.len() < 9)
        });
        directories.find(|directory| self.locate_directory(directory) == target)
    }

    /// Like [`ReachedPaths::locate`], but a temporary directory counts as outside.
    fn locate_directory(&self, word: &str) -> PathTarget {
        if word == "-" || std::env::var_os("CDPATH").is_some() {
            return PathTarget::Unknown;
        }
        self.locate(word)
    }

    fn locate(&self, word: &str) -> PathTarget {
        let Some(all) = self.expand(word, 3) else { return PathTarget::Unknown };
        let each = all.iter().map(|word| self.locate_expanded(word));
        each.fold(PathTarget::Inside, |so_far, next| match (so_far, next) {
            (PathTarget::Outside, _) | (_, PathTarget::Outside) => PathTarget::Outside,
            (PathTarget::Unknown, _) | (_, PathTarget::Unknown) => PathTarget::Unknown,
            (PathTarget::Inside, PathTarget::Inside) => PathTarget::Inside,
        })
    }

    fn locate_expanded(&self, word: &str) -> PathTarget {
        // Another user's home directory, or a directory on the shell's stack.
        if word.starts_with('~') && word != "~" && !word.starts_with("~/") {
            return PathTarget::Unknown;
        }
        let has_braces = word.contains('{') && word.contains('}');
        let mut parts = word.split(['{', ',', '}']);
        if has_braces && parts.any(|part| part.starts_with(['/', '~']) || part.contains("..")) {
            return PathTarget::Unknown;
        }
        let is_descriptor =
            word.strip_prefix("/dev/fd/").is_some_and(|it| it.parse::<u8>().is_ok());
        if is_descriptor || ALWAYS_WRITABLE.contains(&word) || is_temporary(word) {
            return PathTarget::Inside;
        }
        match paths::resolve(self.cwd, word) {
            Ok(path) if paths::is_inside(&path, self.root) => PathTarget::Inside,
            Ok(_) => PathTarget::Outside,
            Err(_) => PathTarget::Unknown,
        }
    }

    /// Returns the possible values of a word after variable expansion, or `None` if unknown.
    fn expand(&self, word: &str, depth: u32) -> Option<Vec<String>> {
        let Some(index) = word.find(['$', '`']) else { return Some(vec![word.to_owned()]) };
        let after_dollar = word[index..].strip_prefix('$')?;
        let (name, rest) = match after_dollar.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => {
                let end = after_dollar.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                after_dollar.split_at(end.unwrap_or(after_dollar.len()))
            }
        };
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if depth == 0 || !is_name || name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let mut values: Vec<String> = Vec::new();
        for (_, value) in self.variables.iter().filter(|(set, _)| set == name) {
            values.extend(self.expand(value, depth - 1)?);
        }
        if values.is_empty() {
            values.push(match name {
                "PWD" => self.cwd.to_string_lossy().into_owned(),
                "RANDOM" | "SECONDS" | "UID" | "EUID" | "PPID" | "LINENO" => "0".to_owned(),
                name => std::env::var(name).ok()?,
            });
        }
        let tails = self.expand(rest, depth)?;
        let join = |value: &String| {
            tails.iter().map(|rest| format!("{}{value}{rest}", &word[..index])).collect::<Vec<_>>()
        };
        Some(values.iter().flat_map(join).take(100).collect())
    }
}

/// Whether a command only reads, wherever its files are.
fn is_read_only(command: &SimpleCommand) -> bool {
    let verb = command.name();
    let is_git_read = verb == "git" && {
        let (_, rest) = write_targets::split_git_options(&command.words);
        rest.first().is_some_and(|verb| write_targets::GIT_READS.contains(&verb.as_str()))
    };
    let only_reads =
        READ_ONLY_COMMANDS.contains(&verb) || is_git_read || verb.is_empty() || verb.contains('=');
    only_reads && written_paths(command).is_empty()
}

/// Returns absolute paths in code that is an argument of an interpreter.
fn code_paths(command: &SimpleCommand) -> Vec<String> {
    let verb = command.name();
    let is_script = ["awk", "gawk"].contains(&verb);
    let code = command.words.iter().skip_while(|word| !is_script && !is_code_flag(word)).skip(1);
    if !INTERPRETERS.contains(&verb) && !verb.starts_with("python3.") {
        return Vec::new();
    }
    let is_delimiter = |c: char| c.is_whitespace() || "'\"`,;()[]{}=+<>|".contains(c);
    let words = code.flat_map(|code| code.split(is_delimiter));
    let path = |word: &&str| {
        let named = word.strip_prefix('/').is_some_and(|it| it.starts_with(char::is_alphabetic));
        named || word.starts_with("~/") || word.starts_with("../")
    };
    words.filter(path).map(str::to_owned).collect()
}

fn is_code_flag(word: &str) -> bool {
    ["-c", "-e", "-E", "-r", "-p", "--eval", "--print"].contains(&word)
        || word.starts_with('-') && !word.starts_with("--") && word.ends_with(['e', 'c'])
}

/// Returns what is uncertain about a line whose writes may depend on it.
fn uncertainty(parsed: &ShellLine, resolver: &ReachedPaths<'_>) -> Option<String> {
    if parsed.is_too_deep {
        return Some("its scripts are nested too deep to be read".to_owned());
    }
    let commands = &parsed.commands;
    let is_unknown = |word: &String| resolver.locate(word) == PathTarget::Unknown;
    if let Some(word) = commands.iter().flat_map(written_paths).find(is_unknown) {
        return Some(format!("the command writes `{word}`, and where that is shows when it runs"));
    }
    let is_dynamic = |command: &&SimpleCommand| {
        let first = command.words.first().map_or("", String::as_str);
        first.contains(['$', '`', '*', '?', '{']) && !is_assignment(first)
    };
    if let Some(command) = commands.iter().find(is_dynamic) {
        return Some(format!("which command `{}` is shows when it runs", command.words[0]));
    }
    if let Some(directory) = resolver.changed_directory(commands, PathTarget::Unknown)
        && commands.iter().any(|command| !is_read_only(command))
    {
        return Some(format!(
            "the command goes to `{directory}`, and where that is shows when it runs"
        ));
    }
    let changes_git_config = commands.iter().any(write_targets::changes_git_configuration);
    changes_git_config.then(|| "the command changes or replaces git's configuration".to_owned())
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

/// Returns the file outside to which a command's output is, or may be, redirected.
pub(crate) fn redirected_outside(
    command: &SimpleCommand,
    cwd: &Path,
    root: &Path,
) -> Option<String> {
    let resolver = ReachedPaths { cwd, root, variables: &[] };
    command
        .redirect_targets
        .iter()
        .find(|word| resolver.locate(word) != PathTarget::Inside)
        .cloned()
}

/// Whether a word is a temporary file, which counts as inside.
fn is_temporary(word: &str) -> bool {
    // A directory that contains the home directory is not temporary.
    let home = base::user_dirs::home_dir();
    let contains_home =
        |directory: &Path| home.as_ref().is_some_and(|it| it.starts_with(directory));
    let below = |directory: &Path| {
        !contains_home(directory)
            && paths::resolve(Path::new("/"), word)
                .is_ok_and(|path| path != directory && path.starts_with(directory))
    };
    below(Path::new("/tmp")) || below(&std::env::temp_dir())
}

/// Returns the destructive command in a line, if there is one.
fn find_destructive(line: &str, commands: &[SimpleCommand]) -> Option<String> {
    let lower = line.to_lowercase();
    if let Some(statement) = STATEMENTS.iter().find(|statement| lower.contains(*statement)) {
        return Some((*statement).to_owned());
    }
    let verb = |command: &SimpleCommand| command.name().to_lowercase();
    let listed = |verb: &String| {
        let verb = verb.strip_suffix(".exe").unwrap_or(verb);
        is_destructive(verb) || verb.starts_with("mkfs.")
    };
    if let Some(verb) = commands.iter().map(verb).find(listed) {
        return Some(verb);
    }
    let deletes = |command: &&SimpleCommand| {
        command.name() == "find"
            && command.words.iter().any(|word| word == "-delete" || is_destructive(word))
    };
    commands.iter().find(deletes).map(|_| "find -delete".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::SandboxUse;

    fn action(line: &str, confirm_destructive: bool) -> GateAction {
        judge(line, Path::new("/w"), Path::new("/w"), confirm_destructive).action
    }

    #[test]
    fn commands_inside_the_root_run_without_asking() {
        for line in
            ["rm -rf target", "mv a b", "echo x > y", "cp /etc/hosts .", "cat /etc/hosts", "make"]
        {
            assert_eq!(action(line, false), GateAction::Allow, "{line}");
        }
        for line in [
            "make 2>/dev/null",
            "touch /tmp/scratch",
            "for f in a b; do mv $f $f.old; done",
            "X=target; rm -rf \"$X/debug\"",
            "cd src && cargo build",
            "cd /etc && ls",
            "git -C /elsewhere status",
            "python3 -c 'print(1/2)'",
            "echo a:b > c:d",
            "rm -rf $PWD/target",
        ] {
            assert_eq!(action(line, false), GateAction::Allow, "{line}");
        }
    }

    #[test]
    fn writes_outside_the_root_ask() {
        for line in [
            "rm -rf /etc/x",
            "echo x > /etc/y",
            "cp a /usr/bin/a",
            "mv ../other/file .",
            "tee ~/.bashrc",
            "bash -c 'rm /etc/x'",
            "dd if=/dev/zero of=/home/other/disk",
            "sed -i s/a/b/ /etc/x",
            "cd ~ && rm -rf Documents",
            "cd .. ; touch x",
            "pushd /etc; make",
            "rm -rf \"$HOME/x\"",
            "X=/; rm -rf $X/etc",
            "for d in /etc /usr; do rm -rf $d/x; done",
            "rm -rf a:/../../x",
            "curl -o /etc/x https://h",
            "cp -t /etc a",
            "mv -t /etc a",
            "install -t /etc a",
            "echo x <> /etc/y",
            "tar xf a -C /etc",
            "find /etc -delete",
            "find . -fprint /etc/x",
            "git -C /etc commit",
            "git --git-dir=/etc/.git gc",
            "git config --global a.b c",
            "python3 -c 'open(\"/etc/x\", \"w\")'",
            "perl -we 'unlink \"/etc/x\"'",
            "tou\\\nch /etc/x",
            "$\"touch\" /etc/x",
            "trap 'rm /etc/x' EXIT",
            "touch /dev/fd/../cwd/../../etc/x",
            ".g3/bin/g3-research 'which?'",
        ] {
            assert_eq!(action(line, false), GateAction::Ask, "{line}");
            let verdict = judge(line, Path::new("/w"), Path::new("/w"), false);
            assert_eq!(
                verdict.confine,
                SandboxUse::Never,
                "{line}: permission lets it leave the sandbox"
            );
        }
        assert_eq!(judge("ls", Path::new("/etc"), Path::new("/w"), false).action, GateAction::Ask);
    }

    #[test]
    fn uncertain_commands_ask_or_run_in_the_sandbox_without_a_user() {
        let mut deep = "touch x".to_owned();
        (0..12).for_each(|_| deep = format!("eval {deep}"));
        for line in [
            "rm -rf $UNSET_BY_ANYBODY/x",
            "rm -rf $(echo /)",
            "$V x",
            "/bin/tou?h x",
            "{touch,x}",
            "cd $(mktemp -d) && make",
            "touch ~root/x",
            "touch {a,/etc/b}",
            "git config core.fsmonitor ./x",
            "git -c alias.x='!touch y' x",
            &deep,
        ] {
            let verdict = judge(line, Path::new("/w"), Path::new("/w"), false);
            assert_eq!(
                (verdict.action, verdict.confine),
                (GateAction::Ask, SandboxUse::Alone),
                "{line}"
            );
        }
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
            assert_eq!(action(line, true), GateAction::Ask, "{line}");
        }
        for line in ["git mv a b", "docker run --rm x", "grep kill a", "cargo --format=json"] {
            assert_eq!(action(line, true), GateAction::Allow, "{line}");
        }
    }

    #[test]
    fn commands_that_destroy_the_machine_are_always_denied() {
        for line in [
            "rm -rf /",
            "sudo rm -fr /*",
            "sudo -u root rm -rf //.",
            "mkfs.ext4 /dev/sda",
            "true && rm -r --force /",
            "find x -exec rm -rf / +",
        ] {
            assert_eq!(action(line, false), GateAction::Deny, "{line}");
        }
        for (line, cwd) in [("rm -rf /", "/"), ("rm -rf *", "/"), ("rm -rf /", "/etc")] {
            let verdict = judge(line, Path::new(cwd), Path::new("/w"), false);
            assert_eq!(verdict.action, GateAction::Deny, "{line} in {cwd}");
        }
    }

    proptest::proptest! {
        /// Every line is checked before it runs, so no line may panic the check.
        #[test]
        fn no_line_panics(line in "[a-z0-9 \\t\\n;|&()<>{}$`'\"#/=~é-]{0,40}|.{0,20}") {
            let verdict = judge(&line, Path::new("/w"), Path::new("/w"), true);
            proptest::prop_assert!(verdict.action != GateAction::Box);
        }
    }
}
