//! The commands in a line of shell: what is called, with which words, and which files are written
//! by redirection. A careful splitter, not a shell: what it cannot know it leaves out.

/// One command of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The words without quotes; the first is the command. What stands before it (assignments,
    /// `sudo`) is left out.
    pub words: Vec<String>,
    /// All words in one line, those before the command included.
    pub text: String,
    /// Files that its redirections write.
    pub written: Vec<String>,
}

impl Piece {
    /// The command's name without its directory.
    pub fn verb(&self) -> &str {
        let first = self.words.first().map_or("", String::as_str);
        first.rsplit(['/', '\\']).next().unwrap_or(first)
    }
}

/// How deep `sh -c "sh -c …"` and `$( $( … ) )` are followed.
const DEPTH: u32 = 8;

/// Every command in the line, those in substitutions, `sh -c` and `eval` included.
pub fn pieces(line: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    split(line, DEPTH, &mut found);
    found
}

fn split(line: &str, depth: u32, found: &mut Vec<Piece>) {
    if depth == 0 {
        return;
    }
    let mut splitter = Splitter { chars: line.chars().collect(), at: 0, inner: Vec::new() };
    while splitter.at < splitter.chars.len() {
        let mut piece = splitter.piece();
        piece.text = piece.words.join(" ");
        let piece = without_prefix(piece);
        if let Some(script) = script(&piece) {
            split(&script, depth - 1, found);
        }
        if !piece.words.is_empty() || !piece.written.is_empty() {
            found.push(piece);
        }
    }
    for inner in splitter.inner {
        split(&inner, depth - 1, found);
    }
}

/// The line that a piece hands to another shell.
fn script(piece: &Piece) -> Option<String> {
    match piece.verb() {
        "sh" | "bash" | "dash" | "zsh" | "ksh" => {
            let flag = piece.words.iter().position(|word| {
                word.starts_with('-') && !word.starts_with("--") && word.contains('c')
            })?;
            piece.words.get(flag + 1).cloned()
        }
        "eval" => Some(piece.words[1..].join(" ")),
        _ => None,
    }
}

/// Words that stand before a command without being it.
const PREFIXES: [&str; 20] = [
    "sudo", "env", "nohup", "nice", "time", "timeout", "doas", "command", "exec", "builtin",
    "setsid", "xargs", "then", "do", "else", "if", "while", "until", "!", "{",
];

fn without_prefix(mut piece: Piece) -> Piece {
    loop {
        let Some(first) = piece.words.first() else { return piece };
        let skip = if is_assignment(first) {
            1
        } else if PREFIXES.contains(&piece.verb()) {
            // Options and their numbers: `nice -n 10`, `timeout -k 5 10s`.
            let option =
                |word: &&String| word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
            1 + piece.words[1..].iter().take_while(option).count()
        } else {
            return piece;
        };
        piece.words.drain(..skip.min(piece.words.len()));
    }
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

struct Splitter {
    chars: Vec<char>,
    at: usize,
    /// What stands in `$( … )`, backticks and process substitutions.
    inner: Vec<String>,
}

/// Where the next word goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Word,
    Written,
    Ignored,
}

impl Splitter {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Reads up to the end of one command.
    fn piece(&mut self) -> Piece {
        let mut piece = Piece::default();
        let mut next = Next::Word;
        let mut heredocs: Vec<String> = Vec::new();
        while let Some(c) = self.peek(0) {
            match c {
                '\n' => {
                    self.at += 1;
                    heredocs.drain(..).for_each(|end| self.skip_heredoc(&end));
                    return piece;
                }
                ';' | '|' | '(' | ')' => {
                    self.at += 1;
                    return piece;
                }
                '&' if self.peek(1) == Some('>') => self.at += 1,
                '&' => {
                    self.at += 1;
                    return piece;
                }
                ' ' | '\t' => self.at += 1,
                '#' => self.skip_comment(),
                '>' => next = self.redirection(),
                '<' if self.peek(1) == Some('<') && self.peek(2) != Some('<') => {
                    self.at += 2;
                    heredocs.push(self.heredoc_end());
                }
                '<' if self.peek(1) == Some('(') => {
                    self.at += 2;
                    let inner = self.until_closed();
                    self.inner.push(inner);
                }
                '<' => {
                    self.at += 1;
                    next = Next::Ignored;
                }
                _ => {
                    let word = self.word();
                    match next {
                        // The number of a descriptor in `2>file` is no word.
                        Next::Word if is_descriptor(&word) && self.peek(0) == Some('>') => {}
                        Next::Word => piece.words.push(word),
                        Next::Written => piece.written.push(word),
                        Next::Ignored => {}
                    }
                    next = Next::Word;
                }
            }
        }
        piece
    }

