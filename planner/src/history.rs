//! `planner_history.txt`: one line per event, some followed by the lines of a summary.

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// The refinement of the requirements started.
    Refining,
    /// The user approved the requirements with this hash.
    Approved(String),
    /// The commit that the work is based on.
    Head(String),
    /// The implementation started; with a summary of the requirements in a few lines.
    Started(Vec<String>),
    /// An interrupted step is resumed.
    Recovering,
    /// The user skipped a step.
    Skipped,
    /// Requirements and todo were archived under these names.
    Completed(String, String),
    /// A commit with this subject is about to be made.
    Committing(String),
    /// The user rejected the commit; all files are unchanged.
    NotCommitted,
    /// A line of another program or of an earlier version.
    Other(String),
}

/// An event and its time, `YYYY-MM-DD HH:MM:SS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryLine {
    /// The local time.
    pub time: String,
    /// The event.
    pub what: HistoryEvent,
}

impl HistoryLine {
    /// Returns the text of the line, including its newline. Texts are joined to one line each.
    pub fn text(&self) -> String {
        let single_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = match &self.what {
            HistoryEvent::Refining => "REFINING REQUIREMENTS (new_requirements.md)".to_owned(),
            HistoryEvent::Approved(hash) => {
                format!("APPROVED REQUIREMENTS ({})", single_line(hash))
            }
            HistoryEvent::Head(commit) => format!("GIT HEAD ({})", single_line(commit)),
            HistoryEvent::Started(_) => "START IMPLEMENTING (current_requirements.md)".to_owned(),
            HistoryEvent::Recovering => "ATTEMPTING RECOVERY".to_owned(),
            HistoryEvent::Skipped => "USER SKIPPED RECOVERY".to_owned(),
            HistoryEvent::Completed(requirements, todo) => {
                format!(
                    "COMPLETED REQUIREMENTS ({}, {})",
                    single_line(requirements),
                    single_line(todo)
                )
            }
            HistoryEvent::Committing(subject) => format!("GIT COMMIT ({})", single_line(subject)),
            HistoryEvent::NotCommitted => "USER SKIPPED COMMIT".to_owned(),
            HistoryEvent::Other(text) => single_line(text),
        };
        let mut text = format!("{} - {text}\n", self.time);
        if let HistoryEvent::Started(summary) = &self.what {
            text.push_str("<<\n");
            for line in summary {
                text.push_str(&format!("  {}\n", single_line(line)));
            }
            text.push_str(">>\n");
        }
        text
    }
}

/// Parses a history; unknown lines are kept as [`HistoryEvent::Other`].
pub fn read(text: &str) -> Vec<HistoryLine> {
    let mut lines = Vec::new();
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        let Some((time, text)) = split_time(line) else { continue };
        let mut what = parse_event(text);
        if let HistoryEvent::Started(summary) = &mut what
            && rest.next_if_eq(&"<<").is_some()
        {
            while let Some(line) = rest.next_if(|line| *line != ">>" && split_time(line).is_none())
            {
                summary.push(line.trim().to_owned());
            }
            rest.next_if_eq(&">>");
        }
        lines.push(HistoryLine { time: time.to_owned(), what });
    }
    lines
}

/// Splits a line into time and text; recovery lines may have spaces instead of a dash between them.
fn split_time(line: &str) -> Option<(&str, &str)> {
    let (time, rest) = line.split_at_checked("2026-01-01 00:00:00".len())?;
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    (shape == "0000-00-00 00:00:00").then(|| (time, rest.trim_start_matches([' ', '-']).trim_end()))
}

