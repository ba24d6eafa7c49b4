//! The user's memories: an SQLite file of keys and values with a full-text index.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::clock::Clock;
use base::lock::Lock;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

/// The file, below `~/.g3`.
const FILE_NAME: &str = "memory.db";

/// Maximum time to wait for another g3 process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The tables of this version; triggers update the index.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS memories (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL,
    category TEXT NOT NULL,
    content_type TEXT NOT NULL DEFAULT 'text',
    image_path TEXT,
    embedder TEXT,
    embedding BLOB,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
    key, value, content='memories', content_rowid='id',
    tokenize='porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON memories BEGIN
    INSERT INTO words(rowid, key, value) VALUES (new.id, new.key, new.value);
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON memories BEGIN
    INSERT INTO words(words, rowid, key, value) VALUES ('delete', old.id, old.key, old.value);
END;
CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE OF key, value ON memories BEGIN
    INSERT INTO words(words, rowid, key, value) VALUES ('delete', old.id, old.key, old.value);
    INSERT INTO words(rowid, key, value) VALUES (new.id, new.key, new.value);
END;
";

/// The open file.
#[derive(Debug)]
pub struct MemoryStore {
    db: Connection,
}

/// A memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memo {
    /// Its key.
    pub key: String,
    /// The text.
    pub value: String,
    /// The category: `general`, or `project` for the notes of a workspace.
    pub category: String,
    /// The path of its image.
    pub image: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
}

/// A memory to store.
#[derive(Clone, Debug)]
pub struct NewMemory {
    /// Its key.
    pub key: String,
    /// The text.
    pub value: String,
    /// The category.
    pub category: &'static str,
    /// The path of its image.
    pub image: Option<String>,
    /// The name of the embedder and the vector.
    pub vector: Option<(String, Vec<f32>)>,
    /// The current time, RFC 3339.
    pub now: String,
}

impl MemoryStore {
    /// Opens or creates the file in this directory, readable only by its owner.
    pub(crate) fn open(dir: &Path) -> rusqlite::Result<MemoryStore> {
        let path = dir.join(FILE_NAME);
        let failed = |error: io::Error| {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
            rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
        };
        create_private(dir, &path).map_err(failed)?;
        let db = Connection::open(&path)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.execute_batch(&format!("BEGIN IMMEDIATE;{SCHEMA}COMMIT;"))?;
        Ok(MemoryStore { db })
    }

    /// Stores a memory. One with the same key is replaced and keeps its creation time. Returns
    /// whether it is new.
    pub fn set(&mut self, new: &NewMemory) -> rusqlite::Result<bool> {
        let change = self.db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let existing = change
            .query_row("SELECT 1 FROM memories WHERE key = ?1", [&new.key], |_| Ok(()))
            .optional()?;
        upsert(&change, new)?;
        change.commit()?;
        Ok(existing.is_none())
    }

