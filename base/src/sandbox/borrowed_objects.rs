//! The object directories that a git repository borrows from, as after `git clone --shared` or
//! `--reference`: without them, git reads none of its commits.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file in an object directory that names others: gitrepository-layout(5).
pub const ALTERNATES: &str = "info/alternates";
/// How many repositories git follows from one to the next.
const MAX_DEPTH: usize = 5;
/// The maximum size of a list that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Returns the directories from which an object directory borrows, and from which those do. What does
/// not look like an object directory is left out: a list may come with a repository, and everything
/// in these directories is shown to an agent.
pub fn directories(objects: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next = vec![objects.to_owned()];
    for _ in 0..MAX_DEPTH {
        let named = next.iter().flat_map(|objects| listed(objects));
        let mut named: Vec<PathBuf> = named.filter(|path| holds_only_objects(path)).collect();
        named.retain(|path| path != objects && !found.contains(path));
        found.extend(named.iter().cloned());
        next = named;
    }
    found
}

/// Returns the existing directories that the list of an object directory names.
fn listed(objects: &Path) -> Vec<PathBuf> {
    let list = crate::files::read_bounded(&objects.join(ALTERNATES), MAX_BYTES);
    let list = list.unwrap_or_default();
    let lines = list.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    let unquoted = |line: &'_ [u8]| {
        let inner = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\""));
        objects.join(OsStr::from_bytes(inner.unwrap_or(line)))
    };
    let paths = lines.map(unquoted);
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

/// Returns whether everything in a directory has a name that git gives: loose objects by the first two
/// digits of their ids, packs, lists, and what is temporary.
fn holds_only_objects(directory: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(directory) else { return false };
    let is_of_git = |name: &str| {
        let is_digits = name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_temporary = ["tmp_", "incoming-"].iter().any(|start| name.starts_with(start));
        is_digits || is_temporary || matches!(name, "pack" | "info") || name.ends_with(".lock")
    };
    ["pack", "info"].iter().any(|name| directory.join(name).is_dir())
        && entries.all(|entry| entry.is_ok_and(|it| it.file_name().to_str().is_some_and(is_of_git)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object_directory(path: PathBuf) -> PathBuf {
        for name in ["pack", "info", "4f"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        path
    }

    #[test]
    fn directories_are_followed_and_what_holds_other_files_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let objects = |name: &str| object_directory(root.join(name).join("objects"));
        let [own, one, two, secret] =
            ["own", "one", "two with \u{e4} space", "secret"].map(objects);
        fs::write(one.join("tmp_obj_x"), "").unwrap();
        fs::write(two.join("maintenance.lock"), "").unwrap();
        fs::write(secret.join("id_rsa"), "").unwrap();
        fs::create_dir(root.join("home")).unwrap();
        let list = |of: &Path, text: String| fs::write(of.join(ALTERNATES), text).unwrap();
        assert_eq!(directories(&own), Vec::<PathBuf>::new());
        let others = [secret.as_path(), &root.join("home"), &root.join("missing"), Path::new("/")];
        let others = others.map(|path| path.display().to_string()).join("\n");
        list(&own, format!("# by hand\n\n../../one/objects\n{others}\n"));
        list(&one, format!("\"{}\"\n", two.display()));
        // Round and round.
        list(&two, format!("{}\n{}\n", own.display(), one.display()));
        assert_eq!(directories(&own), [one, two]);
    }

    #[test]
    fn a_list_that_is_too_long_names_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let own = object_directory(dir.path().join("own"));
        let one = object_directory(dir.path().join("one"));
        let text = format!("{}\n", one.display());
        fs::write(own.join(ALTERNATES), text.repeat(10_000)).unwrap();
        assert_eq!(directories(&own), Vec::<PathBuf>::new());
    }
}
