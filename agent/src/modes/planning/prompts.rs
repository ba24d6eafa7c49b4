//! The prompts of planning mode.

use planner::requirement::Requirement;
use planner::task::Task;

use super::converge::ConvergenceBasis;

/// System prompt of the model that refines requirements.
pub(crate) const ARCHITECT: &str = "\
You refine the requirements of a piece of work before anybody begins it. You are given what the \
user wrote, a report about the codebase, and the history of earlier work. You can read and search \
files; you cannot change any, and nothing is implemented yet.

How to refine
- Read the code that the wish touches. Say what is there already, and what stands in the way.
- Keep the user's meaning and, where they are clear, the user's words. Do not add wishes.
- One requirement is one thing whose truth can be checked in the result: name files, commands, \
inputs and outputs where they matter. Split what holds two things; say what is unclear as a \
requirement that settles it in the simplest way, marked with the word `assumed`.
- Requirements that contradict each other: keep both, and say so in the words of the later one.
- Ids that are given stay with their requirement. New ones follow on.

How to end
Call the tool `requirements` with the whole list as Markdown, one item each (`- R1: …`), most \
basic first, at most 40 items. Nothing else counts as an answer.";

/// Returns the prompt for refining.
pub(crate) fn refine(wish: &str, report: &str, history: &str) -> String {
    let mut text = format!("What the user wrote:\n\n{}\n\n", wish.trim());
    if !history.trim().is_empty() {
        text += &format!("Earlier work in this directory:\n\n{}\n\n", history.trim());
    }
    text + &format!("The codebase:\n\n{report}\n")
}

/// System prompt of the model that splits requirements into tasks.
pub(crate) const SPLITTER: &str = "\
You split approved requirements into tasks that several agents work on at the same time, each in a \
copy of the repository of its own, on a branch of its own. You can read and search files; you \
cannot change any, and nothing is implemented yet.

How to split
- As few tasks as make sense: requirements that change the same lines belong into one task.
- A task can be done and checked by itself. Its text says what is to be done and where; the words \
of its requirements come with it.
- `after` names the tasks whose result it needs. Tasks that touch the same files without needing \
each other name those files in `paths`: then they run one after the other.
- `checks` are commands that exist in this repository or that the task makes; a check that could \
never fail shows nothing.
- Every requirement is served by at least one task.

How to end
Call the tool `tasks` with all new tasks. Nothing else counts as an answer.";

/// Returns the prompt for splitting.
pub(crate) fn split(
    all: &[Requirement],
    open: &[&Requirement],
    there: &[Task],
    report: &str,
) -> String {
    let line = |it: &Requirement| format!("- {}: {}\n", it.id, it.text);
    let mut text = format!("The requirements:\n\n{}\n", all.iter().map(line).collect::<String>());
    if !there.is_empty() {
        let there = planner::task::to_toml(there);
        let open: Vec<&str> = open.iter().map(|it| it.id.as_str()).collect();
        text += &format!(
            "These tasks are there already and stay as they are:\n\n{there}\n\
             Give tasks for what none of them serves: {}.\n\n",
            open.join(", ")
        );
    }
    text + &format!("The codebase:\n\n{report}\n")
}

/// System prompt of the model that compares requirements with the code.
pub(crate) const EXAMINER: &str = "\
You compare the requirements of a plan with the code as it is now. Agents worked on the plan, and \
their work has landed. You can read and search files; you cannot change any, and you cannot run \
commands.

How to judge
- Judge every requirement, each once: `met`, `unmet`, or `unknown` where reading cannot tell.
- `met` needs evidence that you have read: a file and line, or a test and what it tests. A \
landed task is not evidence.
- `unmet` says what is missing. A requirement that is met in part is unmet.
- Do not add wishes, and do not plan improvements of what is met.

