//! Parses a shell line into its commands: the words of each and the files that are written by
//! redirection. Uses tree-sitter's bash grammar; what only the shell knows (variables, globs) is
//! kept as written.

use tree_sitter::{Node, Parser};

/// A command of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    /// The words without quotes; the first is the command. Prefixes (assignments, `sudo`) are
    /// omitted.
    pub words: Vec<String>,
    /// All words on one line, including prefixes.
    pub text: String,
    /// Files written by its redirections.
    pub written: Vec<String>,
}

impl SimpleCommand {
    fn new(words: Vec<String>, written: Vec<String>) -> SimpleCommand {
        let text = words.join(" ");
        SimpleCommand { words: without_prefix(words), text, written }
    }

    /// Returns the command's name without its directory.
    pub(crate) fn verb(&self) -> &str {
        let first = self.words.first().map_or("", String::as_str);
        first.rsplit(['/', '\\']).next().unwrap_or(first)
    }
}

/// Maximum nesting depth of `sh -c "sh -c …"`.
const DEPTH: u32 = 8;

/// A shell line as far as it can be read without running it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShellLine {
    /// The commands.
    pub pieces: Vec<SimpleCommand>,
    /// Whether scripts are nested too deeply to be parsed.
    pub is_too_deep: bool,
    /// Values of variables set in the line by assignments and loops: names and words.
    pub variables: Vec<(String, String)>,
}

/// Returns all commands in the line, including those in substitutions, `sh -c`, `eval` and `find
/// -exec`.
pub fn parse(line: &str) -> Vec<SimpleCommand> {
    read(line).pieces
}

/// Parses a line.
pub(crate) fn read(line: &str) -> ShellLine {
    let mut found = ShellLine::default();
    // The shell removes a backslash at the end of a line, even within a word.
    split(&line.replace("\\\n", ""), DEPTH, &mut found);
    found
}

fn split(line: &str, depth: u32, all: &mut ShellLine) {
    if depth == 0 {
        all.is_too_deep = true;
        return;
    }
    let found = &mut all.pieces;
    let first = found.len();
    let mut parser = Parser::new();
    let tree = match parser.set_language(&tree_sitter_bash::LANGUAGE.into()) {
        Ok(()) => parser.parse(readable(line), None),
        Err(_) => None,
    };
    match tree {
        Some(tree) => {
            assignments(tree.root_node(), line, &mut all.variables);
            collect(tree.root_node(), line, found);
            if tree.root_node().has_error() {
                crudely(line, found);
            }
        }
        None => crudely(line, found),
    }
    for at in first..all.pieces.len() {
        for script in scripts(&all.pieces[at]) {
            split(&script, depth - 1, all);
        }
    }
}

/// Collects the values of variables: `name=word`, and the words of `for name in …`.
fn assignments(root: Node<'_>, line: &str, variables: &mut Vec<(String, String)>) {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        open.extend(node.named_children(&mut cursor));
        match node.kind() {
            "variable_assignment" => {
                let name = node.child_by_field_name("name").map(|it| text(it, line).to_owned());
                let value = node.child_by_field_name("value");
                let value = value.map(|it| plain(it, line)).unwrap_or_default();
                variables.extend(name.map(|name| (name, value)));
            }
            "for_statement" => {
                let name = node.child_by_field_name("variable").map(|it| text(it, line));
                let mut cursor = node.walk();
                let values = node.children_by_field_name("value", &mut cursor);
                let values: Vec<String> = values.map(|it| plain(it, line)).collect();
                let name = name.unwrap_or_default();
                variables.extend(values.into_iter().map(|value| (name.to_owned(), value)));
            }
            _ => {}
        }
    }
}

/// Replaces four-byte characters by letters of the same length, because the grammar crashes on them
/// after a `{` (tree-sitter-bash, issue 337). Offsets do not change.
fn readable(line: &str) -> String {
    let mut readable = String::with_capacity(line.len());
    for c in line.chars() {
        if c.len_utf8() == 4 { readable.push_str("____") } else { readable.push(c) }
    }
    readable
}

