//! What a small model is told: little, in plain words, one step at a time. Worded and measured on
//! the tasks of `benches/local-model/tuning.py`.

use std::path::Path;

use super::project;

/// Bytes of the project's own instructions that a small model can bear in mind.
const INSTRUCTIONS: usize = 2_000;

const AGENT: &str = "\
You are a coding agent. You do the task of the user by calling tools, one call in each reply.

Rules:
1. The files are shown in the first message. Read a file only if it is not shown.
2. Paths are relative, for example src/main.py.
3. To change or create a file, call write_file with the whole new content of the file. Keep every \
line that the task does not change.
4. To run a command, call shell. Run a script or a test only if the task asks for it or a test \
exists.
5. If a result is an error, find the cause and correct it. Do not repeat the same call.
6. When everything that the task asks for is done, call answer. Do nothing that the task does not \
ask for.";

/// The system prompt.
pub fn system(cwd: &Path) -> String {
    // Without the directory: a small model that knows it writes absolute paths, and wrong ones. And
    // what is the same everywhere is read once for all repositories.
    let mut parts = vec![AGENT.to_owned()];
    parts.extend(project::instructions(cwd, INSTRUCTIONS));
    parts.join("\n\n")
}
