//! Writes the programs of built-in skills to a directory where a shell can run them.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::embedded::EmbeddedSkill;

/// Writes the programs of a skill to `.g3/bin` of the working directory and returns their paths.
/// The version of each, the hash of its content, is stored next to it. A file that differs from the
/// embedded one is replaced, regardless of its version. Replacement is by rename, so that
/// concurrent g3 processes produce the same complete file.
pub fn write_scripts(bundle: &EmbeddedSkill, cwd: &Path) -> io::Result<Vec<PathBuf>> {
    if bundle.scripts.is_empty() {
        return Ok(Vec::new());
    }
    let dir = cwd.join(".g3/bin");
    for dir in [cwd.join(".g3"), dir.clone()] {
        if fs::symlink_metadata(&dir).is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(io::Error::other(format!("{} is a symbolic link", dir.display())));
        }
    }
    base::files::keep_out_of_git(cwd)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    bundle.scripts.iter().map(|(name, text)| write_script(&dir, name, text)).collect()
}

fn write_script(dir: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let (file, version) = (dir.join(name), dir.join(format!("{name}.version")));
    let hash = hash(text);
    if !is_written(&file, text) {
        base::files::replace_with_mode(&file, text.as_bytes(), 0o755)?;
    }
    if fs::read_to_string(&version).ok().as_deref() != Some(&hash) {
        base::files::replace_with_mode(&version, hash.as_bytes(), 0o644)?;
    }
    Ok(file)
}

/// Whether exactly this text is there as an executable regular file.
fn is_written(file: &Path, text: &str) -> bool {
    let metadata = fs::symlink_metadata(file);
    metadata
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o755)
        && fs::read(file).is_ok_and(|bytes| bytes == text.as_bytes())
}

fn hash(text: &str) -> String {
    base::text::hex(&Sha256::digest(text.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUNDLE: EmbeddedSkill =
        EmbeddedSkill { name: "x", text: "", scripts: &[("x-run", "#!/bin/sh\necho hi\n")] };

    #[test]
    fn a_script_is_written_once_and_again_if_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        let file = write_scripts(&BUNDLE, dir.path()).unwrap().remove(0);
        let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!((file.ends_with(".g3/bin/x-run"), mode(&file)), (true, 0o755));
        let version = file.with_extension("version");
        let hash = fs::read_to_string(&version).unwrap();
        assert!(hash.len() == 16 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{hash}");
        let made = fs::metadata(&file).unwrap().modified().unwrap();
        write_scripts(&BUNDLE, dir.path()).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), made, "left alone");
        // A file that a repository put there is not run, even with the right version.
        fs::write(&file, "#!/bin/sh\necho evil\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).unwrap();
        write_scripts(&BUNDLE, dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), BUNDLE.scripts[0].1);
        fs::write(&version, "0000000000000000").unwrap();
        write_scripts(&BUNDLE, dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&version).unwrap(), hash);
    }

    #[test]
    fn a_link_is_replaced_and_a_linked_directory_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, BUNDLE.scripts[0].1).unwrap();
        fs::create_dir_all(dir.path().join("w/.g3/bin")).unwrap();
        let cwd = dir.path().join("w");
        std::os::unix::fs::symlink(&outside, cwd.join(".g3/bin/x-run")).unwrap();
        let file = write_scripts(&BUNDLE, &cwd).unwrap().remove(0);
        assert!(!fs::symlink_metadata(file).unwrap().is_symlink());
        fs::create_dir(dir.path().join("v")).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("v/.g3")).unwrap();
        assert!(write_scripts(&BUNDLE, &dir.path().join("v")).is_err());
    }

    #[test]
    fn concurrent_writes_produce_one_complete_script() {
        let dir = tempfile::tempdir().unwrap();
        let each = |_| {
            let cwd = dir.path().to_owned();
            std::thread::spawn(move || write_scripts(&BUNDLE, &cwd).unwrap())
        };
        let all: Vec<_> = (0..16).map(each).collect();
        all.into_iter().for_each(|one| drop(one.join().unwrap()));
        let names = fs::read_dir(dir.path().join(".g3/bin")).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["x-run", "x-run.version"]);
    }
}
