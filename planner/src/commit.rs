//! Commit messages: parses a model's answer, or derives a message from the task.

/// The maximum number of characters in a line.
const COLUMNS: usize = 72;
/// The lines of a prompt that say how the message looks. Small models repeat them in their answers.
pub const INSTRUCTIONS: &str = "\
The first line is the subject: imperative, at most 72 characters, no full stop.
Then an empty line, then a short body that says why, wrapped at 72 columns.
Answer with the commit message and nothing else: no quotes, no code fences, no trailers.";
/// The maximum number of characters in a message.
const MAX_CHARS: usize = 4000;

/// Parses an answer as a commit message; the error says why it is invalid.
pub fn read(answer: &str) -> Result<String, String> {
    if answer.chars().count() > MAX_CHARS {
        return Err(format!("its answer has more than {MAX_CHARS} characters"));
    }
    let answer = strip_tags(answer);
    let lines: Vec<&str> = answer
        .trim()
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.starts_with("```") && !is_trailer(line) && !is_instruction(line))
        .skip_while(|line| line.is_empty())
        .collect();
    let Some((first, rest)) = lines.split_first() else {
        return Err("its answer is empty".to_owned());
    };
    let first = strip_decoration(first).trim_end_matches('.');
    let words = first.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
    if words.count() < 2 || first.starts_with(['{', '<', '[']) {
        return Err("its answer is not a commit message".to_owned());
    }
    let (subject, more) = subject(first);
    let body = wrap(&format!("{more}\n{}", rest.join("\n")));
    Ok(if body.is_empty() { subject } else { format!("{subject}\n\n{body}") })
}

/// Returns a line without heading marks, and without quotes, asterisks or backticks around the
/// whole line.
fn strip_decoration(line: &str) -> &str {
    let mut line = line.trim().trim_start_matches('#').trim();
    for mark in ["**", "*", "\"", "`"] {
        let inner = line.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
        if let Some(inner) = inner.filter(|inner| !inner.contains(mark)) {
            line = inner.trim();
        }
    }
    line
}

/// Returns the answer without the marks `{{COMMIT_SUMMARY}}` and `{{COMMIT_DESCRIPTION}}`, if it
/// has them; text before the first mark is dropped.
fn strip_tags(answer: &str) -> String {
    let (summary, description) = ("{{COMMIT_SUMMARY}}", "{{COMMIT_DESCRIPTION}}");
    let Some((_, rest)) = answer.split_once(summary) else { return answer.to_owned() };
    let (first, more) = rest.split_once(description).unwrap_or((rest, ""));
    let until_end_tag = |text: &str, mark: &str| {
        let end = format!("{{{{/{}", &mark[2..]);
        text.split_once(&end).map_or(text, |(before, _)| before).trim().to_owned()
    };
    format!("{}\n\n{}", until_end_tag(first, summary), until_end_tag(more, description))
}

/// Returns whether a line repeats the prompt.
fn is_instruction(line: &str) -> bool {
    INSTRUCTIONS.lines().any(|instruction| instruction == line.trim())
}

/// Returns whether a line is a trailer, which models may not write.
fn is_trailer(line: &str) -> bool {
    let names = ["co-authored-by:", "signed-off-by:", "task:", "session:", "requirement:"];
    let line = line.trim_start().to_lowercase();
    names.iter().any(|name| line.starts_with(name))
}

/// Returns a line that fits a subject, and the whole line for the body if it was shortened.
fn subject(line: &str) -> (String, String) {
    if line.chars().count() <= COLUMNS {
        return (line.to_owned(), String::new());
    }
    let mut shortened = String::new();
    for word in line.split_whitespace() {
        if shortened.chars().count() + word.chars().count() + 2 > COLUMNS {
            break;
        }
        if !shortened.is_empty() {
            shortened.push(' ');
        }
        shortened.push_str(word);
    }
    if shortened.is_empty() {
        shortened = line.chars().take(COLUMNS - 1).collect();
    }
    (format!("{shortened}…"), line.to_owned())
}

