//! Data that outlives a session: the notes of a workspace, and the user's own memories.
//!
//! [`notes`] merges Markdown into the workspace's file and changes nothing else in it. [`store`] is
//! an SQLite file of keys and values, which [`search`] ranks by words and by [`embed`]dings from an
//! [`endpoint`] or the [`local`] model. [`novelty`] tracks whether a turn discovered anything.

pub mod embed;
pub mod local_embedder;
pub mod note_index;
pub mod notes;
pub mod novelty;
pub mod remote_embedder;
pub mod search;
pub mod store;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::clock::Clock;
use base::config::Config;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use embed::Embedder;
use novelty::NoveltyFilter;
use store::MemoryStore;

use base::workspace;

/// The default path of a workspace's notes.
const NOTES_PATH: &str = "analysis/memory.md";

/// Returns the notes file for a directory: the nearest existing one up to the workspace root, or
/// the path at which it should be created.
pub fn notes_file(cwd: &Path) -> PathBuf {
    let files = workspace::upward(cwd).into_iter().map(|dir| dir.join(NOTES_PATH));
    let mut existing = files.filter(|file| std::fs::symlink_metadata(file).is_ok());
    existing.next().unwrap_or_else(|| workspace::root(cwd).join(NOTES_PATH))
}

/// The memory of a session. Files are opened on first use.
pub struct Memory {
    /// `--memory PATH`: another notes file.
    pub notes: Option<PathBuf>,
    /// Whether to ask for notes after a turn that discovered something.
    pub takes_notes: bool,
    /// What was discovered.
    pub novelty: NoveltyFilter,
    /// Whether notes are also indexed as user memories.
    pub shared: bool,
    config: Config,
    embedder: OnceCell<Result<Arc<dyn Embedder>, String>>,
    home: Option<PathBuf>,
    store: Arc<Mutex<Option<MemoryStore>>>,
}

impl Default for Memory {
    fn default() -> Memory {
        let home = base::user_dirs::home_dir();
        Memory {
            notes: None,
            takes_notes: false,
            novelty: NoveltyFilter::default(),
            shared: false,
            config: Config::default(),
            embedder: OnceCell::new(),
            home: home.map(|home| home.join(".g3")),
            store: Arc::default(),
        }
    }
}

impl Memory {
    /// Creates the memory of a configuration.
    pub fn new(config: &Config, notes: Option<PathBuf>) -> Memory {
        let config = config.clone();
        let memory = Memory::default();
        let shared = config.memory.enabled && memory.is_writable();
        Memory { notes, shared, config, ..memory }
    }

    /// Returns the embedder, or why there is none. Determined on first use, since a server's key
    /// may come from a command and a local model's host may have to be started. A notice for the
    /// user is added to `notes` once.
    pub async fn embedder(&self, notes: &mut Vec<String>) -> Result<Arc<dyn Embedder>, String> {
        let config = self.config.clone();
        let find = async move {
            let chosen_embedder =
                tokio::task::spawn_blocking(move || remote_embedder::open_configured(&config))
                    .await;
            let chosen_embedder = chosen_embedder
                .map_err(|failure| failure.to_string())?
                .map_err(|failure| failure.full_text())?;
            notes.extend(chosen_embedder.notice);
            Ok(chosen_embedder.embedder)
        };
        self.embedder.get_or_init(|| find).await.clone()
    }

    /// Returns the notes file of the workspace.
    pub fn notes_file(&self, cwd: &Path) -> PathBuf {
        self.notes.clone().unwrap_or_else(|| notes_file(cwd))
    }

    /// Whether the user's memories can be written. In studio's sandbox they cannot, and tools that
    /// always fail should not be offered.
    fn is_writable(&self) -> bool {
        self.home.as_deref().is_some_and(|dir| store::probe(dir).is_ok())
    }

    /// Runs an operation on the store on a separate thread, where it may wait for locks. A damaged
    /// store is renamed and replaced by a new one; the notice says so.
    pub async fn with_store<T: Send + 'static>(
        &self,
        operation: impl Fn(&mut MemoryStore) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(T, Option<String>), String> {
        let Some(dir) = self.home.clone() else {
            return Err("Memory system not initialized: HOME is not set".into());
        };
        let slot = self.store.clone();
        let result = tokio::task::spawn_blocking(move || {
            let mut slot = base::sync::lock(&slot);
            let mut notice = None;
            for _ in 0..2 {
                let store = match slot.take() {
                    Some(store) => Ok(store),
                    None => MemoryStore::open(&dir),
                };
                let result = store.and_then(|mut store| {
                    let result = operation(&mut store);
                    *slot = Some(store);
                    result
                });
                match result {
                    Ok(value) => return Ok((value, notice)),
                    Err(error) if store::is_corrupt(&error) => {
                        *slot = None;
                        notice = store::rename_corrupt(&dir, &Clock::from_env())?;
                    }
                    Err(error) => return Err(store::describe_error(&dir, &error)),
                }
            }
            Err("Memory system not initialized: the database is damaged".to_owned())
        });
        result.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Stores an image next to the memories and returns its path.
    pub fn store_image(&self, bytes: &[u8], extension: &str) -> io::Result<PathBuf> {
        let home = self.home.as_ref().ok_or_else(|| io::Error::other("HOME is not set"))?;
        let dir = home.join("images");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let hash: String = base::text::hex(&Sha256::digest(bytes)[..16]);
        let file = dir.join(format!("{hash}.{extension}"));
        base::files::replace(&file, bytes)?;
        Ok(file)
    }

    /// Appends a line to the log of the day. Write errors are ignored.
    pub fn log(&self, verb: &str, key: &str, text: &str) {
        let Some(home) = &self.home else { return };
        let now = Clock::from_env().stamp();
        let start: String = text.chars().take(100).collect();
        let _ = store::log(&home.join("logs"), &now, &format!("{verb} {key}: {start}"));
    }
}
