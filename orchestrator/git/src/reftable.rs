//! Reads the refs of a repository in git's reftable format (git documents it in
//! `technical/reftable`), which libgit2 does not know. Git alone writes them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use git2::{ObjectFormat, Oid};

use crate::object_format;
use crate::safe_open::read_file;

/// The directory of the tables in a git directory, and the file there that lists them, the oldest
/// first.
const DIRECTORY: &str = "reftable";
const LIST_FILE: &str = "tables.list";
/// The lock of all refs, below the git directory.
pub(crate) const LOCK_FILE: &str = "reftable/tables.list.lock";
/// The start of a table, and the lengths of its header and its footer in the versions 1 and 2.
const MAGIC: &[u8] = b"REFT";
const HEADER_LENGTHS: [usize; 2] = [24, 28];
const FOOTER_LENGTHS: [usize; 2] = [68, 72];
/// The name of SHA-256 in the header of version 2.
const SHA256: &[u8] = b"s256";
/// The type of a block with refs, and the length of the type and the length before its records.
const REF_BLOCK: u8 = b'r';
const BLOCK_HEADER_LENGTH: usize = 4;
/// The kinds of records: a deleted ref, an id, an id and what the tag points to, a symbolic ref.
const DELETED: u64 = 0;
const ID: u64 = 1;
const PEELED: u64 = 2;
const SYMBOLIC: u64 = 3;
/// Maximum size of a table, in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum number of times that the list is read again because git merged its tables.
const MAX_TRIES: usize = 100;
/// Maximum depth of symbolic refs, as in git.
const MAX_DEPTH: usize = 5;

/// The value of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RefValue {
    /// An object.
    Direct(Oid),
    /// Another ref.
    Symbolic(String),
}

/// The refs of a repository, as one of its checkouts sees them.
#[derive(Debug)]
pub(crate) struct RefTables {
    shared: Tables,
    /// Those of a linked worktree.
    own: Option<Tables>,
}

/// The tables of a directory, the newest first.
#[derive(Debug)]
struct Tables(Vec<Table>);

/// A table in memory.
#[derive(Debug)]
struct Table {
    /// The header and the blocks, without the footer.
    bytes: Vec<u8>,
    header_length: usize,
    /// The size to which blocks are filled up; 0 for none.
    block_size: usize,
    format: ObjectFormat,
}

/// A ref in a table; `None` for a deleted one.
type Record = (Vec<u8>, Option<RefValue>);

/// Returns whether a git directory has its refs in this format.
pub(crate) fn is_used(common_dir: &Path) -> bool {
    list_file(common_dir).exists()
}

/// Returns the file that changes with each change of a ref.
pub(crate) fn list_file(common_dir: &Path) -> PathBuf {
    common_dir.join(DIRECTORY).join(LIST_FILE)
}

/// What the file `HEAD` contains after `ref:` where HEAD is in the tables.
pub(crate) const HEAD_ELSEWHERE: &str = "refs/heads/.invalid";

/// Returns the value of a checkout's own ref, such as HEAD, by the git directory of the checkout.
pub(crate) fn own_ref(git_dir: &Path, name: &str) -> io::Result<Option<RefValue>> {
    match Tables::read(&git_dir.join(DIRECTORY))? {
        Some(tables) => tables.get(name),
        None => Ok(None),
    }
}

/// Makes a git directory one whose refs are in tables, before git writes the first.
pub(crate) fn prepare(git_dir: &Path) -> io::Result<()> {
    fs::create_dir_all(git_dir.join(DIRECTORY))
}

impl RefTables {
    /// Reads the tables of a repository; `None` if it has another format.
    pub(crate) fn of(repo: &git2::Repository) -> io::Result<Option<RefTables>> {
        let Some(shared) = Tables::read(&repo.commondir().join(DIRECTORY))? else {
            return Ok(None);
        };
        let own = match repo.is_worktree() {
            true => Tables::read(&repo.path().join(DIRECTORY))?,
            false => None,
        };
        Ok(Some(RefTables { shared, own }))
    }

    /// Returns the value of a ref, by its full name.
    pub(crate) fn get(&self, name: &str) -> io::Result<Option<RefValue>> {
        match &self.own {
            Some(own) if is_of_worktree(name) => own.get(name),
            Some(_) | None => self.shared.get(name),
        }
    }

