//! Prompts for small models: short, in plain words, one step at a time. The wording was measured on
//! the tasks of `benches/local-model/tuning.py`.

pub mod guide;
pub mod relevant;
pub mod syntax;
pub mod task;

use std::path::Path;

use super::project;

/// Maximum number of bytes of the project's instructions for a small model.
const INSTRUCTIONS: usize = 2_000;

const AGENT: &str = "\
You are a coding agent. You do the task of the user by calling tools, one call in each reply.

Rules:
1. The files are shown in the first message. Read a file only if it is not shown.
2. Write paths as they are listed, relative to the working directory.
3. To create a file, or to change a short one, call write_file with the whole file: all old lines \
that stay, and the new ones. To change a few lines of a file, call edit.
4. A file that is not listed does not exist. Create a script with write_file before you run it.
5. To fix a bug, first correct the wrong lines of the program, then run the test with shell. Do \
not write tests into the program.
6. If a result is an error, correct the cause. Do not repeat the same call.
7. Call answer only when every file and every step that the task names is done. Do nothing that \
the task does not ask for.";

/// Builds the system prompt. It starts with the text of a persona, if there is one.
pub(crate) fn system(cwd: &Path, persona: Option<&str>) -> String {
    // Without the working directory: a small model that knows it writes absolute paths, and wrong
    // ones. Also, a prompt that is the same everywhere is cached for all repositories.
    let mut parts: Vec<String> = persona.map(|text| text.trim().to_owned()).into_iter().collect();
    parts.push(AGENT.to_owned());
    parts.extend(project::instructions(cwd, INSTRUCTIONS));
    parts.join("\n\n")
}
