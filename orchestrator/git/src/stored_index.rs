//! An index of git as it is stored (git documents the format in `gitformat-index`). A landing needs few
//! of its entries and changes few of them, and libgit2 takes long to read and to write a large one.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::parallel;
use git2::IndexEntry;
use git2::ObjectFormat;
use rustix::fs::Stat;
use sha1::{Digest, Sha1};
use tempfile::NamedTempFile;

use crate::entry_mode;
use crate::index::{ASSUME_UNCHANGED, SKIP_WORKTREE};
use crate::index_file::{self, EXTENDED, FileStat, IndexedFile, PATH_LENGTH_MASK};
use crate::object_format;
use crate::open_directories::{OpenDirectories, count_files, open_directory};

/// The signature and the versions of this format; version 4 shortens paths.
const SIGNATURE: &[u8] = b"DIRC";
const VERSIONS: Range<u32> = 2..4;
/// The minimum number of entries for which another thread is started.
const MIN_ENTRIES_PER_THREAD: usize = 1_000;
/// The length in bytes above which another thread computes the checksum.
const MIN_BYTES_FOR_THREAD: usize = 1 << 18;
/// The length of the header.
const HEADER_LENGTH: usize = 12;
/// The length of an entry before its id, and the offset of the size.
const STAT_LENGTH: usize = 40;
const SIZE_OFFSET: usize = 36;
/// The kind of directories.
const DIRECTORY: u32 = 0o040_000;
/// The flags of an entry of a conflict.
const CONFLICT: u16 = 0x3000;
/// An extended flag: the path is to be added later.
const INTENT_TO_ADD: u16 = 1 << 13;
/// The extended flags that are stored; libgit2 has others in memory.
const STORED_FLAGS: u16 = SKIP_WORKTREE | INTENT_TO_ADD;
/// The extensions that are kept: the trees of directories, and conflicts that the user resolved.
const TREES: &[u8] = b"TREE";
const RESOLVED: &[u8] = b"REUC";

/// The new entry of a path; `None` to remove it.
pub(crate) type Edits = BTreeMap<Vec<u8>, Option<IndexEntry>>;

