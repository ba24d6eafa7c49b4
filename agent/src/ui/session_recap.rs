//! The end of a conversation, shown when it is resumed.

use base::text::{count, printable};

use super::markdown::{DIM, MarkdownPainter, RESET};
use super::wrap::{cut_columns, wrapped};

/// Number of turns shown.
const TURNS: usize = 2;
/// Maximum number of lines of a user's message, and of each answer but the last.
const LINES: usize = 8;
/// Maximum number of lines of the last answer.
const LAST_LINES: usize = 40;
/// Maximum number of calls shown of a turn.
const CALLS: usize = 4;

/// One turn of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PastTurn {
    /// The user's message.
    pub asked: String,
    /// The model's calls, one line each.
    pub calls: Vec<String>,
    /// The model's last text in the turn.
    pub answer: String,
}

/// Renders the last turns for a terminal; empty if there are none.
pub(crate) fn recap(turns: &[PastTurn], width: Option<usize>, colours: bool) -> String {
    let earlier = turns.len().saturating_sub(TURNS);
    let dim = |text: &str| match colours {
        true => format!("{DIM}{text}{RESET}\n"),
        false => format!("{text}\n"),
    };
    let mut out = String::new();
    if earlier > 0 {
        out.push_str(&dim(&format!("… {}", count(earlier, "earlier turn"))));
    }
    for (index, turn) in turns.iter().enumerate().skip(earlier) {
        let asked = wrapped(&printable(turn.asked.trim()), width, "> ");
        out.push_str(&first_lines(&asked, LINES));
        let left_out = turn.calls.len().saturating_sub(CALLS);
        if left_out > 0 {
            out.push_str(&dim(&format!("● … {}", count(left_out, "earlier call"))));
        }
        for call in &turn.calls[left_out..] {
            let line = format!("● {call}");
            out.push_str(&dim(&width.map_or(line.clone(), |width| cut_columns(&line, width))));
        }
        let most = if index + 1 == turns.len() { LAST_LINES } else { LINES };
        let mut painter = MarkdownPainter::new(colours);
        painter.wrap_at(width);
        let answer = painter.paint(&printable(turn.answer.trim())) + &painter.finish();
        out.push_str(&last_lines(&answer, most));
    }
    out
}

fn first_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: String = lines.iter().take(most).map(|line| format!("{line}\n")).collect();
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        out.push_str(&format!("  … {}\n", count(more, "more line")));
    }
    out
}

fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let earlier = lines.len().saturating_sub(most);
    let mut out = String::new();
    if earlier > 0 {
        out.push_str(&format!("… {}\n", count(earlier, "earlier line")));
    }
    lines[earlier..].iter().for_each(|line| out.push_str(&format!("{line}\n")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_turns_are_shown_and_the_others_are_counted() {
        let turn = |n: usize| PastTurn {
            asked: format!("ask {n}\nmore\u{1b}[2J"),
            calls: (0..n * 2).map(|at| format!("shell ls {at}")).collect(),
            answer: (0..n * 4).map(|at| format!("answer {at}\n")).collect(),
        };
        let turns: Vec<PastTurn> = [1, 3, 1].map(turn).to_vec();
        insta::assert_snapshot!(recap(&turns, Some(40), false), @r#"
        … 1 earlier turn
        > ask 3
        > more^[[2J
        ● … 2 earlier calls
        ● shell ls 2
        ● shell ls 3
        ● shell ls 4
        ● shell ls 5
        … 4 earlier lines
        answer 4
        answer 5
        answer 6
        answer 7
        answer 8
        answer 9
        answer 10
        answer 11
        > ask 1
        > more^[[2J
        ● shell ls 0
        ● shell ls 1
        answer 0
        answer 1
        answer 2
        answer 3
        "#);
        assert_eq!(recap(&[], None, true), "");
    }
}