    /// Returns the last ref that a ref leads to, and its object; `None` for a ref that does not
    /// exist.
    pub(crate) fn resolve(&self, name: &str) -> io::Result<(String, Option<Oid>)> {
        let mut name = name.to_owned();
        for _ in 0..=MAX_DEPTH {
            match self.get(&name)? {
                Some(RefValue::Direct(id)) => return Ok((name, Some(id))),
                Some(RefValue::Symbolic(target)) => name = target,
                None => return Ok((name, None)),
            }
        }
        Err(damaged("symbolic refs lead to each other"))
    }

    /// Returns the refs with a prefix that are shared by all worktrees.
    pub(crate) fn list(&self, prefix: &str) -> io::Result<BTreeMap<String, RefValue>> {
        let mut found = BTreeMap::new();
        for table in self.shared.0.iter().rev() {
            for record in table.records_from(prefix.as_bytes()) {
                let (name, value) = record?;
                if !name.starts_with(prefix.as_bytes()) {
                    break;
                }
                let Ok(name) = String::from_utf8(name) else { continue };
                match value {
                    Some(value) => found.insert(name, value),
                    None => found.remove(&name),
                };
            }
        }
        Ok(found)
    }
}

/// Returns whether each worktree has its own ref of this name.
fn is_of_worktree(name: &str) -> bool {
    let own_prefixes = ["refs/bisect/", "refs/worktree/", "refs/rewritten/"];
    !name.starts_with("refs/") || own_prefixes.iter().any(|prefix| name.starts_with(prefix))
}

impl Tables {
    /// Reads the tables of a directory; `None` if it lacks the list of them.
    fn read(directory: &Path) -> io::Result<Option<Tables>> {
        for _ in 0..MAX_TRIES {
            let Some(list) = read_file(&directory.join(LIST_FILE), MAX_BYTES)? else {
                return Ok(None);
            };
            let list = String::from_utf8(list).map_err(|_| damaged("its list is not UTF-8"))?;
            let tables: io::Result<Option<Vec<Table>>> =
                list.lines().rev().map(|name| Table::read(&directory.join(name))).collect();
            // One is missing if git merged tables after the list was read.
            if let Some(tables) = tables? {
                return Ok(Some(Tables(tables)));
            }
        }
        Err(damaged("its list names tables that do not exist"))
    }

    fn get(&self, name: &str) -> io::Result<Option<RefValue>> {
        for table in &self.0 {
            if let Some(found) = table.records_from(name.as_bytes()).next() {
                let (found, value) = found?;
                if found == name.as_bytes() {
                    return Ok(value);
                }
            }
        }
        Ok(None)
    }
}

impl Table {
    /// Reads a table; `None` if it is missing.
    fn read(path: &Path) -> io::Result<Option<Table>> {
        let Some(bytes) = read_file(path, MAX_BYTES)? else { return Ok(None) };
        let table = Table::parse(bytes);
        let fail = || damaged(format!("{} is not one of its tables", path.display()));
        table.map(Some).ok_or_else(fail)
    }

    fn parse(mut bytes: Vec<u8>) -> Option<Table> {
        let version = *bytes.strip_prefix(MAGIC)?.first()?;
        let index = usize::from(version.checked_sub(1)?);
        let (header_length, footer_length) =
            (*HEADER_LENGTHS.get(index)?, *FOOTER_LENGTHS.get(index)?);
        let block_size = uint24(bytes.get(5..8)?);
        let format = match bytes.get(24..28)? {
            SHA256 if header_length == 28 => ObjectFormat::Sha256,
            _ => ObjectFormat::Sha1,
        };
        let end = bytes.len().checked_sub(footer_length).filter(|end| *end >= header_length)?;
        bytes.truncate(end);
        Some(Table { bytes, header_length, block_size, format })
    }

    /// Returns the records in the order of their names, from the first that is not before `start`.
    fn records_from(&self, start: &[u8]) -> impl Iterator<Item = io::Result<Record>> {
        let start = start.to_vec();
        let mut blocks = self.blocks().peekable();
        let mut last = None;
        // Blocks before the last one that begins before the name do not have it.
        while let Some(begins_before) = blocks.peek().map(|block| block.begins_before(&start)) {
            if !begins_before {
                break;
            }
            last = blocks.next();
        }
        let records = last.into_iter().chain(blocks).flatten();
        records.skip_while(move |it| it.as_ref().is_ok_and(|(name, _)| *name < start))
    }

    fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let header = if at == 0 { self.header_length } else { 0 };
            let records = at + header + BLOCK_HEADER_LENGTH;
            let kind = self.bytes.get(at + header..records)?;
            if kind[0] != REF_BLOCK {
                return None;
            }
            let end = at + uint24(&kind[1..]);
            let block = Block::of(self, records, end);
            // Blocks are filled up with zeros, unless the next one begins at once.
            let is_filled = end < at + self.block_size && self.bytes.get(end) == Some(&0);
            // A damaged one ends the walk.
            at = if is_filled { at + self.block_size } else { end.max(records) };
            Some(block)
        })
    }
}

/// The rest of a block's records.
struct Block<'t> {
    bytes: &'t [u8],
    at: usize,
    end: usize,
    format: ObjectFormat,
    last_name: Vec<u8>,
}

impl<'t> Block<'t> {
    fn of(table: &'t Table, records: usize, end: usize) -> Block<'t> {
        let Some(bytes) = table.bytes.get(..end) else {
            // Reading the first record of this fails.
            return Block {
                bytes: &[],
                at: 0,
                end: 1,
                format: table.format,
                last_name: Vec::new(),
            };
        };
        // The offsets of some records, of three bytes each, and their number.
        let count = bytes.last_chunk().map_or(0, |count| usize::from(u16::from_be_bytes(*count)));
        let end = bytes.len().saturating_sub(2 + 3 * count);
        Block { bytes, at: records, end, format: table.format, last_name: Vec::new() }
    }

    /// Returns whether the first name is before or the same as a name.
    fn begins_before(&self, name: &[u8]) -> bool {
        let mut copy = Block { last_name: Vec::new(), ..*self };
        copy.next().is_some_and(|it| it.is_ok_and(|(first, _)| first.as_slice() <= name))
    }

    fn read_record(&mut self) -> Option<Record> {
        let shared = usize::try_from(self.varint()?).ok()?;
        let length_and_kind = self.varint()?;
        let length = usize::try_from(length_and_kind >> 3).ok()?;
        let mut name = self.last_name.get(..shared)?.to_vec();
        name.extend(self.take(length)?);
        // When it changed.
        self.varint()?;
        let id_length = object_format::id_length(self.format);
        let value = match length_and_kind & 7 {
            DELETED => None,
            kind @ (ID | PEELED) => {
                let id = Oid::from_bytes(self.take(id_length)?).ok()?;
                if kind == PEELED {
                    self.take(id_length)?;
                }
                Some(RefValue::Direct(id))
            }
            SYMBOLIC => {
                let length = usize::try_from(self.varint()?).ok()?;
                let target = self.take(length)?.to_vec();
                Some(RefValue::Symbolic(String::from_utf8(target).ok()?))
            }
            _ => return None,
        };
        self.last_name.clone_from(&name);
        Some((name, value))
    }

    fn take(&mut self, length: usize) -> Option<&'t [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.end)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    /// Reads a number as in the offsets of git's packs.
    fn varint(&mut self) -> Option<u64> {
        let mut byte = self.take(1)?[0];
        let mut number = u64::from(byte & 0x7F);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            number = number.checked_add(1)?.checked_mul(128)? | u64::from(byte & 0x7F);
        }
        Some(number)
    }
}

impl Iterator for Block<'_> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<io::Result<Record>> {
        if self.at >= self.end {
            return None;
        }
        let record = self.read_record();
        if record.is_none() {
            self.at = self.end;
        }
        Some(record.ok_or_else(|| damaged("a table of its refs is damaged")))
    }
}