/// The name of an extension and the place of its content.
type KeptExtension = (&'static [u8], Range<usize>);

/// An index in memory.
#[derive(Debug)]
pub(crate) struct StoredIndex {
    /// Everything but the checksum.
    bytes: Vec<u8>,
    /// The kind of the ids, and of the checksum at the end.
    format: ObjectFormat,
    /// The places of the entries, in the order of their paths.
    entries: Vec<StoredEntry>,
    /// The places of the extensions that are kept, without their headers.
    extensions: Vec<KeptExtension>,
    /// When the file was written.
    written_at: SystemTime,
    /// Who may read and write it.
    permissions: fs::Permissions,
}

/// The places of an entry and of its path.
#[derive(Clone, Debug)]
struct StoredEntry {
    place: Range<usize>,
    path: Range<usize>,
    flags: u16,
    extended_flags: u16,
}

/// The states of directories: another name in one of them changes them.
pub(crate) struct DirectoryStates {
    /// A checksum of all.
    pub checksum: String,
    /// When the last one changed.
    pub changed_at: SystemTime,
}

impl StoredIndex {
    /// Reads an index; `None` if it has conflicts, another format or errors, or is missing: libgit2 reads
    /// it or explains why not.
    pub(crate) fn read(path: &Path, format: ObjectFormat) -> io::Result<Option<StoredIndex>> {
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut &file, &mut bytes)?;
        Ok(StoredIndex::parse(bytes, format, metadata.modified()?, metadata.permissions()))
    }

    fn parse(
        mut bytes: Vec<u8>,
        format: ObjectFormat,
        written_at: SystemTime,
        permissions: fs::Permissions,
    ) -> Option<StoredIndex> {
        let id_length = object_format::id_length(format);
        let checksum = bytes.split_off(bytes.len().checked_sub(id_length)?);
        let (entries, extensions) = thread::scope(|scope| {
            let digest = || object_format::digest(format, &[&bytes]) == checksum;
            // A short one takes less time than the start of a thread.
            let computed = (bytes.len() > MIN_BYTES_FOR_THREAD).then(|| scope.spawn(digest));
            let parts = parse_parts(&bytes, id_length);
            let is_whole = match computed {
                Some(computed) => computed.join().unwrap_or_else(|panic| resume_unwind(panic)),
                None => digest(),
            };
            parts.filter(|_| is_whole)
        })?;
        Some(StoredIndex { bytes, format, entries, extensions, written_at, permissions })
    }

    /// Writes a temporary index into a directory: with the entries of these paths, of attributes files,
    /// of submodules and of files of which git is told to ignore changes, and the time of this one.
    pub(crate) fn selection<'a>(
        &self,
        directory: &Path,
        paths: impl IntoIterator<Item = &'a Path>,
    ) -> io::Result<NamedTempFile> {
        let is_attributes_file = |path: &[u8]| {
            path.strip_suffix(b".gitattributes")
                .is_some_and(|directory| matches!(directory.last(), None | Some(b'/')))
        };
        let paths: BTreeSet<&[u8]> =
            paths.into_iter().map(|path| path.as_os_str().as_bytes()).collect();
        let mut bytes = self.bytes[..HEADER_LENGTH].to_vec();
        let mut count = 0_u32;
        for entry in &self.entries {
            let path = self.path(entry);
            if is_attributes_file(path) || self.is_passed_over(entry) || paths.contains(path) {
                count += 1;
                bytes.extend(&self.bytes[entry.place.clone()]);
            }
        }
        bytes[8..12].copy_from_slice(&count.to_be_bytes());
        let checksum = object_format::digest(self.format, &[&bytes]);
        bytes.extend(checksum);
        let file = NamedTempFile::with_prefix_in("index.", directory)?;
        io::Write::write_all(&mut file.as_file(), &bytes)?;
        file.as_file().set_modified(self.written_at)?;
        Ok(file)
    }

    /// Returns the tree of all entries, if the index has it.
    pub(crate) fn tree(&self) -> Option<git2::Oid> {
        if self.entries.iter().any(|entry| entry.extended_flags & INTENT_TO_ADD != 0) {
            return None;
        }
        let (_, place) = self.extensions.iter().find(|(name, _)| *name == TREES)?;
        let (_, after) = split_at(&self.bytes[place.clone()], 0)?;
        let (counts, after) = split_at(after, b'\n')?;
        let (files, _) = std::str::from_utf8(counts).ok()?.split_once(' ')?;
        let is_complete = files.parse() == Ok(self.entries.len());
        let id_length = object_format::id_length(self.format);
        is_complete.then(|| git2::Oid::from_bytes(after.get(..id_length)?).ok()).flatten()
    }

    /// Writes the index with other entries for some paths, and makes it durable.
    pub(crate) fn write(&self, path: &Path, edits: &Edits) -> io::Result<()> {
        let bytes =
            self.edited(edits).ok_or_else(|| io::Error::other("its trees cannot be read"))?;
        let file = fs::File::create(path)?;
        io::Write::write_all(&mut &file, &bytes)?;
        file.set_permissions(self.permissions.clone())?;
        file.sync_all()
    }

    /// Returns the paths whose file in a worktree may have changed since: git compares their content.
    /// Leaves out submodules, and files of which git is told to ignore changes.
    pub(crate) fn possible_changes(&self, worktree: &Path) -> io::Result<Vec<PathBuf>> {
        let root = &open_directory(worktree)?;
        let open = || Ok::<_, Infallible>(OpenDirectories::new(root));
        let path_if_changed = |directories: &mut OpenDirectories<'_>, entry: &StoredEntry| {
            let found = directories.stat(self.path(entry));
            let may_be_changed = !self.is_passed_over(entry)
                && found.is_none_or(|found| !self.is_unchanged(entry, &found));
            may_be_changed.then(|| PathBuf::from(OsStr::from_bytes(self.path(entry))))
        };
        let Ok(paths) =
            parallel::map_with(&self.entries, MIN_ENTRIES_PER_THREAD, open, path_if_changed);
        Ok(paths.into_iter().flatten().collect())
    }

    /// Returns whether a directory contains exactly the files that the index describes, none of them
    /// changed since, and no other file or directory.
    pub(crate) fn describes(&self, directory: &Path) -> io::Result<bool> {
        let root = open_directory(directory)?;
        thread::scope(|scope| {
            let count = scope.spawn(|| count_files(&root));
            let are_as_described = self.describes_files(directory)?;
            let count = count.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(are_as_described && count == self.entries.len())
        })
    }

    /// Like [`StoredIndex::describes`], but does not look for other files and directories.
    pub(crate) fn describes_files(&self, directory: &Path) -> io::Result<bool> {
        let root = &open_directory(directory)?;
        let open = || Ok::<_, Infallible>(OpenDirectories::new(root));
        let is_as_described = |directories: &mut OpenDirectories<'_>, entry: &StoredEntry| {
            let Some(found) = directories.stat(self.path(entry)) else { return false };
            let (mode, kind) = (self.mode(entry), entry_mode::kind(found.st_mode));
            let is_kind =
                kind == entry_mode::kind(mode) || mode == entry_mode::GITLINK && kind == DIRECTORY;
            is_kind && FileStat::of(&found) == self.stat(entry)
        };
        let Ok(results) =
            parallel::map_with(&self.entries, MIN_ENTRIES_PER_THREAD, open, is_as_described);
        Ok(results.into_iter().all(|it| it))
    }

    /// Returns the states of the directories of the files, below this one and itself.
    pub(crate) fn directory_states(&self, directory: &Path) -> io::Result<DirectoryStates> {
        let root = open_directory(directory)?;
        let mut directories = OpenDirectories::new(&root);
        let (mut digest, mut changed_at) = (Sha1::new(), UNIX_EPOCH);
        let mut add = |found: &Stat| {
            let FileStat { ctime, mtime, ino, .. } = FileStat::of(found);
            for number in [found.st_mode, ino, ctime.0, ctime.1, mtime.0, mtime.1] {
                digest.update(number.to_be_bytes());
            }
            changed_at = changed_at.max(UNIX_EPOCH + Duration::new(ctime.0.into(), ctime.1));
        };
        add(&rustix::fs::fstat(&root)?);
        let mut last: &[u8] = b"";
        for entry in &self.entries {
            let path = self.path(entry);
            let known = last.iter().zip(path).take_while(|(one, other)| one == other).count();
            let slashes = (known..path.len()).filter(|place| path[*place] == b'/');
            for slash in slashes {
                let found = directories.stat(&path[..slash]);
                add(&found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?);
            }
            last = path;
        }
        Ok(DirectoryStates { checksum: base::text::hex(&digest.finalize()), changed_at })
    }

    /// Returns the path and the mode of each entry, in the order of the paths.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.entries.iter().map(|entry| (self.path(entry), self.mode(entry)))
    }

    fn is_passed_over(&self, entry: &StoredEntry) -> bool {
        let is_hidden =
            entry.flags & ASSUME_UNCHANGED != 0 || entry.extended_flags & SKIP_WORKTREE != 0;
        is_hidden || self.mode(entry) == entry_mode::GITLINK
    }

    /// Returns whether a file has the state that its entry describes; the device may have another number,
    /// as after a mount.
    fn is_unchanged(&self, entry: &StoredEntry, found: &Stat) -> bool {
        let (stat, mode) = (self.stat(entry), self.mode(entry));
        let changed_bits = found.st_mode ^ mode;
        let has_mode = entry_mode::kind(changed_bits) == 0
            && (!entry_mode::is_file(mode) || changed_bits & 0o100 == 0);
        let found = FileStat { dev: stat.dev, ..FileStat::of(found) };
        has_mode && found == stat && !self.is_racy(entry)
    }

    /// Returns whether a new entry has the path of a directory with other entries, or lies below one.
    pub(crate) fn collides(&self, edits: &Edits) -> bool {
        let stays = |entry: &StoredEntry| !matches!(edits.get(self.path(entry)), Some(None));
        let added = edits.iter().filter(|(_, entry)| entry.is_some()).map(|(path, _)| path);
        added.into_iter().any(|path| {
            let directory = [path.as_slice(), b"/"].concat();
            let start =
                self.entries.partition_point(|entry| self.path(entry) < directory.as_slice());
            let mut below = self.entries[start..]
                .iter()
                .take_while(|entry| self.path(entry).starts_with(&directory));
            below.any(stays) || directories_of(path).any(|it| self.find(it).is_some_and(stays))
        })
    }

    /// Returns the bytes of the index with other entries for some paths; `None` if it is damaged.
    fn edited(&self, edits: &Edits) -> Option<Vec<u8>> {
        let mut written = Vec::with_capacity(self.bytes.len() + 4096);
        written.extend(&self.bytes[..HEADER_LENGTH]);
        let mut version = number(&self.bytes, 4)?;
        let mut count = 0_u32;
        let mut add = |written: &mut Vec<u8>, entry: &IndexEntry| {
            count += 1;
            if entry.flags_extended & STORED_FLAGS != 0 {
                version = 3;
            }
            encode(entry, written);
        };
        let mut edits_left = edits.iter().peekable();
        let mut kept = 0_u32;
        for entry in &self.entries {
            let path = self.path(entry);
            while let Some((_, new)) = edits_left.next_if(|(edited, _)| edited.as_slice() < path) {
                new.iter().for_each(|new| add(&mut written, new));
            }
            match edits_left.next_if(|(edited, _)| edited.as_slice() == path) {
                Some((_, Some(new))) => add(&mut written, new),
                Some((_, None)) => {}
                None => {
                    kept += 1;
                    let start = written.len();
                    written.extend(&self.bytes[entry.place.clone()]);
                    if self.is_racy(entry) {
                        // The new file is younger: without a size, git compares the content.
                        written[start + SIZE_OFFSET..start + SIZE_OFFSET + 4].fill(0);
                    }
                }
            }
        }
        for (_, new) in edits_left {
            new.iter().for_each(|new| add(&mut written, new));
        }
        written[4..8].copy_from_slice(&version.to_be_bytes());
        written[8..12].copy_from_slice(&(count + kept).to_be_bytes());
        for (name, place) in &self.extensions {
            let content = &self.bytes[place.clone()];
            let content = match *name == TREES {
                true => invalidated(content, edits, object_format::id_length(self.format))?,
                false => content.to_vec(),
            };
            written.extend(*name);
            written.extend(u32::try_from(content.len()).ok()?.to_be_bytes());
            written.extend(content);
        }
        let checksum = object_format::digest(self.format, &[&written]);
        written.extend(checksum);
        Some(written)
    }

    fn find(&self, path: &[u8]) -> Option<&StoredEntry> {
        let place = self.entries.binary_search_by(|entry| self.path(entry).cmp(path));
        place.ok().map(|place| &self.entries[place])
    }

    fn path(&self, entry: &StoredEntry) -> &[u8] {
        &self.bytes[entry.path.clone()]
    }

    fn mode(&self, entry: &StoredEntry) -> u32 {
        self.field(entry, 6)
    }

    fn stat(&self, entry: &StoredEntry) -> FileStat {
        let field = |index| self.field(entry, index);
        FileStat {
            ctime: (field(0), field(1)),
            mtime: (field(2), field(3)),
            dev: field(4),
            ino: field(5),
            uid: field(7),
            gid: field(8),
            size: field(9),
        }
    }

    /// Returns one of the numbers with which an entry begins.
    fn field(&self, entry: &StoredEntry, index: usize) -> u32 {
        number(&self.bytes, entry.place.start + index * 4).unwrap_or_default()
    }

    /// Returns whether the file may have changed since without a change of its times, because the index
    /// was written at the same time.
    fn is_racy(&self, entry: &StoredEntry) -> bool {
        let (seconds, nanoseconds) = self.stat(entry).mtime;
        UNIX_EPOCH + Duration::new(seconds.into(), nanoseconds) >= self.written_at
    }
}