Tasks for what is unmet
- Each new task says what is missing and where, complete enough for an agent that sees only this \
and the requirements. Do not reuse the id of an existing task.
- `checks` are commands that exist in this repository or that the task makes.

How to end
Call the tool `findings` with all verdicts and the new tasks (none if everything is met). Nothing \
else counts as an answer.";

/// Returns the prompt for a comparison of requirements with the code.
pub(crate) fn converge(basis: &ConvergenceBasis, report: &str) -> String {
    let line = |it: &Requirement| format!("- {}: {}\n", it.id, it.text);
    let mut text = format!(
        "The requirements:\n\n{}\n",
        basis.requirements.iter().map(line).collect::<String>()
    );
    if !basis.tasks.is_empty() {
        let there = planner::task::to_toml(&basis.tasks);
        text += &format!("These tasks have landed:\n\n{there}\n");
    }
    if !basis.gaps.is_empty() {
        let line = |(id, reason): &(String, String)| format!("- {id}: {reason}\n");
        let gaps: String = basis.gaps.iter().map(line).collect();
        text += &format!("These requirements are measured to be unmet:\n\n{gaps}\n");
    }
    text + &format!("The codebase:\n\n{report}\n")
}

/// Returns the prompt for a summary of requirements, for the history.
pub(crate) fn summary(wanted: &str) -> String {
    format!(
        "Sum up these requirements for a log: at most 5 lines of at most 120 characters each, one \
         thing a line, no list marks, nothing else.\n\n{}\n",
        base::text::head(wanted, 20_000)
    )
}

/// Returns the lines of a summary from a model's text, or from the requirements without one.
pub(crate) fn summed_up(words: Option<&str>, requirements: &[Requirement]) -> Vec<String> {
    let lines: Vec<String> = words
        .unwrap_or_default()
        .lines()
        .map(|line| line.trim().trim_start_matches(['-', '*', ' ']).to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with("```"))
        .collect();
    let typed_lines = || requirements.iter().map(|it| format!("{}: {}", it.id, it.text)).collect();
    let lines = if lines.is_empty() { typed_lines() } else { lines };
    lines.into_iter().take(5).map(|line| line.chars().take(120).collect()).collect()
}

/// Returns the prompt for a commit message.
pub(crate) fn commit(wanted: &str, files: &[String]) -> String {
    format!(
        "Write the commit message for work that was done on these requirements.\n{}\n\n\
         The requirements:\n{}\n\nThe changed files:\n{}\n",
        planner::commit::INSTRUCTIONS,
        base::text::head(wanted, 8_000),
        base::text::head(&files.join("\n"), 8_000),
    )
}

/// Returns the first requirement, for the subject of a plain commit message.
pub(crate) fn plain(wanted: &str) -> String {
    let first = planner::requirement::read(wanted).ok().and_then(|all| all.into_iter().next());
    first.map_or_else(|| "Implement requirements".to_owned(), |it| it.text)
}

/// Formats the to-do list; a requirement that is met is ticked off.
pub(crate) fn todo(requirements: &[Requirement], is_met: impl Fn(&str) -> bool) -> String {
    let item = |it: &Requirement| {
        let mark = if is_met(&it.id) { 'x' } else { ' ' };
        format!("- [{mark}] {}: {}\n", it.id, it.text)
    };
    requirements.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_at_most_five_short_lines() {
        let requirements = planner::requirement::read("- a\n- b").unwrap();
        assert_eq!(summed_up(None, &requirements), ["R1: a", "R2: b"]);
        assert_eq!(summed_up(Some(" \n```\n"), &requirements).len(), 2);
        let long = format!("- {}\n", "x".repeat(300)).repeat(9);
        let lines = summed_up(Some(&long), &requirements);
        assert!(lines.len() == 5 && lines.iter().all(|line| line.len() == 120), "{lines:?}");
        assert_eq!(todo(&requirements, |id| id == "R2"), "- [ ] R1: a\n- [x] R2: b\n");
    }
}
