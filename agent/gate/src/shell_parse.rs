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
    pub redirect_targets: Vec<String>,
}

impl SimpleCommand {
    fn new(words: Vec<String>, redirect_targets: Vec<String>) -> SimpleCommand {
        let text = words.join(" ");
        SimpleCommand { words: strip_prefixes(words), text, redirect_targets }
    }

    /// Returns the command's name without its directory.
    pub(crate) fn name(&self) -> &str {
        let first = self.words.first().map_or("", String::as_str);
        first.rsplit(['/', '\\']).next().unwrap_or(first)
    }
}

/// Maximum nesting depth of `sh -c "sh -c …"`.
const MAX_DEPTH: u32 = 8;

/// A shell line as far as it can be read without running it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShellLine {
    /// The commands.
    pub commands: Vec<SimpleCommand>,
    /// Whether scripts are nested too deeply to be parsed.
    pub is_too_deep: bool,
    /// Values of variables set in the line by assignments and loops: names and words.
    pub variables: Vec<(String, String)>,
}

/// Returns all commands in the line, including those in substitutions, `sh -c`, `eval` and `find
/// -exec`.
pub fn parse(line: &str) -> Vec<SimpleCommand> {
    parse_line(line).commands
}

/// Parses a line.
pub(crate) fn parse_line(line: &str) -> ShellLine {
    let mut parsed = ShellLine::default();
    // The shell removes a backslash at the end of a line, even within a word.
    parse_into(&line.replace("\\\n", ""), MAX_DEPTH, &mut parsed);
    parsed
}

fn parse_into(line: &str, depth: u32, parsed: &mut ShellLine) {
    if depth == 0 {
        parsed.is_too_deep = true;
        return;
    }
    let commands = &mut parsed.commands;
    let first = commands.len();
    let mut parser = Parser::new();
    let tree = match parser.set_language(&tree_sitter_bash::LANGUAGE.into()) {
        Ok(()) => parser.parse(replace_wide_chars(line), None),
        Err(_) => None,
    };
    match tree {
        Some(tree) => {
            collect_assignments(tree.root_node(), line, &mut parsed.variables);
            collect_commands(tree.root_node(), line, commands);
            if tree.root_node().has_error() {
                split_unparsed(line, commands);
            }
        }
        None => split_unparsed(line, commands),
    }
    for index in first..parsed.commands.len() {
        for script in nested_scripts(&parsed.commands[index]) {
            parse_into(&script, depth - 1, parsed);
        }
    }
}

/// Collects the values of variables: `name=word`, and the words of `for name in …`.
fn collect_assignments(root: Node<'_>, line: &str, variables: &mut Vec<(String, String)>) {
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        let mut cursor = node.walk();
        pending.extend(node.named_children(&mut cursor));
        match node.kind() {
            "variable_assignment" => {
                let name =
                    node.child_by_field_name("name").map(|node| node_text(node, line).to_owned());
                let value = node.child_by_field_name("value");
                let value = value.map(|node| unquote(node, line)).unwrap_or_default();
                variables.extend(name.map(|name| (name, value)));
            }
            "for_statement" => {
                let name = node.child_by_field_name("variable").map(|node| node_text(node, line));
                let mut cursor = node.walk();
                let values = node.children_by_field_name("value", &mut cursor);
                let values: Vec<String> = values.map(|node| unquote(node, line)).collect();
                let name = name.unwrap_or_default();
                variables.extend(values.into_iter().map(|value| (name.to_owned(), value)));
            }
            _ => {}
        }
    }
}

/// Replaces four-byte characters by letters of the same length, because the grammar crashes on them
/// after a `{` (tree-sitter-bash, issue 337). Offsets do not change.
fn replace_wide_chars(line: &str) -> String {
    let mut readable = String::with_capacity(line.len());
    for c in line.chars() {
        if c.len_utf8() == 4 { readable.push_str("____") } else { readable.push(c) }
    }
    readable
}