    /// Behind `>`, `>>`, `>|`, `>&`: what the next word is.
    fn redirection(&mut self) -> Next {
        self.at += 1;
        match self.peek(0) {
            Some('>' | '|') => {
                self.at += 1;
                Next::Written
            }
            Some('&') => {
                self.at += 1;
                let digit = self.peek(0).is_some_and(|c| c.is_ascii_digit() || c == '-');
                if digit { Next::Ignored } else { Next::Written }
            }
            Some('(') => {
                self.at += 1;
                let inner = self.until_closed();
                self.inner.push(inner);
                Next::Word
            }
            Some(_) | None => Next::Written,
        }
    }

    fn skip_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    fn heredoc_end(&mut self) -> String {
        while self.peek(0).is_some_and(|c| c == '-' || c == ' ') {
            self.at += 1;
        }
        self.word()
    }

    fn skip_heredoc(&mut self, end: &str) {
        while self.at < self.chars.len() {
            let rest = &self.chars[self.at..];
            let length = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
            let line: String = rest[..length].iter().collect();
            self.at = (self.at + length + 1).min(self.chars.len());
            if line.trim_start_matches('\t') == end {
                return;
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | ';' | '|' | '&' | '(' | ')' | '<' | '>' => break,
                '\\' => {
                    word.extend(self.peek(1).filter(|c| *c != '\n'));
                    self.at += 2;
                }
                '\'' => {
                    self.at += 1;
                    while let Some(c) = self.peek(0).filter(|c| *c != '\'') {
                        word.push(c);
                        self.at += 1;
                    }
                    self.at += 1;
                }
                '"' => self.double_quoted(&mut word),
                '`' | '$' => self.dollar(&mut word),
                c => {
                    word.push(c);
                    self.at += 1;
                }
            }
        }
        word
    }

    fn double_quoted(&mut self, word: &mut String) {
        self.at += 1;
        while let Some(c) = self.peek(0) {
            match c {
                '"' => break,
                '\\' => {
                    word.extend(self.peek(1));
                    self.at += 2;
                }
                '`' | '$' => self.dollar(word),
                c => {
                    word.push(c);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
    }

    /// A substitution is set aside; a variable stays as written.
    fn dollar(&mut self, word: &mut String) {
        let backtick = self.peek(0) == Some('`');
        if backtick {
            self.at += 1;
            let start = self.at;
            while self.peek(0).is_some_and(|c| c != '`') {
                self.at += 1;
            }
            self.inner.push(self.chars[start..self.at].iter().collect());
            self.at += 1;
        } else if self.peek(1) == Some('(') {
            self.at += 2;
            let inner = self.until_closed();
            self.inner.push(inner);
        } else {
            word.push('$');
            self.at += 1;
        }
    }

    /// Up to the parenthesis that closes the one just passed.
    fn until_closed(&mut self) -> String {
        let start = self.at;
        let mut open = 1;
        while let Some(c) = self.peek(0) {
            open += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            if open == 0 {
                break;
            }
            self.at += 1;
        }
        let inner = self.chars[start..self.at].iter().collect();
        self.at += 1;
        inner
    }
}

fn is_descriptor(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbs(line: &str) -> Vec<String> {
        pieces(line).iter().map(|piece| piece.verb().to_owned()).collect()
    }

    #[test]
    fn every_command_of_a_line_is_seen() {
        assert_eq!(verbs("cd a && /bin/rm -rf b; echo c | grep d &"), ["cd", "rm", "echo", "grep"]);
        assert_eq!(verbs("sudo -n env A=1 rm x"), ["rm"]);
        assert_eq!(verbs("echo $(rm a) `mv b c` \"$(kill 1)\""), ["echo", "rm", "mv", "kill"]);
        assert_eq!(verbs("bash -lc 'rm -rf x; ls'"), ["rm", "ls", "bash"]);
        assert_eq!(verbs("if true; then rm a; fi"), ["true", "rm", "fi"]);
        assert_eq!(verbs("timeout -k 5 10 rm a").last().unwrap(), "rm");
        assert_eq!(verbs("find . | xargs -0 rm"), ["find", "rm"]);
    }

    #[test]
    fn words_in_quotes_comments_and_heredocs_are_no_commands() {
        assert_eq!(verbs("echo 'a; rm b' \"c && rm d\" # ; rm e"), ["echo"]);
        assert_eq!(verbs("cat <<'EOF' > x\nrm -rf /\nEOF\nls"), ["cat", "ls"]);
        assert_eq!(verbs("git mv a b; docker run --rm x"), ["git", "docker"]);
    }

    #[test]
    fn files_written_by_redirection_are_seen() {
        let written = |line: &str| -> Vec<String> {
            pieces(line).into_iter().flat_map(|piece| piece.written).collect()
        };
        assert_eq!(written("a > b 2>> 'c d' 2>&1 &> e"), ["b", "c d", "e"]);
        assert_eq!(written("a >| b < c 2>/dev/null"), ["b", "/dev/null"]);
        assert!(written("a < b 2>&1").is_empty());
    }
}
