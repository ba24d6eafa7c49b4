//! The commands in a line of shell: what is called, with which words, and which files are written
//! by redirection. The line is parsed with tree-sitter's grammar of bash; what only the shell knows
//! (variables, globs) stays as it is written.

use tree_sitter::{Node, Parser};

/// One command of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    /// The words without quotes; the first is the command. What stands before it (assignments,
    /// `sudo`) is left out.
    pub words: Vec<String>,
    /// All words in one line, those before the command included.
    pub text: String,
    /// Files that its redirections write.
    pub written: Vec<String>,
}

impl SimpleCommand {
    fn new(words: Vec<String>, written: Vec<String>) -> SimpleCommand {
        let text = words.join(" ");
        SimpleCommand { words: without_prefix(words), text, written }
    }

    /// The command's name without its directory.
    pub(crate) fn verb(&self) -> &str {
        let first = self.words.first().map_or("", String::as_str);
        first.rsplit(['/', '\\']).next().unwrap_or(first)
    }
}

/// How deep `sh -c "sh -c …"` is followed.
const DEPTH: u32 = 8;

/// A line of shell as far as it can be read without running it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShellLine {
    /// Every command in it.
    pub pieces: Vec<SimpleCommand>,
    /// Whether scripts are nested deeper than they are read.
    pub is_too_deep: bool,
    /// What variables are set to in it, by assignments and loops: names and words.
    pub variables: Vec<(String, String)>,
}

/// Every command in the line, those in substitutions, `sh -c`, `eval` and `find -exec` included.
pub fn parse(line: &str) -> Vec<SimpleCommand> {
    read(line).pieces
}

/// Reads a line.
pub(crate) fn read(line: &str) -> ShellLine {
    let mut found = ShellLine::default();
    // The shell takes a backslash at the end of a line away, also within a word.
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

/// What variables are set to: `name=word`, and the words of `for name in …`.
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

/// The line with letters in place of characters of four bytes, on which the grammar crashes behind
/// a `{` (tree-sitter-bash, issue 337). Every place in it is the same place in the line.
fn readable(line: &str) -> String {
    let mut readable = String::with_capacity(line.len());
    for c in line.chars() {
        if c.len_utf8() == 4 { readable.push_str("____") } else { readable.push(c) }
    }
    readable
}

/// The commands below a node.
fn collect(root: Node<'_>, line: &str, found: &mut Vec<SimpleCommand>) {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        open.extend(node.named_children(&mut cursor));
        match node.kind() {
            "redirected_statement" => {
                let written = written(node, line);
                let body = node.child_by_field_name("body");
                // A command takes the files of its redirections with it.
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

/// A line that bash could not read: cut wherever a command might begin.
fn crudely(line: &str, found: &mut Vec<SimpleCommand>) {
    // A list in braces is one word, which may be the command.
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

/// The words of a command, as the shell would pass them on.
fn words(command: Node<'_>, line: &str) -> Vec<String> {
    let mut cursor = command.walk();
    let parts = command.named_children(&mut cursor);
    parts.filter(|it| !it.kind().ends_with("redirect")).map(|it| plain(it, line)).collect()
}

/// The files that the redirections of a statement write.
fn written(statement: Node<'_>, line: &str) -> Vec<String> {
    let mut open: Vec<Node<'_>> = vec![statement];
    let mut files = Vec::new();
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        // What stands behind `<<END` belongs to the heredoc's node.
        open.extend(node.named_children(&mut cursor).filter(|it| it.kind().ends_with("redirect")));
        if node.kind() == "file_redirect" {
            let file = node.child_by_field_name("destination");
            let operator = text(node, line).trim_start_matches(|c: char| c.is_ascii_digit());
            // `<>` opens for both.
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

/// A word without its quotes. Substitutions and variables stay as they are written.
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

/// A text whose backslashes before such characters have done their work.
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

/// What stands in `$'…'`: characters by number, and the usual letters.
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

/// The lines that a piece hands to a shell or runs itself.
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
        // What runs at the end, or at a signal.
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

/// Commands that run the command behind them, and their options that take the next word.
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

/// How many words a prefix is with its options and their words: `nice -n 10`, `timeout -k 5 10s`.
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

    /// The verbs of a line in the order of the alphabet.
    fn verbs(line: &str) -> Vec<String> {
        let mut verbs: Vec<String> =
            parse(line).iter().map(|piece| piece.verb().to_owned()).collect();
        verbs.sort();
        verbs
    }

    #[test]
    fn every_command_of_a_line_is_seen() {
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
    fn a_line_that_bash_refuses_hides_nothing() {
        for line in ["(rm x", "echo \"unclosed; rm x", "a | | rm x", "if true; rm x", "} ; rm x"] {
            assert!(verbs(line).contains(&"rm".to_owned()), "{line}");
        }
    }

    #[test]
    fn words_in_quotes_comments_and_heredocs_are_no_commands() {
        assert_eq!(verbs("echo 'a; rm b' \"c && rm d\" # ; rm e"), ["echo"]);
        assert_eq!(verbs("cat <<'EOF' > x\nrm -rf $(mv /)\nEOF\nls"), ["cat", "ls"]);
        assert_eq!(verbs("git mv a b; docker run --rm x"), ["docker", "git"]);
    }

    #[test]
    fn files_written_by_redirection_are_seen() {
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
