//! Facts extracted from the text of a task: the files and command lines that it names, and whether
//! it asks for a change.

/// Words that ask for a change.
const CHANGE_WORDS: &[&str] = &[
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
/// Words that refer to something broken.
const REPAIR_WORDS: &[&str] =
    &["bug", "correct", "fail", "fails", "failing", "fix", "mend", "mistake", "pass", "repair"];
/// Words that refer to a program's output.
const OUTPUT_WORDS: &[&str] = &["output", "outputs", "print", "prints", "result", "run"];
/// Words that ask for a number to be determined.
const COUNT_WORDS: &[&str] =
    &["average", "count", "largest", "longest", "many", "number", "smallest", "sum", "total"];
/// Words that refer to command-line arguments.
const OPTION_WORDS: &[&str] = &["argument", "arguments", "flag", "flags", "option", "options"];
/// Words that ask for a rename.
const RENAME_WORDS: &[&str] = &["called", "rename", "renamed"];
/// Words that ask for an addition.
const ADD_WORDS: &[&str] =
    &["add", "append", "extend", "implement", "insert", "introduce", "write"];
/// Words that ask for a replacement.
const REPLACE_WORDS: &[&str] =
    &["convert", "exchange", "port", "replace", "rewrite", "translate", "turn"];
/// File extensions. `sys.argv` and `example.com` are not files.
const EXTENSIONS: &[&str] = &[
    "bash", "bat", "c", "cc", "cfg", "clj", "cmake", "conf", "cpp", "cs", "css", "csv", "dart",
    "dat", "diff", "env", "erl", "ex", "exs", "go", "gradle", "graphql", "h", "hpp", "hs", "html",
    "ini", "ipynb", "java", "jl", "js", "json", "jsonl", "jsx", "kt", "less", "lisp", "lock",
    "log", "lua", "m", "md", "mjs", "ml", "mk", "nix", "out", "patch", "php", "pl", "proto", "ps1",
    "py", "pyi", "r", "rb", "rs", "rst", "scala", "scm", "scss", "sh", "sql", "svelte", "svg",
    "swift", "tex", "tf", "toml", "ts", "tsv", "tsx", "txt", "vue", "xml", "yaml", "yml", "zig",
    "zsh",
];
/// Products whose name looks like a file name.
const PRODUCTS: &[&str] = &[
    "angular.js",
    "backbone.js",
    "d3.js",
    "ember.js",
    "express.js",
    "next.js",
    "node.js",
    "nuxt.js",
    "react.js",
    "three.js",
    "vue.js",
];
/// The first words of command lines.
const PROGRAMS: &[&str] =
    &["bash", "cargo", "go", "make", "node", "npm", "pytest", "python", "python3", "ruby", "sh"];

/// The facts about a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskFacts {
    /// The files that it names, in order.
    pub files: Vec<String>,
    /// The command lines in backticks.
    pub commands: Vec<String>,
    words: Vec<String>,
}

impl TaskFacts {
    /// Extracts the facts from a text.
    pub(crate) fn read(text: &str) -> TaskFacts {
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
        TaskFacts { files, commands: quoted.filter(is_command).map(str::to_owned).collect(), words }
    }

    fn has_word(&self, list: &[&str]) -> bool {
        self.words.iter().any(|word| list.contains(&word.as_str()))
    }

    /// Whether the task asks for a change.
    pub(crate) fn asks_for_change(&self) -> bool {
        self.has_word(CHANGE_WORDS)
    }

    /// Whether the task says that something is broken.
    pub(crate) fn asks_for_repair(&self) -> bool {
        self.has_word(REPAIR_WORDS)
    }

    /// Whether the task asks for an addition and not for a replacement.
    pub(crate) fn asks_for_addition(&self) -> bool {
        self.has_word(ADD_WORDS) && !self.has_word(REPLACE_WORDS)
    }

    /// Whether the task refers to a program's output.
    pub(crate) fn mentions_output(&self) -> bool {
        self.has_word(OUTPUT_WORDS)
    }

    /// Whether the task refers to command-line arguments.
    pub(crate) fn mentions_options(&self) -> bool {
        self.has_word(OPTION_WORDS)
    }

    /// Whether something must be counted or calculated.
    pub(crate) fn asks_for_count(&self) -> bool {
        self.has_word(COUNT_WORDS)
    }