impl StoredEntry {
    fn parse(bytes: &[u8], start: usize, id_length: usize) -> Option<StoredEntry> {
        let flags_at = |place: usize| {
            let bytes = bytes.get(place..place + 2)?;
            Some(u16::from_be_bytes(bytes.try_into().ok()?))
        };
        let flags_place = start + STAT_LENGTH + id_length;
        let flags = flags_at(flags_place)?;
        let (extended_flags, path_at) = match flags & EXTENDED {
            0 => (0, flags_place + 2),
            _ => (flags_at(flags_place + 2)?, flags_place + 4),
        };
        let rest = bytes.get(path_at..)?;
        let recorded = usize::from(flags & PATH_LENGTH_MASK);
        let length = match recorded < usize::from(PATH_LENGTH_MASK) {
            true => recorded,
            false => rest.iter().position(|byte| *byte == 0)?,
        };
        if *rest.get(length)? != 0 {
            return None;
        }
        let path = path_at..path_at + length;
        // One to eight NUL bytes, to a multiple of eight.
        let end = start + (path.end - start) / 8 * 8 + 8;
        (end <= bytes.len()).then_some(StoredEntry {
            place: start..end,
            path,
            flags,
            extended_flags,
        })
    }
}

/// Returns the places of the entries and of the extensions that are kept; `None` if the index has
/// conflicts, another format or errors.
fn parse_parts(bytes: &[u8], id_length: usize) -> Option<(Vec<StoredEntry>, Vec<KeptExtension>)> {
    let count = number(bytes, 8)?;
    if !bytes.starts_with(SIGNATURE) || !VERSIONS.contains(&number(bytes, 4)?) {
        return None;
    }
    let mut entries: Vec<StoredEntry> = Vec::new();
    let mut start = HEADER_LENGTH;
    for _ in 0..count {
        let entry = StoredEntry::parse(bytes, start, id_length)?;
        start = entry.place.end;
        let path_of = |entry: &StoredEntry| &bytes[entry.path.clone()];
        let is_sorted = entries.last().is_none_or(|last| path_of(last) < path_of(&entry));
        if !is_sorted || entry.flags & CONFLICT != 0 {
            return None;
        }
        entries.push(entry);
    }
    let mut extensions = Vec::new();
    while start < bytes.len() {
        let name = bytes.get(start..start + 4)?;
        let content = start + 8..(start + 8).checked_add(number(bytes, start + 4)? as usize)?;
        // The name of an extension without which the entries are incomplete is in small letters.
        if !name[0].is_ascii_uppercase() || content.end > bytes.len() {
            return None;
        }
        start = content.end;
        let kept = [TREES, RESOLVED].into_iter().find(|kept| *kept == name);
        extensions.extend(kept.map(|kept| (kept, content)));
    }
    Some((entries, extensions))
}