    /// Returns the memories of a category with this key prefix.
    pub(crate) fn with_prefix(
        &self,
        prefix: &str,
        category: &str,
    ) -> rusqlite::Result<BTreeMap<String, String>> {
        let sql = "SELECT key, value FROM memories
                   WHERE category = ?2 AND substr(key, 1, length(?1)) = ?1";
        let mut query = self.db.prepare(sql)?;
        let rows = query.query_map([prefix, category], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }

    /// Changes the memories of a category with this key prefix in one transaction: `change`
    /// receives them by key and returns the ones to store and the keys to delete.
    pub(crate) fn replace_all(
        &mut self,
        prefix: &str,
        category: &str,
        change: impl FnOnce(&BTreeMap<String, String>) -> (Vec<NewMemory>, Vec<String>),
    ) -> rusqlite::Result<()> {
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let result = self.with_prefix(prefix, category).and_then(|existing| {
            let (new, removed) = change(&existing);
            for key in &removed {
                self.db.execute("DELETE FROM memories WHERE key = ?1", [key])?;
            }
            new.iter().try_for_each(|new| upsert(&self.db, new))
        });
        self.db.execute_batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
        result
    }

    /// Returns the memory with exactly this key.
    pub fn get(&self, key: &str) -> rusqlite::Result<Option<Memo>> {
        let sql = "SELECT key, value, category, image_path, created_at, updated_at
                   FROM memories WHERE key = ?1";
        self.db.query_row(sql, [key], read_memo).optional()
    }

    /// Returns the keys of the memories that contain one of these words, best first.
    pub(crate) fn by_words(
        &self,
        words: &[String],
        max_rows: usize,
    ) -> rusqlite::Result<Vec<String>> {
        if words.is_empty() {
            return Ok(Vec::new());
        }
        // Each word is quoted, since the query syntax must not be interpreted.
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let sql = "SELECT memories.key FROM words JOIN memories ON memories.id = words.rowid
                   WHERE words MATCH ?1 ORDER BY bm25(words), memories.key LIMIT ?2";
        let mut query = self.db.prepare(sql)?;
        let keys =
            query.query_map(params![quoted.join(" OR "), max_rows as i64], |row| row.get(0))?;
        keys.collect()
    }

    /// Returns the keys and vectors that this embedder computed.
    pub(crate) fn vectors(&self, embedder: &str) -> rusqlite::Result<Vec<(String, Vec<f32>)>> {
        let sql = "SELECT key, embedding FROM memories WHERE embedder = ?1";
        let mut query = self.db.prepare(sql)?;
        let rows = query.query_map([embedder], |row| {
            let blob: Vec<u8> = row.get(1)?;
            Ok((row.get(0)?, from_blob(&blob)))
        })?;
        rows.collect()
    }

    /// Returns keys and values of memories without a vector of this embedder.
    pub(crate) fn stale(
        &self,
        embedder: &str,
        max_rows: usize,
    ) -> rusqlite::Result<Vec<(String, String)>> {
        let sql = "SELECT key, value FROM memories WHERE embedder IS NOT ?1 ORDER BY id LIMIT ?2";
        let mut query = self.db.prepare(sql)?;
        let rows = query
            .query_map(params![embedder, max_rows as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }

    /// Sets the vector of a memory, unless its value changed in the meantime.
    pub(crate) fn set_vector(
        &self,
        memory: &(String, String),
        embedder: &str,
        vector: &[f32],
    ) -> rusqlite::Result<()> {
        let sql = "UPDATE memories SET embedder = ?3, embedding = ?4 WHERE key = ?1 AND value = ?2";
        let row = params![memory.0, memory.1, embedder, to_blob(vector)];
        self.db.execute(sql, row).map(drop)
    }
}

/// Inserts a memory or replaces the one with its key.
fn upsert(db: &Connection, new: &NewMemory) -> rusqlite::Result<()> {
    let (embedder, blob) = match &new.vector {
        Some((name, vector)) => (Some(name), Some(to_blob(vector))),
        None => (None, None),
    };
    let sql = "INSERT INTO memories
               (key, value, category, embedder, embedding, created_at, updated_at, content_type,
                image_path)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8)
               ON CONFLICT (key) DO UPDATE SET value = ?2, category = ?3, embedder = ?4,
               embedding = ?5, updated_at = ?6, content_type = ?7, image_path = ?8";
    let kind = if new.image.is_some() { "multimodal" } else { "text" };
    let row = params![new.key, new.value, new.category, embedder, blob, new.now, kind, new.image];
    db.execute(sql, row).map(drop)
}

fn read_memo(row: &Row<'_>) -> rusqlite::Result<Memo> {
    Ok(Memo {
        key: row.get(0)?,
        value: row.get(1)?,
        category: row.get(2)?,
        image: row.get(3)?,
        created_at: row.get(4)?,
        updated_at: row.get(5)?,
    })
}

fn to_blob(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn from_blob(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]))
        .collect()
}

/// Fails if the file cannot be opened for writing or created. Has no side effects.
pub(crate) fn probe(dir: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(dir.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let existing_dir = dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(dir);
            tempfile::tempfile_in(existing_dir).map(drop)
        }
        opened => opened.map(drop),
    }
}

/// Creates the directory and the file with access only for the owner. SQLite gives its auxiliary
/// files the same permissions.
fn create_private(dir: &Path, path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Whether an error means that the file is corrupt.
pub(crate) fn is_corrupt(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Formats an error as a sentence for the model.
pub(crate) fn describe_error(dir: &Path, error: &rusqlite::Error) -> String {
    let path = dir.join(FILE_NAME);
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("{} is in use by another g3; try again", path.display())
        }
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            format!("Memory system not initialized: cannot open {}: {error}", path.display())
        }
        _ => format!("the memory in {} failed: {error}", path.display()),
    }
}

/// Renames a corrupt file; it is never deleted. The notice names the new path. Returns `None` if
/// another g3 process did so in the meantime.
pub(crate) fn rename_corrupt(dir: &Path, clock: &Clock) -> Result<Option<String>, String> {
    let path = dir.join(FILE_NAME);
    let failed = |error: io::Error| format!("cannot set {} aside: {error}", path.display());
    let _lock = Lock::take(&dir.join("memory.lock")).map_err(failed)?;
    if !path.exists() || is_intact(&path) {
        return Ok(None);
    }
    let stamp: String = clock.stamp().chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let path_for = |name: &str, suffix: &str| dir.join(format!("{name}{suffix}"));
    let new_name = (0..).map(|n| format!("memory.broken-{stamp}-{n}.db"));
    let new_name = new_name.into_iter().find(|name| !dir.join(name).exists()).unwrap_or_default();
    for suffix in ["-wal", "-shm", ""] {
        let (from, to) = (path_for(FILE_NAME, suffix), path_for(&new_name, suffix));
        match fs::rename(from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(Some(format!(
        "the memory was damaged: it was moved to {}, and a new one was created",
        dir.join(new_name).display()
    )))
}

fn is_intact(path: &Path) -> bool {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let checked = Connection::open_with_flags(path, flags).and_then(|db| {
        db.busy_timeout(BUSY_TIMEOUT)?;
        db.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
    });
    checked.is_ok_and(|result| result == "ok")
}

/// Appends a line to the log of a day: the time, and the text on one line.
pub(crate) fn log(dir: &Path, now: &str, text: &str) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let day: PathBuf = dir.join(format!("{}.md", &now[..now.len().min(10)]));
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(day)?;
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    file.write_all(format!("- {now} {one_line}\n").as_bytes())
}

#[cfg(test)]
mod tests;