fn uint24(bytes: &[u8]) -> usize {
    bytes.iter().take(3).fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn damaged(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    use base::process::{Command, OutputLimits};
    use proptest::prelude::*;

    fn git(directory: &Path, args: &[&str], input: &str) -> String {
        let job = Command::new("git", directory)
            .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
            .args(args)
            .input(input);
        let output = job.output(OutputLimits::seconds(120)).unwrap();
        assert!(output.ok(), "git {args:?}: {}", output.error_text());
        output.text()
    }

    fn repository(format: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let format = format!("--object-format={format}");
        let init = ["init", "-q", "-b", "main", "--ref-format=reftable", &format];
        git(directory.path(), &init, "");
        for message in ["one", "two"] {
            git(directory.path(), &["commit", "-q", "--allow-empty", "-m", message], "");
        }
        directory
    }

    fn open(path: &Path) -> (git2::Repository, RefTables) {
        let repo = crate::repo::open_any(path).unwrap();
        let tables = RefTables::of(&repo).unwrap().unwrap();
        (repo, tables)
    }

    /// Compares all refs, by themselves and in lists, with those of git.
    fn compare(path: &Path) {
        let (_repo, tables) = open(path);
        let format = "--format=%(refname) %(objectname) %(symref)";
        let listed = git(path, &["for-each-ref", format], "");
        let mut expected = BTreeMap::new();
        for line in listed.lines() {
            let mut words = line.split(' ');
            let (name, id) = (words.next().unwrap(), words.next().unwrap());
            let value = match words.next().unwrap() {
                "" => RefValue::Direct(object_format::parse_id(id).unwrap()),
                target => RefValue::Symbolic(target.to_owned()),
            };
            assert_eq!(tables.get(name).unwrap().as_ref(), Some(&value), "{name}");
            let (_, resolved) = tables.resolve(name).unwrap();
            assert_eq!(resolved.unwrap().to_string(), id);
            expected.insert(name.to_owned(), value);
        }
        assert_eq!(tables.list("refs/").unwrap(), expected);
        let tags = expected.into_iter().filter(|(name, _)| name.starts_with("refs/tags/"));
        assert_eq!(tables.list("refs/tags/").unwrap(), tags.collect());
        for missing in ["refs/heads/a", "refs/heads/zz", "refs", "zz", "refs/tags/"] {
            assert_eq!(tables.get(missing).unwrap(), None);
        }
    }

    #[test]
    fn refs_are_read_as_git_reads_them() {
        for format in ["sha1", "sha256"] {
            let directory = repository(format);
            let path = directory.path();
            compare(path);
            git(path, &["tag", "-a", "-m", "annotated", "v1"], "");
            git(path, &["symbolic-ref", "refs/heads/alias", "refs/heads/main"], "");
            compare(path);
            let (first, last) = (git(path, &["rev-parse", "main~1"], ""), "main");
            // Several blocks, with an index; then newer tables that hide a part of them.
            let all: String =
                (0..3_000).map(|n| format!("create refs/tags/t/{n} {first}\n")).collect();
            git(path, &["update-ref", "--stdin"], &all);
            compare(path);
            for n in (0..3_000).step_by(97) {
                let line = match n % 2 {
                    0 => format!("delete refs/tags/t/{n}\n"),
                    _ => format!("update refs/tags/t/{n} {last}\n"),
                };
                git(path, &["update-ref", "--stdin"], &line);
            }
            compare(path);
            git(path, &["pack-refs", "--all"], "");
            compare(path);
        }
    }

    #[test]
    fn each_worktree_has_its_own_head() {
        let directory = repository("sha1");
        let path = directory.path();
        let linked = path.join("linked");
        git(path, &["worktree", "add", "-q", "-b", "other", linked.to_str().unwrap()], "");
        let head = |path: &Path| open(path).1.resolve("HEAD").unwrap().0;
        assert_eq!(
            (head(path), head(&linked)),
            ("refs/heads/main".into(), "refs/heads/other".into())
        );
        git(&linked, &["checkout", "-q", "--detach", "HEAD~1"], "");
        assert_eq!(head(&linked), "HEAD");
        let (_repo, tables) = open(&linked);
        let (_, id) = tables.resolve("HEAD").unwrap();
        assert_eq!(id.unwrap().to_string(), git(path, &["rev-parse", "main~1"], ""));
        assert!(tables.get("refs/heads/other").unwrap().is_some());
        git(path, &["symbolic-ref", "refs/heads/round", "refs/heads/about"], "");
        git(path, &["symbolic-ref", "refs/heads/about", "refs/heads/round"], "");
        assert!(open(path).1.resolve("refs/heads/round").is_err());
    }

    #[test]
    fn a_damaged_table_is_an_error_or_another_value_and_never_a_panic() {
        let directory = repository("sha256");
        let tables = directory.path().join(".git/reftable");
        git(directory.path(), &["pack-refs", "--all"], "");
        let list = fs::read_to_string(tables.join(LIST_FILE)).unwrap();
        let table = tables.join(list.trim());
        let whole = fs::read(&table).unwrap();
        fs::remove_file(&table).unwrap();
        assert!(Tables::read(&tables).is_err(), "a table is missing");
        proptest!(|(at in 0..whole.len(), byte: u8, length in 0..=whole.len())| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            bytes.truncate(length);
            if let Some(table) = Table::parse(bytes) {
                let _ = table.records_from(b"").collect::<Vec<_>>();
                let _ = Tables(vec![table]).get("refs/heads/main");
            }
        });
    }
}
