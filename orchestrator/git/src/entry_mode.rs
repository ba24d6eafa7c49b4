//! The modes of entries of trees and of the index, as git stores them (`gitformat-index(5)`).

/// A file that is not executable.
pub const FILE: u32 = 0o100_644;
/// An executable file.
pub const EXECUTABLE: u32 = 0o100_755;
/// A symlink.
pub const SYMLINK: u32 = 0o120_000;
/// The commit of a submodule.
pub const GITLINK: u32 = 0o160_000;

/// Returns the kind of an entry, or of a file on disk: its mode without permissions.
pub fn kind(mode: u32) -> u32 {
    mode & 0o170_000
}

/// Returns whether this is the mode of a file, executable or not.
pub fn is_file(mode: u32) -> bool {
    kind(mode) == kind(FILE)
}

/// Returns the mode for libgit2.
pub(crate) fn for_libgit2(mode: u32) -> git2::FileMode {
    match mode {
        EXECUTABLE => git2::FileMode::BlobExecutable,
        SYMLINK => git2::FileMode::Link,
        GITLINK => git2::FileMode::Commit,
        _ => git2::FileMode::Blob,
    }
}