/// Collects the commands below a node.
fn collect_commands(root: Node<'_>, line: &str, commands: &mut Vec<SimpleCommand>) {
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        let mut cursor = node.walk();
        pending.extend(node.named_children(&mut cursor));
        match node.kind() {
            "redirected_statement" => {
                let redirect_targets = redirect_targets(node, line);
                let body = node.child_by_field_name("body");
                // A command includes the files of its redirections.
                let words = body
                    .filter(|node| node.kind() == "command")
                    .map(|node| command_words(node, line));
                commands.push(SimpleCommand::new(words.unwrap_or_default(), redirect_targets));
            }
            "command" if node.parent().is_none_or(|node| node.kind() != "redirected_statement") => {
                commands.push(SimpleCommand::new(
                    command_words(node, line),
                    redirect_targets(node, line),
                ));
            }
            "declaration_command" | "unset_command" | "test_command" => {
                let words = node_text(node, line).split_whitespace().map(str::to_owned).collect();
                commands.push(SimpleCommand::new(words, Vec::new()));
            }
            "variable_assignment" if node.parent().is_none_or(|node| node.kind() == "program") => {
                commands
                    .push(SimpleCommand::new(vec![node_text(node, line).to_owned()], Vec::new()));
            }
            _ => {}
        }
    }
}

/// Splits a line that bash could not parse wherever a command might start.
fn split_unparsed(line: &str, commands: &mut Vec<SimpleCommand>) {
    // A brace list is one word, which may be the command.
    let lists = line.split_whitespace().filter(|word| word.starts_with('{') && word.contains(','));
    commands.extend(lists.map(|word| SimpleCommand::new(vec![word.to_owned()], Vec::new())));
    for part in line.split([';', '|', '&', '\n', '(', ')', '{', '}', '`']) {
        let unquoted = part.replace(['"', '\'', '\\'], "");
        let redirect_targets = unquoted.split('>').skip(1);
        let redirect_targets = redirect_targets.filter_map(|after| after.split_whitespace().next());
        let redirect_targets: Vec<String> = redirect_targets.map(str::to_owned).collect();
        let words = unquoted.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        if !words.is_empty() {
            commands.push(SimpleCommand::new(words, redirect_targets));
        }
    }
}

fn node_text<'a>(node: Node<'_>, line: &'a str) -> &'a str {
    line.get(node.byte_range()).unwrap_or_default()
}

/// Returns the words of a command as the shell would pass them.
fn command_words(command: Node<'_>, line: &str) -> Vec<String> {
    let mut cursor = command.walk();
    let parts = command.named_children(&mut cursor);
    parts
        .filter(|node| !node.kind().ends_with("redirect"))
        .map(|node| unquote(node, line))
        .collect()
}

/// Returns the files written by the redirections of a statement.
fn redirect_targets(statement: Node<'_>, line: &str) -> Vec<String> {
    let mut pending: Vec<Node<'_>> = vec![statement];
    let mut files = Vec::new();
    while let Some(node) = pending.pop() {
        let mut cursor = node.walk();
        // What follows `<<END` belongs to the node of the heredoc.
        pending.extend(
            node.named_children(&mut cursor).filter(|node| node.kind().ends_with("redirect")),
        );
        if node.kind() == "file_redirect" {
            let file = node.child_by_field_name("destination");
            let operator = node_text(node, line).trim_start_matches(|c: char| c.is_ascii_digit());
            // `<>` opens for reading and writing.
            let after = operator.strip_prefix('&').unwrap_or(operator);
            let after = after.strip_prefix("<>").or_else(|| after.strip_prefix('>'));
            let writes = after.is_some_and(|after| {
                let to = after.trim_start_matches(['>', '|']);
                let copy = to.strip_prefix('&').map(str::trim);
                let is_descriptor = |to: &str| to.chars().all(|c| c.is_ascii_digit() || c == '-');
                !copy.is_some_and(is_descriptor)
            });
            files.extend(file.filter(|_| writes).map(|file| unquote(file, line)));
        }
    }
    files.reverse();
    files
}