    /// Returns the tips for this task.
    pub(crate) fn tips(&self) -> Vec<&'static str> {
        let names_extension =
            |extension: &str| self.files.iter().any(|name| name.ends_with(extension));
        let all = [
            (names_extension(".sh"), "A shell script gets its arguments as $1, $2 and so on."),
            (
                names_extension(".py") && self.mentions_options(),
                "In Python, let argparse read options: parser.add_argument('--size', default=...) \
                 takes a value, action='store_true' takes none.",
            ),
            (
                names_extension(".json"),
                "A .json file holds only JSON: keys and texts in quotes; 5, true and false without.",
            ),
            (
                self.has_word(RENAME_WORDS),
                "To rename something everywhere, let shell do it: sed -i 's/old/new/g' a.py b.py",
            ),
            (
                self.asks_for_count(),
                "Do not count or calculate yourself: let shell do it (grep -c, wc -l, awk) and \
                 write its result with >.",
            ),
            (
                self.mentions_output() && !self.asks_for_repair(),
                "To keep what a program prints, run it with shell and write > and the file behind it.",
            ),
        ];
        all.into_iter().filter_map(|(applies, tip)| applies.then_some(tip)).collect()
    }
}

/// Returns the relative file name in a word, such as `a.py` or `docs/b.md`, also in quotes or
/// before a comma.
pub(crate) fn file_name(word: &str) -> Option<&str> {
    let name = word.trim_matches(|c: char| !c.is_alphanumeric() && !"./~_-".contains(c));
    let name = name.trim_end_matches(|c: char| !c.is_alphanumeric());
    let name = name.strip_prefix("./").unwrap_or(name);
    let (stem, extension) = name.rsplit_once('.')?;
    let is_allowed = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    let is_relative = stem.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
        && !name.split('/').any(|part| part == "..");
    let has_extension = EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str());
    let is_name = has_extension && is_relative && stem.chars().all(is_allowed);
    (is_name && !PRODUCTS.contains(&name.to_ascii_lowercase().as_str())).then_some(name)
}

/// Whether the name is that of a test file.
pub(crate) fn is_test(name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    base.split(['_', '-', '.']).any(|part| part == "test" || part == "tests" || part == "spec")
}

/// Whether the name is that of a data file, which is usually read rather than written.
pub(crate) fn is_data(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension).unwrap_or_default();
    ["csv", "dat", "json", "log", "tsv", "txt", "xml", "yaml", "yml"].contains(&extension)
}

/// Whether the name is that of a document for people.
pub(crate) fn is_prose(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension).unwrap_or_default();
    ["html", "md", "rst", "tex", "txt"].contains(&extension)
}

/// Returns the program that runs a file, by its extension.
pub(crate) fn runner(name: &str) -> Option<&'static str> {
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
    fn versions_and_abbreviations_are_not_file_names() {
        let names = |text: &'static str| text.split_whitespace().find_map(file_name);
        assert_eq!(names("from 1.4 to 2.1. See e.g. this, i.e. nothing."), None);
        assert_eq!(names("put it into (docs/a.md),"), Some("docs/a.md"));
        assert_eq!(names("into `./a.py`: now"), Some("a.py"));
        assert_eq!(names("use Node.js, sys.argv and os.path of example.com"), None);
        assert_eq!(names("/work/calc.py ~/b.py ../c.py x/../d.py"), None);
    }

    #[test]
    fn files_commands_and_the_wish_for_a_change_are_extracted() {
        let task =
            TaskFacts::read("test_ab.py fails (`python3 test_ab.py`, with `None`): mend ab.py.");
        assert_eq!(task.files, ["test_ab.py", "ab.py"]);
        assert_eq!(task.commands, ["python3 test_ab.py"]);
        assert!(
            task.asks_for_change()
                && task.asks_for_repair()
                && !task.mentions_output()
                && !task.asks_for_addition()
        );
        assert!(TaskFacts::read("Add f to a.py.").asks_for_addition());
        assert!(!TaskFacts::read("Rewrite a.py: add a server.").asks_for_addition());
        let question = TaskFacts::read("What does a.py do?");
        assert!(!question.asks_for_change() && !question.asks_for_repair());
        assert!(is_test("src/test_a.py") && is_test("a.test.js") && !is_test("latest.py"));
    }
}
