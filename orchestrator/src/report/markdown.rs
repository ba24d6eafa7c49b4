//! Escapes untrusted text in Markdown: it contains no markup and stays in its cell or block.

use base::text::{printable, printable_output};

/// Characters that Markdown, as code hosts render it, may interpret anywhere.
const MARKS: &str = "\\`*_[]<>&|~#!$";

/// Escapes text for one line.
pub(crate) fn text(text: &str) -> String {
    let line = one_line(text);
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut out = String::with_capacity(line.len());
    for (index, c) in line.char_indices() {
        let begins_a_list = index == digits && digits > 0 && matches!(c, '.' | ')');
        let begins_a_line = index == 0 && matches!(c, '-' | '+' | '=');
        if MARKS.contains(c) || begins_a_list || begins_a_line {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Formats inline code: a command, a commit.
pub(crate) fn code(text: &str) -> String {
    let line = one_line(text);
    let fence = "`".repeat(longest_run(&line) + 1);
    match line.starts_with('`') || line.ends_with('`') || line.is_empty() {
        true => format!("{fence} {line} {fence}"),
        false => format!("{fence}{line}{fence}"),
    }
}

/// Formats output as a code block.
pub(crate) fn block(text: &str) -> String {
    let text = printable_output(text);
    let fence = "`".repeat(longest_run(&text).max(2) + 1);
    format!("{fence}text\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// Formats a table; the cells are Markdown already, without newlines.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    // A bar ends a cell even within code, unless an odd number of backslashes precedes it.
    let cell = |cell: &String| {
        let (mut out, mut odd) = (String::with_capacity(cell.len()), false);
        for c in cell.chars() {
            if c == '|' && !odd {
                out.push('\\');
            }
            odd = c == '\\' && !odd;
            out.push(c);
        }
        out
    };
    let mut lines = vec![format!("| {} |", header.join(" | ")), format!("|{}", "---|".repeat(N))];
    lines.extend(rows.iter().map(|row| format!("| {} |", row.each_ref().map(cell).join(" | "))));
    lines.join("\n")
}

fn one_line(text: &str) -> String {
    printable(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(text("a | b <img src=x> *c*"), r"a \| b \<img src=x\> \*c\*");
        assert_eq!(text("- x\n# y\u{1b}[2J `z`"), r"\- x \# y^\[\[2J \`z\`");
        assert_eq!(text("12. x 3. y"), r"12\. x 3. y");
        assert_eq!(text("&lt; [a](b) $x$"), r"\&lt; \[a\](b) \$x\$");
    }

    #[test]
    fn code_and_blocks_have_longer_fences_than_their_content() {
        assert_eq!(code("make test"), "`make test`");
        assert_eq!(code("echo `x` ``"), "``` echo `x` `` ```");
        assert_eq!(code("a\n## b"), "`a ## b`");
        assert_eq!(block("a\n````\nb\n"), "`````text\na\n````\nb\n`````");
        assert_eq!(block(""), "```text\n\n```");
    }

    #[test]
    fn a_bar_does_not_end_a_cell() {
        let rows = [[code("a | b"), text("c | d")]];
        assert_eq!(table(["x", "y"], &rows), "| x | y |\n|---|---|\n| `a \\| b` | c \\| d |");
    }

    proptest::proptest! {
        /// Any text stays on its line, and a code span ends where it should.
        #[test]
        fn any_text_stays_in_its_cell(words in "[a-z`|<\\\\\n #*-]{0,30}") {
            proptest::prop_assert!(!text(&words).contains('\n') && !code(&words).contains('\n'));
            let span = code(&words);
            let fence = span.len() - span.trim_start_matches('`').len();
            let inner = &span[fence..span.len() - fence];
            proptest::prop_assert!(!inner.contains(&"`".repeat(fence)));
        }
    }
}