/// Returns a word without quotes. Substitutions and variables are kept as written.
fn unquote(node: Node<'_>, line: &str) -> String {
    let text = node_text(node, line);
    match node.kind() {
        "command_name" => {
            node.named_child(0).map_or_else(|| text.into(), |node| unquote(node, line))
        }
        "word" => unescape(text, |_| true),
        "raw_string" => text.trim_start_matches('\'').trim_end_matches('\'').to_owned(),
        "ansi_c_string" => {
            decode_ansi_c(text.get(2..text.len().saturating_sub(1)).unwrap_or_default())
        }
        "string" | "translated_string" => {
            let text = text.strip_prefix('$').unwrap_or(text);
            let inner = text.strip_prefix('"').unwrap_or(text);
            unescape(inner.strip_suffix('"').unwrap_or(inner), |c| "\"\\$`\n".contains(c))
        }
        "concatenation" => {
            let mut cursor = node.walk();
            node.named_children(&mut cursor).map(|node| unquote(node, line)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Removes the backslashes before these characters.
fn unescape(text: &str, special: impl Fn(char) -> bool) -> String {
    let mut result = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek().copied().filter(|next| c == '\\' && special(*next)) {
            Some('\n') => drop(chars.next()),
            Some(next) => {
                result.push(next);
                chars.next();
            }
            None => result.push(c),
        }
    }
    result
}

/// Decodes the content of `$'…'`: numeric and letter escapes.
fn decode_ansi_c(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(index) = rest.find('\\') {
        result.push_str(&rest[..index]);
        let mut after = rest[index + 1..].chars();
        let kind = after.next();
        let (radix, max_digits) = match kind {
            Some('x') => (16, 2),
            Some('u') => (16, 4),
            Some('U') => (16, 8),
            Some('0'..='7') => (8, 3),
            Some(_) | None => (0, 0),
        };
        let body = if radix == 8 { &rest[index + 1..] } else { after.as_str() };
        let digits: String =
            body.chars().take(max_digits).take_while(|c| c.is_digit(radix)).collect();
        let number = u32::from_str_radix(&digits, radix.max(2)).ok();
        if let Some(c) = number.and_then(char::from_u32) {
            result.push(c);
            rest = &body[digits.len()..];
            continue;
        }
        result.extend(kind.map(|c| match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            other => other,
        }));
        rest = after.as_str();
    }
    result.push_str(rest);
    result
}

/// Returns the lines that a command passes to a shell or runs itself.
fn nested_scripts(command: &SimpleCommand) -> Vec<String> {
    let words = &command.words;
    match command.name() {
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
            let is_exec = |word: &String| ["-exec", "-execdir", "-ok", "-okdir"].contains(&&**word);
            let parts = words.split(is_exec).skip(1);
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

fn strip_prefixes(mut words: Vec<String>) -> Vec<String> {
    while let Some(first) = words.first() {
        let name = first.rsplit('/').next().unwrap_or(first);
        let skip = if is_assignment(first) {
            1
        } else if let Some((_, value_options)) = PREFIXES.iter().find(|(prefix, _)| *prefix == name)
        {
            prefix_length(&words, value_options)
        } else {
            break;
        };
        words.drain(..skip.min(words.len()));
    }
    words
}

/// Returns the number of words of a prefix with its options and their values: `nice -n 10`,
/// `timeout -k 5 10s`.
fn prefix_length(words: &[String], value_options: &str) -> usize {
    let mut length = 1;
    while let Some(word) = words.get(length) {
        let option = word.strip_prefix('-').filter(|rest| !rest.is_empty());
        match option {
            Some(option) if option.len() == 1 && value_options.contains(option) => length += 2,
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
            parse(line).iter().map(|command| command.name().to_owned()).collect();
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
        let redirect_targets = |line: &str| -> Vec<String> {
            parse(line).into_iter().flat_map(|command| command.redirect_targets).collect()
        };
        assert_eq!(redirect_targets("a > b 2>> 'c d' 2>&1 &> e"), ["b", "c d", "e"]);
        assert_eq!(redirect_targets("a >| b < c 2>/dev/null >&3"), ["b", "/dev/null"]);
        assert_eq!(redirect_targets("{ a; } > b; > c; cat <<E > d\nx\nE"), ["d", "c", "b"]);
        assert_eq!(redirect_targets("a >& b"), ["b"]);
        assert!(redirect_targets("a < b 2>&1 3>&-").is_empty());
    }
}
