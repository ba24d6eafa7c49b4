//! Saved prompt prefixes: the KV of a system prompt with its tools, by model and content, so that a
//! new conversation starts in milliseconds. Limited in size; the least recently used are deleted
//! first.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::token::LlamaToken;
use sha2::{Digest, Sha256};

/// Minimum length in tokens; shorter prefixes are read as fast as a file is loaded.
pub(crate) const MIN_TOKENS: usize = 64;
/// The name prefix of a file being written; the process id follows.
pub(crate) const PARTIAL_PREFIX: &str = ".half-";
/// Maximum size in bytes of all saved prefixes.
const MAX_TOTAL: u64 = 1 << 30;

/// The saved prefixes of a model.
#[derive(Debug)]
pub(crate) struct PrefixStore {
    directory: PathBuf,
    model: String,
}

impl PrefixStore {
    /// Opens the prefixes of a model file in a directory, which is created if necessary.
    pub(crate) fn open(directory: PathBuf, model: &Path) -> io::Result<PrefixStore> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(PrefixStore { directory, model: fingerprint(model)? })
    }

    /// Returns the directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Loads the KV of exactly these tokens into an empty sequence.
    pub(crate) fn load(&self, context: &mut LlamaContext, seq: i32, tokens: &[LlamaToken]) -> bool {
        let path = self.path(tokens);
        if !path.is_file() {
            return false;
        }
        let load_result = context.state_seq_load_file(&path, seq, tokens.len() + 1);
        if matches!(&load_result, Ok((found, _)) if found == tokens) {
            let now = File::options()
                .append(true)
                .open(&path)
                .and_then(|f| f.set_modified(SystemTime::now()));
            drop(now); // on failure it is only deleted earlier
            return true;
        }
        // Written by another version of llama.cpp, or truncated, so unusable.
        let _ = fs::remove_file(&path);
        let _ = context.clear_kv_cache_seq(u32::try_from(seq).ok(), None, None);
        false
    }

    /// Saves the KV of a sequence that contains exactly these tokens.
    pub(crate) fn save(&self, context: &LlamaContext, seq: i32, tokens: &[LlamaToken]) {
        let path = self.path(tokens);
        if tokens.len() < MIN_TOKENS || path.is_file() {
            return;
        }
        let partial_file = self.directory.join(format!("{PARTIAL_PREFIX}{}", std::process::id()));
        // Without a saved prefix, conversations only start more slowly.
        let is_saved = context.state_seq_save_file(&partial_file, seq, tokens).is_ok();
        if !is_saved || fs::rename(&partial_file, &path).is_err() {
            let _ = fs::remove_file(&partial_file);
        }
        self.make_room();
    }

    fn path(&self, tokens: &[LlamaToken]) -> PathBuf {
        let mut hash = Sha256::new();
        for token in tokens {
            hash.update(token.0.to_le_bytes());
        }
        self.directory.join(format!(
            "{}-{}.kv",
            self.model,
            base::text::hex(&hash.finalize()[..12])
        ))
    }

    fn make_room(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|ext| ext == "kv"))
            .filter_map(|entry| {
                let meta = entry.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if total <= MAX_TOTAL {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= length;
            }
        }
    }
}

/// Returns the user's directory: `$XDG_CACHE_HOME/g3/kv` or `~/.g3/cache/kv`.
pub(crate) fn directory() -> io::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    match (variable("XDG_CACHE_HOME"), variable("HOME")) {
        (Some(cache), _) => Ok(Path::new(&cache).join("g3/kv")),
        (None, Some(home)) => Ok(Path::new(&home).join(".g3/cache/kv")),
        (None, None) => Err(io::Error::other("neither XDG_CACHE_HOME nor HOME is set")),
    }
}

/// Identifies a model file without reading all of it: by length, start and end.
fn fingerprint(model: &Path) -> io::Result<String> {
    const PART: u64 = 1 << 20;
    let mut file = File::open(model)?;
    let length = file.metadata()?.len();
    let mut hash = Sha256::new();
    hash.update(length.to_le_bytes());
    hash.update(llama_cpp_version());
    for start in [0, length.saturating_sub(PART)] {
        file.seek(SeekFrom::Start(start))?;
        let mut part = Vec::new();
        file.by_ref().take(PART).read_to_end(&mut part)?;
        hash.update(&part);
    }
    Ok(base::text::hex(&hash.finalize()[..12]))
}

/// Returns the version of llama.cpp, which determines the format of the state.
fn llama_cpp_version() -> &'static [u8] {
    concat!(env!("CARGO_PKG_VERSION"), " llama-cpp-2 0.1.160").as_bytes()
}
