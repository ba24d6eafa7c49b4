//! Paths and `file:` addresses.

use std::path::{Path, PathBuf};

use reqwest::Url;

/// The address of an absolute path.
pub(crate) fn of(path: &Path) -> String {
    // A relative path has no address, and none gets here.
    Url::from_file_path(path).map(String::from).unwrap_or_default()
}

/// The path of an address; `None` where it is no file.
pub(crate) fn path(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok().filter(|uri| uri.scheme() == "file")?.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_odd_characters_come_back() {
        for name in ["/a b/ä%20#?.rs", "/x/[y]/😀.rs"] {
            assert_eq!(path(&of(Path::new(name))).as_deref(), Some(Path::new(name)));
        }
        assert_eq!(path("jdt://contents/x"), None);
    }
}