fn encode(entry: &IndexEntry, bytes: &mut Vec<u8>) {
    let time = |time: &git2::IndexTime| (time.seconds().cast_unsigned(), time.nanoseconds());
    let file = IndexedFile {
        path: entry.path.clone(),
        id: entry.id,
        mode: entry.mode,
        stat: FileStat {
            ctime: time(&entry.ctime),
            mtime: time(&entry.mtime),
            dev: entry.dev,
            ino: entry.ino,
            uid: entry.uid,
            gid: entry.gid,
            size: entry.file_size,
        },
    };
    index_file::push_entry(bytes, &file, entry.flags, entry.flags_extended & STORED_FLAGS);
}

/// Returns the extension with the trees of directories, without those of the directories in which
/// something is edited: git computes them again.
fn invalidated(extension: &[u8], edits: &Edits, id_length: usize) -> Option<Vec<u8>> {
    let changed: BTreeSet<&[u8]> =
        edits.keys().flat_map(|path| directories_of(path).chain([&path[..0]])).collect();
    let mut written = Vec::with_capacity(extension.len());
    // The directories that a record may be in, each with the number of records left below it.
    let mut above: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut rest = extension;
    while !rest.is_empty() {
        let (name, after) = split_at(rest, 0)?;
        let (counts, after) = split_at(after, b'\n')?;
        let (files, subtrees) = std::str::from_utf8(counts).ok()?.split_once(' ')?;
        let (files, subtrees) = (files.parse::<i64>().ok()?, subtrees.parse::<u64>().ok()?);
        let (id, after) = after.split_at_checked(if files < 0 { 0 } else { id_length })?;
        rest = after;
        while above.pop_if(|(_, left)| *left == 0).is_some() {}
        let path = match above.last_mut() {
            Some((directory, left)) => {
                *left -= 1;
                let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
                [directory, separator, name].concat()
            }
            None => name.to_vec(),
        };
        written.extend(name);
        written.push(0);
        if files < 0 || changed.contains(path.as_slice()) {
            written.extend(format!("-1 {subtrees}\n").as_bytes());
        } else {
            written.extend(format!("{files} {subtrees}\n").as_bytes());
            written.extend(id);
        }
        above.push((path, subtrees));
    }
    Some(written)
}