fn parse_event(text: &str) -> HistoryEvent {
    let argument_of = |name: &str| text.strip_prefix(name)?.strip_prefix(" (")?.strip_suffix(')');
    if argument_of("REFINING REQUIREMENTS").is_some() {
        return HistoryEvent::Refining;
    }
    if argument_of("START IMPLEMENTING").is_some() {
        return HistoryEvent::Started(Vec::new());
    }
    let known = [
        ("ATTEMPTING RECOVERY", HistoryEvent::Recovering),
        ("USER SKIPPED RECOVERY", HistoryEvent::Skipped),
        ("USER SKIPPED COMMIT", HistoryEvent::NotCommitted),
    ];
    if let Some((_, what)) = known.into_iter().find(|(name, _)| text == *name) {
        return what;
    }
    let completed = |inner: &str| {
        let (requirements, todo) = inner.split_once(", ")?;
        Some(HistoryEvent::Completed(requirements.to_owned(), todo.to_owned()))
    };
    argument_of("APPROVED REQUIREMENTS")
        .map(|hash| HistoryEvent::Approved(hash.to_owned()))
        .or_else(|| argument_of("GIT HEAD").map(|commit| HistoryEvent::Head(commit.to_owned())))
        .or_else(|| {
            argument_of("GIT COMMIT").map(|subject| HistoryEvent::Committing(subject.to_owned()))
        })
        .or_else(|| argument_of("COMPLETED REQUIREMENTS").and_then(completed))
        .unwrap_or_else(|| HistoryEvent::Other(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: &str = "2026-11-22 14:05:00";

    fn line(what: HistoryEvent) -> HistoryLine {
        HistoryLine { time: TIME.to_owned(), what }
    }

    #[test]
    fn each_event_is_written_as_its_line() {
        for (what, text) in [
            (HistoryEvent::Refining, "REFINING REQUIREMENTS (new_requirements.md)\n"),
            (HistoryEvent::Approved("abc".into()), "APPROVED REQUIREMENTS (abc)\n"),
            (HistoryEvent::Head("1234".into()), "GIT HEAD (1234)\n"),
            (
                HistoryEvent::Started(vec!["do\na".into()]),
                "START IMPLEMENTING (current_requirements.md)\n<<\n  do a\n>>\n",
            ),
            (HistoryEvent::Recovering, "ATTEMPTING RECOVERY\n"),
            (HistoryEvent::Skipped, "USER SKIPPED RECOVERY\n"),
            (
                HistoryEvent::Completed("a.md".into(), "b.md".into()),
                "COMPLETED REQUIREMENTS (a.md, b.md)\n",
            ),
            (HistoryEvent::Committing("Add (a) door".into()), "GIT COMMIT (Add (a) door)\n"),
            (HistoryEvent::NotCommitted, "USER SKIPPED COMMIT\n"),
        ] {
            assert_eq!(line(what).text(), format!("{TIME} - {text}"));
        }
    }

    #[test]
    fn lines_of_other_programs_are_kept() {
        let text = format!(
            "{TIME}   ATTEMPTING RECOVERY\nnoise\n{TIME} - SOMETHING (new)\n{TIME} - START IMPLEMENTING (x)\n<<\n  a\n  b\n{TIME} - GIT COMMIT (s)\n"
        );
        let what: Vec<HistoryEvent> = read(&text).into_iter().map(|line| line.what).collect();
        assert_eq!(
            what,
            [
                HistoryEvent::Recovering,
                HistoryEvent::Other("SOMETHING (new)".into()),
                HistoryEvent::Started(vec!["a".into(), "b".into()]),
                HistoryEvent::Committing("s".into()),
            ]
        );
    }

    fn words() -> impl Strategy<Value = String> {
        "[a-zA-Z()é🙂<>]{1,6}( [a-z]{1,3}){0,2}"
            .prop_filter("a mark of its own", |it| it != "<<" && it != ">>")
    }

    proptest! {
        #[test]
        fn a_history_round_trips(all in proptest::collection::vec(prop_oneof![
            words().prop_map(HistoryEvent::Approved),
            words().prop_map(HistoryEvent::Committing),
            proptest::collection::vec(words(), 0..4).prop_map(HistoryEvent::Started),
            (words(), words()).prop_map(|(a, b)| HistoryEvent::Completed(a, b)),
            Just(HistoryEvent::Recovering),
        ], 0..6)) {
            let lines: Vec<HistoryLine> = all.into_iter().map(line).collect();
            let text: String = lines.iter().map(HistoryLine::text).collect();
            prop_assert_eq!(read(&text), lines);
        }
    }
}