/// Collects the commands below a node.
fn collect(root: Node<'_>, line: &str, found: &mut Vec<SimpleCommand>) {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        open.extend(node.named_children(&mut cursor));
        match node.kind() {
            "redirected_statement" => {
                let written = written(node, line);
                let body = node.child_by_field_name("body");
                // A command includes the files of its redirections.
                let words = body.filter(|it| it.kind() == "command").map(|it| words(it, line));
                found.push(SimpleCommand::new(words.unwrap_or_default(), written));
            }
            "command" if node.parent().is_none_or(|it| it.kind() != "redirected_statement") => {
                found.push(SimpleCommand::new(words(node, line), written(node, line)));
            }
            "declaration_command" | "unset_command" | "test_command" => {
                let words = text(node, line).split_whitespace().map(str::to_owned).collect();
                found.push(SimpleCommand::new(words, Vec::new()));
            }
            "variable_assignment" if node.parent().is_none_or(|it| it.kind() == "program") => {
                found.push(SimpleCommand::new(vec![text(node, line).to_owned()], Vec::new()));
            }
            _ => {}
        }
    }
}

/// Splits a line that bash could not parse wherever a command might start.
fn crudely(line: &str, found: &mut Vec<SimpleCommand>) {
    // A brace list is one word, which may be the command.
    let lists = line.split_whitespace().filter(|word| word.starts_with('{') && word.contains(','));
    found.extend(lists.map(|word| SimpleCommand::new(vec![word.to_owned()], Vec::new())));
    for part in line.split([';', '|', '&', '\n', '(', ')', '{', '}', '`']) {
        let bare = part.replace(['"', '\'', '\\'], "");
        let written = bare.split('>').skip(1);
        let written = written.filter_map(|behind| behind.split_whitespace().next());
        let written: Vec<String> = written.map(str::to_owned).collect();
        let words = bare.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        if !words.is_empty() {
            found.push(SimpleCommand::new(words, written));
        }
    }
}

fn text<'a>(node: Node<'_>, line: &'a str) -> &'a str {
    line.get(node.byte_range()).unwrap_or_default()
}

/// Returns the words of a command as the shell would pass them.
fn words(command: Node<'_>, line: &str) -> Vec<String> {
    let mut cursor = command.walk();
    let parts = command.named_children(&mut cursor);
    parts.filter(|it| !it.kind().ends_with("redirect")).map(|it| plain(it, line)).collect()
}

/// Returns the files written by the redirections of a statement.
fn written(statement: Node<'_>, line: &str) -> Vec<String> {
    let mut open: Vec<Node<'_>> = vec![statement];
    let mut files = Vec::new();
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        // What follows `<<END` belongs to the node of the heredoc.
        open.extend(node.named_children(&mut cursor).filter(|it| it.kind().ends_with("redirect")));
        if node.kind() == "file_redirect" {
            let file = node.child_by_field_name("destination");
            let operator = text(node, line).trim_start_matches(|c: char| c.is_ascii_digit());
            // `<>` opens for reading and writing.
            let behind = operator.strip_prefix('&').unwrap_or(operator);
            let behind = behind.strip_prefix("<>").or_else(|| behind.strip_prefix('>'));
            let writes = behind.is_some_and(|behind| {
                let to = behind.trim_start_matches(['>', '|']);
                let copy = to.strip_prefix('&').map(str::trim);
                let descriptor = |to: &str| to.chars().all(|c| c.is_ascii_digit() || c == '-');
                !copy.is_some_and(descriptor)
            });
            files.extend(file.filter(|_| writes).map(|file| plain(file, line)));
        }
    }
    files.reverse();
    files
}