/// Wraps paragraphs and list items.
fn wrap(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in text.trim().lines() {
        let item = line.trim_start().starts_with(['-', '*']) || line.starts_with("  ");
        let joins = !item && !line.is_empty() && out.last().is_some_and(|last| !last.is_empty());
        let joined = match joins {
            true => format!("{} {line}", out.pop().unwrap_or_default()),
            false => line.to_owned(),
        };
        out.extend(break_line(&joined));
    }
    out.join("\n")
}

fn break_line(line: &str) -> Vec<String> {
    let indent = if line.trim_start().starts_with(['-', '*']) { "  " } else { "" };
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if !last.trim().is_empty() && last.chars().count() + word.chars().count() + 1 > COLUMNS {
            lines.push(format!("{indent}{word}"));
        } else {
            if !last.trim().is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Creates a message from the task alone.
pub fn from_task(task: &str) -> String {
    let mut lines = task.trim().lines();
    let first = lines.next().unwrap_or("Work of an agent").trim().trim_end_matches('.');
    let mut chars = first.chars();
    let first: String =
        chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect();
    let (subject, more) = subject(&first);
    let rest: String = lines.take(40).collect::<Vec<_>>().join("\n");
    let body = wrap(&head(format!("{more}\n{rest}").trim()));
    if body.is_empty() { subject } else { format!("{subject}\n\n{body}") }
}

fn head(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_split_into_subject_and_wrapped_body() {
        let body = "why ".repeat(40);
        let text =
            read(&format!("```\n\"Add a parser.\"\n\n{body}\nCo-authored-by: x\n```")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1]), ("Add a parser", ""));
        assert!(lines.iter().all(|line| line.chars().count() <= 72), "{text}");
        assert!(!text.contains("Co-authored-by"));
        for (answer, message) in [
            ("`a.py`: set the price", "`a.py`: set the price"),
            ("`a.py` calls `b.py`", "`a.py` calls `b.py`"),
            ("## **Mend it now.**", "Mend it now"),
            ("`Mend it now`", "Mend it now"),
            ("{{COMMIT_SUMMARY}}Mend it now{{/COMMIT_SUMMARY}} ok", "Mend it now"),
            (
                "{{COMMIT_SUMMARY}}\nMend it now\n{{COMMIT_DESCRIPTION}}\nIt broke.\n",
                "Mend it now\n\nIt broke.",
            ),
            (
                "Sure:\n{{COMMIT_SUMMARY}} Mend it now\n{{COMMIT_DESCRIPTION}} It broke. {{/COMMIT_DESCRIPTION}} Bye",
                "Mend it now\n\nIt broke.",
            ),
        ] {
            assert_eq!(read(answer).unwrap(), message);
        }
    }

    #[test]
    fn repeated_lines_of_the_prompt_are_left_out() {
        assert_eq!(read(&format!("Add the notes\n\n{INSTRUCTIONS}\n")).unwrap(), "Add the notes");
        assert_eq!(
            read(&format!("{INSTRUCTIONS}\n\nAdd the notes\n\nWhy.")).unwrap(),
            "Add the notes\n\nWhy."
        );
        assert!(read(INSTRUCTIONS).is_err());
        assert_eq!(INSTRUCTIONS.matches(&COLUMNS.to_string()).count(), 2);
    }

    #[test]
    fn a_long_subject_is_shortened_and_repeated_in_the_body() {
        let long = format!("Add {}", "words and ".repeat(10));
        let text = read(&long).unwrap();
        assert!(text.lines().next().unwrap().chars().count() <= 72, "{text}");
        assert!(text.contains(long.trim_end().split(' ').next_back().unwrap()));
    }

    #[test]
    fn an_invalid_message_is_rejected() {
        for bad in ["", " \n ", "ok", "{\"a\": 1}", "```\n```", "12345", &"word ".repeat(2000)] {
            assert!(read(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_plain_message_is_made_from_the_task() {
        assert_eq!(from_task("fix the login."), "Fix the login");
        assert!(from_task(&"x".repeat(300)).lines().next().unwrap().chars().count() <= 72);
        assert_eq!(from_task("a b\nmore text"), "A b\n\nmore text");
    }
}