/// Returns the directories that a path is in, without the root.
fn directories_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let separators = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    separators.map(|(place, _)| &path[..place])
}

/// Splits at the first such byte, which belongs to neither part.
fn split_at(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::process::{Command, OutputLimits};
    use git2::IndexTime;
    use proptest::prelude::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// Runs git in a directory.
    fn git(directory: &Path, args: &[&str]) -> String {
        git_with(&directory.join(".git/index"), args)
    }

    /// Runs git in the repository of an index.
    fn git_with(index: &Path, args: &[&str]) -> String {
        let directory = index.ancestors().nth(2).unwrap();
        let command = Command::new("git", directory).args(args).env("GIT_INDEX_FILE", index);
        let output = command.output(OutputLimits::seconds(60)).unwrap();
        assert!(output.ok(), "git {args:?}: {}", output.error_text());
        output.text()
    }

    /// Creates a repository with these files, all of them older than its index.
    fn repository(files: &BTreeSet<String>) -> tempfile::TempDir {
        repository_of_format(ObjectFormat::Sha1, files)
    }

    /// Like [`repository`], with ids of this kind.
    fn repository_of_format(format: ObjectFormat, files: &BTreeSet<String>) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        git(directory.path(), &["init", "-q", &format!("--object-format={format}")]);
        for name in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
            fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        }
        git(directory.path(), &["add", "."]);
        // Writes the trees of the directories into the index.
        git(directory.path(), &["write-tree"]);
        directory
    }

    fn new_entry(path: &str, id: git2::Oid) -> IndexEntry {
        let mut index = git2::Index::new_ext(id.object_format()).unwrap();
        let time = IndexTime::new(1_000_000_000, 5);
        let entry = IndexEntry {
            ctime: time,
            mtime: time,
            dev: 1,
            ino: 2,
            mode: entry_mode::FILE,
            uid: 3,
            gid: 4,
            file_size: 5,
            id,
            flags: 0,
            flags_extended: 0,
            path: path.into(),
        };
        index.add(&entry).unwrap();
        index.get_path(Path::new(path), 0).unwrap()
    }

    /// Names of which none is a directory of another one.
    fn names() -> impl Strategy<Value = BTreeSet<String>> {
        let name = prop::sample::select(vec![
            "a.txt", "a/x", "a/y/z", "a/y/w", "a-b", "b/c/d/e", "b/f", "é",
        ]);
        prop::collection::btree_set(name.prop_map(str::to_owned), 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn an_edited_index_is_the_one_of_libgit2(
            files in names(),
            added in names(),
            removed in names(),
            format in prop::sample::select(vec![ObjectFormat::Sha1, ObjectFormat::Sha256]),
        ) {
            let repository = repository_of_format(format, &files);
            let path = repository.path().join(".git/index");
            let blob = git(repository.path(), &["hash-object", "-w", "-t", "blob", "/dev/null"]);
            let blob = object_format::parse_id(blob.trim()).unwrap();
            let mut edits = Edits::new();
            for name in removed.intersection(&files) {
                edits.insert(name.clone().into(), None);
            }
            for name in &added {
                edits.insert(name.clone().into(), Some(new_entry(name, blob)));
            }
            let stored = StoredIndex::read(&path, format).unwrap().unwrap();
            prop_assert!(!stored.collides(&edits));
            let ours = repository.path().join(".git/ours");
            stored.write(&ours, &edits).unwrap();

            let mut theirs = git2::Index::open_ext(&path, format).unwrap();
            for (name, entry) in &edits {
                match entry {
                    Some(entry) => theirs.add(entry).unwrap(),
                    None => theirs.remove_path(Path::new(std::str::from_utf8(name).unwrap())).unwrap(),
                }
            }
            theirs.write().unwrap();
            let list = ["ls-files", "--stage", "--debug"];
            prop_assert_eq!(git_with(&ours, &list), git_with(&path, &list));
            // git takes the trees of unchanged directories from the extension.
            prop_assert_eq!(git_with(&ours, &["write-tree"]), git_with(&path, &["write-tree"]));
        }
    }

    #[test]
    fn the_permissions_of_the_index_are_kept() {
        let repository = repository(&["a".to_owned()].into());
        let path = repository.path().join(".git/index");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        let stored = StoredIndex::read(&path, ObjectFormat::Sha1).unwrap().unwrap();
        let written = repository.path().join("written");
        stored.write(&written, &Edits::new()).unwrap();
        assert_eq!(fs::metadata(&written).unwrap().permissions().mode() & 0o777, 0o660);
    }

    #[test]
    fn a_file_that_may_have_changed_unnoticed_is_compared() {
        let repository = repository(&["old".to_owned(), "racy".to_owned()].into());
        let path = repository.path().join(".git/index");
        let written_at = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(repository.path().join("racy"), "one").unwrap();
        let racy = fs::File::options().write(true).open(repository.path().join("racy")).unwrap();
        racy.set_modified(written_at).unwrap();
        git(repository.path(), &["add", "racy"]);
        fs::File::options().write(true).open(&path).unwrap().set_modified(written_at).unwrap();
        // Of the same size, at the same time.
        fs::write(repository.path().join("racy"), "two").unwrap();
        racy.set_modified(written_at).unwrap();
        let stored = StoredIndex::read(&path, ObjectFormat::Sha1).unwrap().unwrap();
        let paths = [PathBuf::from("old"), PathBuf::from("racy")];
        let selection =
            stored.selection(&std::env::temp_dir(), paths.iter().map(PathBuf::as_path)).unwrap();
        assert_eq!(selection.as_file().metadata().unwrap().modified().unwrap(), written_at);
        stored.write(&path, &Edits::new()).unwrap();
        assert_eq!(stored.possible_changes(repository.path()).unwrap(), [PathBuf::from("racy")]);
        assert_eq!(git(repository.path(), &["diff-files", "--name-only"]), "racy");
    }

    #[test]
    fn no_change_of_a_file_is_passed_over() {
        let names = ["content", "d/e/deep", "gone", "kept", "mode", "kind", "hidden", "moved/f"];
        let repository = repository(&names.map(str::to_owned).into());
        let directory = repository.path();
        git(directory, &["update-index", "--assume-unchanged", "hidden"]);
        let stored =
            StoredIndex::read(&directory.join(".git/index"), ObjectFormat::Sha1).unwrap().unwrap();
        assert_eq!(stored.possible_changes(directory).unwrap(), [""; 0].map(PathBuf::from));
        fs::write(directory.join("content"), "changed").unwrap();
        fs::write(directory.join("hidden"), "changed").unwrap();
        fs::remove_dir_all(directory.join("d")).unwrap();
        fs::write(directory.join("d"), "a file").unwrap();
        fs::remove_file(directory.join("gone")).unwrap();
        fs::set_permissions(directory.join("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(directory.join("kind")).unwrap();
        std::os::unix::fs::symlink("kept", directory.join("kind")).unwrap();
        // Its files are the same, and git counts them as removed.
        fs::rename(directory.join("moved"), directory.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", directory.join("moved")).unwrap();
        let found = stored.possible_changes(directory).unwrap();
        let by_git = git(directory, &["diff-files", "--name-only"]);
        assert_eq!(found, by_git.lines().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(
            found,
            ["content", "d/e/deep", "gone", "kind", "mode", "moved/f"].map(PathBuf::from)
        );
    }

    #[test]
    fn another_name_in_any_directory_changes_their_states() {
        let names = ["a", "d/e/deep", "d/f", "d-/f"].map(str::to_owned);
        let repository = repository(&names.into());
        let directory = repository.path();
        let stored =
            StoredIndex::read(&directory.join(".git/index"), ObjectFormat::Sha1).unwrap().unwrap();
        let states = || stored.directory_states(directory).unwrap();
        let mut last = states().checksum;
        for parent in ["", "d", "d/e", "d-"].map(|parent| directory.join(parent)) {
            // The clock of a file system may stand still for some milliseconds.
            let added = (0..10_000).map(|n| {
                fs::write(parent.join(format!("new-{n}")), "").unwrap();
                states()
            });
            let changed = added.into_iter().find(|it| it.checksum != last).unwrap();
            let parent = parent.metadata().unwrap();
            let changes = UNIX_EPOCH
                + Duration::from_secs(parent.ctime().cast_unsigned())
                + Duration::from_nanos(parent.ctime_nsec().cast_unsigned());
            assert_eq!(changed.changed_at, changes);
            last = changed.checksum;
        }
        fs::write(directory.join("d/f"), "changed").unwrap();
        assert_eq!(states().checksum, last, "only a file changed");
        fs::remove_dir_all(directory.join("d-")).unwrap();
        assert!(stored.directory_states(directory).is_err());
    }

    #[test]
    fn flags_of_entries_are_kept() {
        let names = ["hidden", "left-out", "plain"].map(str::to_owned);
        let repository = repository(&names.into());
        git(repository.path(), &["update-index", "--assume-unchanged", "hidden"]);
        git(repository.path(), &["update-index", "--skip-worktree", "left-out"]);
        let path = repository.path().join(".git/index");
        let before = git(repository.path(), &["ls-files", "-v", "--stage", "--debug"]);
        let stored = StoredIndex::read(&path, ObjectFormat::Sha1).unwrap().unwrap();
        stored.write(&path, &Edits::new()).unwrap();
        assert_eq!(git(repository.path(), &["ls-files", "-v", "--stage", "--debug"]), before);
        let paths = [PathBuf::from("hidden"), PathBuf::from("left-out"), PathBuf::from("plain")];
        let selection =
            stored.selection(&std::env::temp_dir(), paths.iter().map(PathBuf::as_path)).unwrap();
        let selection = git2::Index::open(selection.path()).unwrap();
        let is_hidden =
            |path: &PathBuf| crate::index::is_hidden(&selection.get_path(path, 0).unwrap());
        assert_eq!(paths.map(|path| is_hidden(&path)), [true, true, false]);
        let mut entry = selection.get_path(Path::new("plain"), 0).unwrap();
        crate::index::mark_excluded(&mut entry);
        stored.write(&path, &[(b"plain".to_vec(), Some(entry))].into()).unwrap();
        assert!(git(repository.path(), &["ls-files", "-t", "plain"]).starts_with("S "));
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_collides_unless_the_directory_goes() {
        let repository = repository(&["a/x".to_owned(), "b".to_owned()].into());
        let stored = StoredIndex::read(&repository.path().join(".git/index"), ObjectFormat::Sha1)
            .unwrap()
            .unwrap();
        let added =
            |path: &str| (path.as_bytes().to_vec(), Some(new_entry(path, git2::Oid::ZERO_SHA1)));
        let removed = |path: &str| (path.as_bytes().to_vec(), None);
        assert!(stored.collides(&[added("a")].into()));
        assert!(stored.collides(&[added("b/c/d")].into()));
        assert!(!stored.collides(&[added("a"), removed("a/x")].into()));
        assert!(!stored.collides(&[added("b/c/d"), removed("b")].into()));
    }

    #[test]
    fn what_libgit2_must_read_is_not_read() {
        let repository = repository(&["a".to_owned(), "b".to_owned()].into());
        let path = repository.path().join(".git/index");
        let is_read = || StoredIndex::read(&path, ObjectFormat::Sha1).unwrap().is_some();
        assert!(is_read());
        let bytes = fs::read(&path).unwrap();
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x11;
            fs::write(&path, damaged).unwrap();
            assert!(!is_read(), "byte {place} is damaged");
            fs::write(&path, &bytes[..place]).unwrap();
            assert!(!is_read(), "{place} bytes");
        }
        fs::write(&path, &bytes).unwrap();
        git(repository.path(), &["update-index", "--index-version", "4"]);
        assert!(!is_read(), "version 4");
        git(repository.path(), &["update-index", "--index-version", "2"]);
        git(repository.path(), &["update-index", "--split-index"]);
        assert!(!is_read(), "a split index");
        git(repository.path(), &["update-index", "--no-split-index"]);
        assert!(is_read());
        let blob = git(repository.path(), &["hash-object", "-w", "a"]);
        let line = format!("100644 {} 2\tconflict", blob.trim());
        fs::write(repository.path().join("line"), line + "\n").unwrap();
        git(
            repository.path(),
            &["-c", "alias.add-line=!git update-index --index-info <line", "add-line"],
        );
        assert!(!is_read(), "a conflict");
        fs::remove_file(&path).unwrap();
        assert!(!is_read(), "missing");
    }
}
