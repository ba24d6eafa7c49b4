//! Detects the languages of a workspace from its file names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// File extensions and their languages.
const EXTENSIONS: &[(&str, &str)] = &[
    ("c", "c"),
    ("cc", "cpp"),
    ("cpp", "cpp"),
    ("cs", "csharp"),
    ("go", "go"),
    ("hpp", "cpp"),
    ("java", "java"),
    ("js", "javascript"),
    ("jsx", "javascript"),
    ("kt", "kotlin"),
    ("mjs", "javascript"),
    ("php", "php"),
    ("py", "python"),
    ("rb", "ruby"),
    ("rkt", "racket"),
    ("rs", "rust"),
    ("scala", "scala"),
    ("sh", "shell"),
    ("sql", "sql"),
    ("swift", "swift"),
    ("ts", "typescript"),
    ("tsx", "typescript"),
    ("zig", "zig"),
];

/// Directories with third-party code or build output.
const SKIPPED: &[&str] = &["node_modules", "target", "vendor"];

/// Returns the languages of the files in a directory and its subdirectories (one level), in order.
pub(crate) fn detect(cwd: &Path) -> BTreeSet<&'static str> {
    let mut languages = BTreeSet::new();
    collect_languages(cwd, &mut languages);
    for entry in fs::read_dir(cwd).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
            collect_languages(&entry.path(), &mut languages);
        }
    }
    languages
}

fn collect_languages(dir: &Path, languages: &mut BTreeSet<&'static str>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let extension = name.rsplit_once('.').map(|(_, extension)| extension).filter(|_| is_file);
        let language = EXTENSIONS.iter().find(|(known, _)| Some(*known) == extension);
        languages
            .extend(language.filter(|_| !name.starts_with('.')).map(|(_, language)| *language));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_levels_are_searched_without_third_party_code() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.rs", "src/b.py", "src/deep/c.go", "vendor/d.java", ".x/e.rb", ".f.js"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(detect(dir.path()).into_iter().collect::<Vec<_>>(), ["python", "rust"]);
    }
}
