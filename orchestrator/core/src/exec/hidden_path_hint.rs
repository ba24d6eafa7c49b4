//! Explains failures of programs that did not find a file of the user: a sandbox does not show most
//! of the home directory.

use std::path::{Path, PathBuf};

use crate::sandbox::SandboxSpec;

/// Number of lines at the end of an output that are searched.
const MAX_LINES: usize = 200;

/// Returns which path of an output exists and is closed in the sandbox, and the configuration line
/// that opens it.
pub(crate) fn hidden_path_hint(spec: &SandboxSpec, output: &str) -> Option<String> {
    let is_separator = |c: char| c.is_whitespace() || "'\"`‘’“”,;()[]<>".contains(c);
    let lines = output.lines().rev().take(MAX_LINES);
    let mut words = lines.flat_map(|line| {
        // A path with whitespace is in quotes.
        let quoted = line.split(['\'', '"', '‘', '’', '`']).skip(1).step_by(2);
        quoted.chain(line.split(is_separator).map(|word| word.trim_end_matches([':', '.'])))
    });
    let path = words.find_map(|word| {
        let is_path = word.contains('/') && !word.contains("://");
        is_path.then(|| hidden(spec, &spec.directory.join(word))).flatten()
    })?;
    Some(hint(&path))
}

/// Says that a path is closed, and what opens it.
pub(crate) fn hint(path: &Path) -> String {
    let path = base::text::printable(&path.display().to_string());
    format!(
        "the sandbox does not show {path}; `[sandbox] read = [\"{path}\"]` in \
         ~/.config/g3/config.toml opens it"
    )
}

/// Returns the real path, if it exists and is closed in the sandbox.
pub(crate) fn hidden(spec: &SandboxSpec, path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    (!spec.may_read(&path)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_closed_paths_are_named() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        for name in ["work", "my data", "open"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let mut spec = SandboxSpec { confined: true, ..SandboxSpec::default() };
        spec.directory = root.join("work");
        spec.rules.write = vec![root.join("work")];
        spec.rules.read = vec![root.join("open"), "/usr".into()];
        let found = |output: &str| hidden_path_hint(&spec, output);
        let (closed, open) = (root.join("my data"), root.join("open"));
        let text = format!("x: cannot open '{}': No such file", closed.display());
        let hint = found(&text).unwrap();
        assert!(hint.contains(&format!("read = [\"{}\"]", closed.display())), "{hint}");
        assert!(found("error in ../nothing/here").is_none());
        assert!(
            found(&format!("{}/x and {} and work/a", open.display(), open.display())).is_none()
        );
        std::fs::create_dir(root.join("beside")).unwrap();
        assert!(found("cannot read ../beside: os error 2").unwrap().contains("/beside"));
        let unconfined = SandboxSpec { confined: false, ..spec.clone() };
        assert_eq!(hidden_path_hint(&unconfined, &text), None);
    }
}
