//! Tasks as TOML: one `[[task]]` table each.

use serde::Deserialize;
use toml::Spanned;

use super::{Task, TaskFileError, finish};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    task: Vec<Spanned<TaskTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskTable {
    id: Option<String>,
    text: String,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    checks: Vec<String>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    requirements: Vec<String>,
    agent: Option<String>,
    persona: Option<String>,
    base: Option<String>,
    on: Option<String>,
    #[serde(default)]
    done: bool,
}

/// Parses `[[task]]` tables; every error has its line.
pub fn from_toml(text: &str) -> Result<Vec<Task>, Vec<TaskFileError>> {
    let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let file: File = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(1, |span| line(span.start));
        vec![TaskFileError::new(offset, error.message().trim_end_matches('.'))]
    })?;
    let task = |row: Spanned<TaskTable>| {
        let line = line(row.span().start);
        let row = row.into_inner();
        Task {
            id: row.id.unwrap_or_default(),
            text: row.text.trim().to_owned(),
            after: row.after,
            checks: row.checks,
            paths: row.paths,
            requirements: row.requirements,
            agent: row.agent,
            persona: row.persona,
            base: row.base,
            on: row.on,
            done: row.done,
            line,
        }
    };
    finish(file.task.into_iter().map(task).collect())
}

/// Returns TOML that [`from_toml`] parses to the same tasks.
pub fn to_toml(tasks: &[Task]) -> String {
    let mut text = String::new();
    for task in tasks {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str("[[task]]\n");
        let mut key = |name: &str, value: toml::Value| {
            text.push_str(&format!("{name} = {value}\n"));
        };
        key("id", task.id.as_str().into());
        key("text", task.text.as_str().into());
        let lists = [
            ("after", &task.after),
            ("checks", &task.checks),
            ("paths", &task.paths),
            ("requirements", &task.requirements),
        ];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            key(name, list.clone().into());
        }
        let options = [
            ("agent", &task.agent),
            ("persona", &task.persona),
            ("base", &task.base),
            ("on", &task.on),
        ];
        for (name, value) in options {
            if let Some(value) = value {
                key(name, value.as_str().into());
            }
        }
        if task.done {
            key("done", true.into());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mistakes(text: &str) -> Vec<(usize, String)> {
        from_toml(text).unwrap_err().into_iter().map(|it| (it.line, it.what)).collect()
    }

    #[test]
    fn every_key_is_read() {
        let text = "[[task]]\nid = 'lexer'\ntext = 'write it'\nchecks = ['true']\n\n[[task]]\n\
                    text = 'b'\nafter = ['lexer']\npaths = ['src/**']\nrequirements = ['R1']\n\
                    agent = 'x'\npersona = 'p'\nbase = 'main'\n";
        let tasks = from_toml(text).unwrap();
        assert_eq!((tasks[0].id.as_str(), tasks[0].line), ("lexer", 1));
        let second = &tasks[1];
        assert_eq!(
            (second.id.as_str(), second.line, second.after.as_slice()),
            ("t2", 6, &["lexer".to_owned()][..])
        );
        assert_eq!((second.agent.as_deref(), second.base.as_deref()), (Some("x"), Some("main")));
    }

    #[test]
    fn each_error_has_its_line() {
        let (line, what) = mistakes("[[task]]\ntext = 'a'\n\n[[task]]\ntxt = 'b'\n").remove(0);
        assert_eq!(line, 5, "{what}");
        assert!(what.contains("txt"), "{what}");
        assert_eq!(mistakes("[[task]]\ntext = 'a'\nid = \n")[0].0, 3);
        let graph = "[[task]]\nid='a'\ntext='x'\nafter=['b']\n[[task]]\nid='b'\ntext='x'\nafter=['a','c']\n[[task]]\nid='a'\ntext=' '\n";
        let found = mistakes(graph);
        let lines: Vec<usize> = found.iter().map(|it| it.0).collect();
        assert_eq!(lines, [1, 5, 9, 9], "{found:?}");
    }

    fn word() -> impl Strategy<Value = String> {
        "[a-z0-9\"'\\\\=#\\[\\]é ]{0,8}".prop_map(|word| word.trim().to_owned())
    }

    prop_compose! {
        fn task()(
            text in "[a-z\n\"'\\\\#=é🙂]{0,12}",
            checks in proptest::collection::vec(word(), 0..3),
            paths in proptest::collection::vec("[a-z*/]{1,6}", 0..3),
            base in proptest::option::of(word()),
            done: bool,
        ) -> Task {
            let text = format!("x{text}y");
            Task { text, checks, paths, base, done, ..Task::default() }
        }
    }

    proptest! {
        /// Parsing the output returns the same tasks.
        #[test]
        fn tasks_round_trip(tasks in proptest::collection::vec(task(), 0..5), links: u32) {
            let mut tasks = finish(tasks).unwrap();
            for at in 1..tasks.len() {
                if links >> at & 1 == 1 {
                    tasks[at].after = vec![tasks[at - 1].id.clone()];
                }
            }
            let mut read = from_toml(&to_toml(&tasks)).unwrap();
            read.iter_mut().for_each(|task| task.line = 0);
            prop_assert_eq!(read, tasks);
        }

        /// No input makes it panic, and every error has a line of the text.
        #[test]
        fn any_text_is_read_or_refused(text in "(\\[\\[task\\]\\]\n|text *= *'[a-z]*'\n|after = \\['t[1-3]'\\]\n|[a-z=\\[\\]'\n]{0,6}){0,8}") {
            if let Err(mistakes) = from_toml(&text) {
                prop_assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    prop_assert!((1..=text.matches('\n').count() + 1).contains(&mistake.line));
                }
            }
        }
    }
}