/// Returns a word without quotes. Substitutions and variables are kept as written.
fn plain(node: Node<'_>, line: &str) -> String {
    let text = text(node, line);
    match node.kind() {
        "command_name" => node.named_child(0).map_or_else(|| text.into(), |it| plain(it, line)),
        "word" => unescaped(text, |_| true),
        "raw_string" => text.trim_start_matches('\'').trim_end_matches('\'').to_owned(),
        "ansi_c_string" => decoded(text.get(2..text.len().saturating_sub(1)).unwrap_or_default()),
        "string" | "translated_string" => {
            let text = text.strip_prefix('$').unwrap_or(text);
            let inner = text.strip_prefix('"').unwrap_or(text);
            unescaped(inner.strip_suffix('"').unwrap_or(inner), |c| "\"\\$`\n".contains(c))
        }
        "concatenation" => {
            let mut cursor = node.walk();
            node.named_children(&mut cursor).map(|it| plain(it, line)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Removes the backslashes before these characters.
fn unescaped(text: &str, special: impl Fn(char) -> bool) -> String {
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek().copied().filter(|next| c == '\\' && special(*next)) {
            Some('\n') => drop(chars.next()),
            Some(next) => {
                plain.push(next);
                chars.next();
            }
            None => plain.push(c),
        }
    }
    plain
}

/// Decodes the content of `$'…'`: numeric and letter escapes.
fn decoded(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let mut behind = rest[at + 1..].chars();
        let kind = behind.next();
        let (radix, most) = match kind {
            Some('x') => (16, 2),
            Some('u') => (16, 4),
            Some('U') => (16, 8),
            Some('0'..='7') => (8, 3),
            Some(_) | None => (0, 0),
        };
        let body = if radix == 8 { &rest[at + 1..] } else { behind.as_str() };
        let digits: String = body.chars().take(most).take_while(|c| c.is_digit(radix)).collect();
        let number = u32::from_str_radix(&digits, radix.max(2)).ok();
        if let Some(c) = number.and_then(char::from_u32) {
            plain.push(c);
            rest = &body[digits.len()..];
            continue;
        }
        plain.extend(kind.map(|c| match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            other => other,
        }));
        rest = behind.as_str();
    }
    plain.push_str(rest);
    plain
}

/// Returns the lines that a command passes to a shell or runs itself.
fn scripts(piece: &SimpleCommand) -> Vec<String> {
    let words = &piece.words;
    match piece.verb() {
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "su" => {
            let flag = words.iter().position(|word| {
                word.starts_with('-') && !word.starts_with("--") && word.contains('c')
            });
            flag.and_then(|flag| words.get(flag + 1).cloned()).into_iter().collect()
        }
        "eval" => vec![words[1..].join(" ")],
        // Runs at exit, or on a signal.
        "trap" => words.get(1).filter(|word| !word.starts_with('-')).cloned().into_iter().collect(),
        "script" | "flock" => {
            let flag = words.iter().position(|word| word == "-c" || word == "--command");
            flag.and_then(|flag| words.get(flag + 1).cloned()).into_iter().collect()
        }
        "find" => {
            let runs = |word: &String| ["-exec", "-execdir", "-ok", "-okdir"].contains(&&**word);
            let parts = words.split(runs).skip(1);
            parts.map(|part| part.split(|it| it == ";").next().unwrap_or(part).join(" ")).collect()
        }
        _ => Vec::new(),
    }
}

/// Commands that run the command given after them, and their options that take a value.
const PREFIXES: [(&str, &str); 26] = [
    ("sudo", "ughpCDRTU"),
    ("doas", "uC"),
    ("env", "uC"),
    ("nohup", ""),
    ("nice", "n"),
    ("ionice", "cnp"),
    ("time", "fo"),
    ("timeout", "ks"),
    ("stdbuf", "ioe"),
    ("command", ""),
    ("exec", "a"),
    ("builtin", ""),
    ("coproc", ""),
    ("setsid", ""),
    ("xargs", "EILPadns"),
    ("watch", "n"),
    ("busybox", ""),
    ("taskset", "cp"),
    ("setpriv", ""),
    ("chrt", "TPD"),
    ("unshare", ""),
    ("strace", "oepPs"),
    ("prlimit", ""),
    ("setarch", ""),
    ("chronic", ""),
    ("!", ""),
];

fn without_prefix(mut words: Vec<String>) -> Vec<String> {
    while let Some(first) = words.first() {
        let name = first.rsplit('/').next().unwrap_or(first);
        let skip = if is_assignment(first) {
            1
        } else if let Some((_, takes)) = PREFIXES.iter().find(|(prefix, _)| *prefix == name) {
            prefix_length(&words, takes)
        } else {
            break;
        };
        words.drain(..skip.min(words.len()));
    }
    words
}

/// Returns the number of words of a prefix with its options and their values: `nice -n 10`,
/// `timeout -k 5 10s`.
fn prefix_length(words: &[String], takes: &str) -> usize {
    let mut length = 1;
    while let Some(word) = words.get(length) {
        let option = word.strip_prefix('-').filter(|rest| !rest.is_empty());
        match option {
            Some(option) if option.len() == 1 && takes.contains(option) => length += 2,
            Some(_) => length += 1,
            None if word.starts_with(|c: char| c.is_ascii_digit()) => length += 1,
            None => break,
        }
    }
    length
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sorted command names of a line.
    fn verbs(line: &str) -> Vec<String> {
        let mut verbs: Vec<String> =
            parse(line).iter().map(|piece| piece.verb().to_owned()).collect();
        verbs.sort();
        verbs
    }

    #[test]
    fn every_command_of_a_line_is_found() {
        for (line, seen) in [
            ("cd a && /bin/rm -rf b; echo c | grep d &", "cd echo grep rm"),
            ("sudo -n env A=1 rm x", "rm"),
            ("sudo -u root rm x", "rm"),
            ("echo $(rm a) `mv b c` \"$(kill 1)\"", "echo kill mv rm"),
            ("bash -lc 'rm -rf x; ls'", "bash ls rm"),
            ("if true; then rm a; fi", "rm true"),
            ("for f in *; do rm \"$f\"; done", "rm"),
            ("while a; do b; done; case x in y) c;; esac", "a b c"),
            ("f() { rm a; }; { mv b c; }; (kill 1)", "kill mv rm"),
            ("timeout -k 5 10 rm a", "rm"),
            ("find . | xargs -0 rm", "find rm"),
            ("xargs -I {} rm {}", "rm"),
            ("find . -name x -exec rm -f {} \\; -print", "find rm"),
            ("cd x && \\\n rm a", "cd rm"),
            ("echo $(echo ')'; rm a)", "echo echo rm"),
            ("read a <<< \"$x\"\nrm a", "read rm"),
            ("cat <<E | sort\ndon't\nE\nrm a", "cat rm sort"),
            ("cat <<E\n$(rm a)\nE", "cat rm"),
            ("cat <(rm a) > >(mv b c)", "cat mv rm"),
            ("x=${y:-$(rm a)}", " rm"),
            ("export A=$(rm a)", "export rm"),
            ("\\rm a; 'r'm b; \"rm\" c; $'\\x72m' d", "rm rm rm rm"),
        ] {
            assert_eq!(verbs(line).join(" "), seen, "{line}");
        }
        assert_eq!(parse("git \\\n push")[0].text, "git push");
        assert_eq!(parse("`{0\u{e8c14}0=#=\u{1f600}").len(), 1);
        assert_eq!(parse("{ rm \u{1f600}.txt; }")[0].words, ["rm", "\u{1f600}.txt"]);
    }

    #[test]
    fn commands_in_a_line_with_syntax_errors_are_found() {
        for line in ["(rm x", "echo \"unclosed; rm x", "a | | rm x", "if true; rm x", "} ; rm x"] {
            assert!(verbs(line).contains(&"rm".to_owned()), "{line}");
        }
    }

    #[test]
    fn words_in_quotes_comments_and_heredocs_are_not_commands() {
        assert_eq!(verbs("echo 'a; rm b' \"c && rm d\" # ; rm e"), ["echo"]);
        assert_eq!(verbs("cat <<'EOF' > x\nrm -rf $(mv /)\nEOF\nls"), ["cat", "ls"]);
        assert_eq!(verbs("git mv a b; docker run --rm x"), ["docker", "git"]);
    }

    #[test]
    fn files_written_by_redirection_are_found() {
        let written = |line: &str| -> Vec<String> {
            parse(line).into_iter().flat_map(|piece| piece.written).collect()
        };
        assert_eq!(written("a > b 2>> 'c d' 2>&1 &> e"), ["b", "c d", "e"]);
        assert_eq!(written("a >| b < c 2>/dev/null >&3"), ["b", "/dev/null"]);
        assert_eq!(written("{ a; } > b; > c; cat <<E > d\nx\nE"), ["d", "c", "b"]);
        assert_eq!(written("a >& b"), ["b"]);
        assert!(written("a < b 2>&1 3>&-").is_empty());
    }
}
