//! What the words of a task say by their form: which files and command lines they name, and whether
//! something is to be changed.

/// Words by which a task asks for a change.
const CHANGES: &[&str] = &[
    "add",
    "change",
    "convert",
    "correct",
    "create",
    "delete",
    "extend",
    "fix",
    "implement",
    "insert",
    "introduce",
    "make",
    "mend",
    "move",
    "put",
    "remove",
    "rename",
    "repair",
    "replace",
    "save",
    "set",
    "store",
    "teach",
    "translate",
    "update",
    "write",
];
/// Words by which a task speaks of something broken.
const REPAIRS: &[&str] =
    &["bug", "correct", "fail", "fails", "failing", "fix", "mend", "mistake", "pass", "repair"];
/// Words by which a task speaks of what a program prints.
const OUTPUTS: &[&str] = &["output", "outputs", "print", "prints", "result", "run"];
/// Words by which a task asks for a number that has to be found out.
const COUNTS: &[&str] =
    &["average", "count", "largest", "longest", "many", "number", "smallest", "sum", "total"];
/// Words by which a task speaks of what a program is given on its command line.
const OPTIONS: &[&str] = &["argument", "arguments", "flag", "flags", "option", "options"];
/// Words by which a task gives something another name.
const RENAMES: &[&str] = &["called", "rename", "renamed"];
/// How a command line begins.
const PROGRAMS: &[&str] =
    &["bash", "cargo", "go", "make", "node", "npm", "pytest", "python", "python3", "ruby", "sh"];

/// A task, read for what a machine can see in it.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// The files that it names, in its order.
    pub files: Vec<String>,
    /// The command lines that stand in it between backticks.
    pub commands: Vec<String>,
    words: Vec<String>,
}

impl Task {
    /// Reads a task.
    pub fn read(text: &str) -> Task {
        let mut files: Vec<String> = Vec::new();
        for name in text.split_whitespace().filter_map(file_name) {
            if !files.iter().any(|known| known == name) {
                files.push(name.to_owned());
            }
        }
        let quoted = text.split('`').skip(1).step_by(2);
        let is_command = |text: &&str| {
            let mut words = text.split_whitespace();
            let first = words.next().unwrap_or_default();
            words.next().is_some() && (PROGRAMS.contains(&first) || first.starts_with("./"))
        };
        let words: Vec<String> =
            text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
        Task { files, commands: quoted.filter(is_command).map(str::to_owned).collect(), words }
    }

    fn has(&self, list: &[&str]) -> bool {
        self.words.iter().any(|word| list.contains(&word.as_str()))
    }

    /// Whether it asks for a change.
    pub fn changes(&self) -> bool {
        self.has(CHANGES)
    }

    /// Whether something is broken.
    pub fn repairs(&self) -> bool {
        self.has(REPAIRS)
    }

    /// Whether it speaks of what a program prints.
    pub fn outputs(&self) -> bool {
        self.has(OUTPUTS)
    }

    /// Whether it speaks of what a program is given on its command line.
    pub fn options(&self) -> bool {
        self.has(OPTIONS)
    }

    /// Whether something has to be counted or calculated.
    pub fn counts(&self) -> bool {
        self.has(COUNTS)
    }

    /// What is good to know for it.
    pub fn tips(&self) -> Vec<&'static str> {
        let named = |ending: &str| self.files.iter().any(|name| name.ends_with(ending));
        let all = [
            (named(".sh"), "A shell script gets its arguments as $1, $2 and so on."),
            (
                named(".py") && self.options(),
                "In Python, let argparse read options: parser.add_argument('--size', default=...) \
                 takes a value, action='store_true' takes none.",
            ),
            (
                named(".json"),
                "A .json file holds only JSON: keys and texts in quotes; 5, true and false without.",
            ),
            (
                self.has(RENAMES),
                "To rename something everywhere, let shell do it: sed -i 's/old/new/g' a.py b.py",
            ),
            (
                self.counts(),
                "Do not count or calculate yourself: let shell do it (grep -c, wc -l, awk) and \
                 write its result with >.",
            ),
            (
                self.outputs() && !self.repairs(),
                "To keep what a program prints, run it with shell and write > and the file behind it.",
            ),
        ];
        all.into_iter().filter_map(|(fits, tip)| fits.then_some(tip)).collect()
    }
}

/// A word that is a file's name: `a.py`, `docs/b.md`, also in quotes or before a comma.
pub fn file_name(word: &str) -> Option<&str> {
    let name = word.trim_matches(|c: char| !c.is_alphanumeric());
    let (stem, ending) = name.rsplit_once('.')?;
    let fits = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    let is_ending = (1..=5).contains(&ending.len())
        && ending.starts_with(|c: char| c.is_ascii_alphabetic())
        && ending.chars().all(|c| c.is_ascii_alphanumeric());
    (stem.len() > 1 && is_ending && stem.chars().all(fits)).then_some(name)
}

/// Whether a file's name says that it is a test.
pub fn is_test(name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    base.split(['_', '-', '.']).any(|part| part == "test" || part == "tests" || part == "spec")
}

/// Whether a file's name says that it holds data, which is read rather than written.
pub fn is_data(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
    ["csv", "dat", "json", "log", "tsv", "txt", "xml", "yaml", "yml"].contains(&ending)
}

/// Whether a file's name says that it is a program that can be run.
pub fn runner(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "py" => Some("python3"),
        "sh" => Some("sh"),
        "js" | "mjs" => Some("node"),
        "rb" => Some("ruby"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_abbreviations_name_no_file() {
        let names = |text: &'static str| text.split_whitespace().find_map(file_name);
        assert_eq!(names("from 1.4 to 2.1. See e.g. this, i.e. nothing."), None);
        assert_eq!(names("put it into (docs/a.md),"), Some("docs/a.md"));
    }

    #[test]
    fn a_task_names_files_and_commands_and_says_whether_it_changes_something() {
        let task = Task::read("test_ab.py fails (`python3 test_ab.py`, with `None`): mend ab.py.");
        assert_eq!(task.files, ["test_ab.py", "ab.py"]);
        assert_eq!(task.commands, ["python3 test_ab.py"]);
        assert!(task.changes() && task.repairs() && !task.outputs());
        let question = Task::read("What does a.py do?");
        assert!(!question.changes() && !question.repairs());
        assert!(is_test("src/test_a.py") && is_test("a.test.js") && !is_test("latest.py"));
    }
}
