//! Rejects a model that cannot work, with an error message, before anything is loaded.

use std::fs::File;
use std::io;
use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::test_hooks::TestHook;
use sha2::{Digest, Sha256};

use crate::gguf::{self, GgufHeader};
use crate::options::Serve;

/// Memory in bytes for code, scratch space and the tokenizer, in addition to weights and KV.
const OVERHEAD: u64 = 400 << 20;

/// A model that can be loaded, and its sizes.
#[derive(Clone, Debug)]
pub(crate) struct CheckedModel {
    /// The header of the file.
    pub head: GgufHeader,
    /// Context of a conversation in tokens.
    pub context: u32,
    /// Number of tokens of all conversations in memory.
    pub cells: u32,
}

/// Checks the file, its hash and the memory.
pub(crate) fn check(serve: &Serve) -> Result<CheckedModel> {
    let path = &serve.model;
    let length = std::fs::metadata(path).or_fail(|| unreadable(path))?.len();
    let head = gguf::read(path).map_err(|error| {
        Failure::usage(unreadable(path)).because(error).hint("g3 model pull").hint("g3 model list")
    })?;
    if length < head.length {
        let reason = format!("it has {length} of {} bytes: it was cut off", head.length);
        return Err(Failure::usage(unreadable(path)).because(reason).hint("g3 model pull"));
    }
    if let Some(expected) = &serve.sha256 {
        check_hash(path, expected)?;
    }
    let context = serve.context.min(u32::try_from(head.context).unwrap_or(u32::MAX));
    let max_cells = (serve.memory << 20) / head.kv_bytes.max(1);
    let wanted_cells = u64::from(context) * u64::from(serve.parallel);
    let cells = wanted_cells.min(max_cells.max(u64::from(context))).next_multiple_of(256);
    let checked = CheckedModel { context, cells: u32::try_from(cells).unwrap_or(context), head };
    check_memory(path, need(&checked, length), available())?;
    Ok(checked)
}

fn unreadable(path: &Path) -> String {
    format!("cannot use the model file `{}`", path.display())
}

fn check_hash(path: &Path, expected: &str) -> Result<()> {
    let actual = hash(path).or_fail(|| unreadable(path))?;
    if actual.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(Failure::usage(unreadable(path))
        .because(format!("its SHA-256 is {actual}, and {expected} was pinned"))
        .hint("g3 model pull"))
}

/// Returns the SHA-256 of a file in hexadecimal.
fn hash(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut HashWriter(&mut hash))?;
    Ok(base::text::hex(&hash.finalize()))
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the memory needed in bytes: weights (repacked for the processor, measured at up to 1.6
/// times the file), KV and the rest.
fn need(checked: &CheckedModel, length: u64) -> u64 {
    length / 10 * 16 + u64::from(checked.cells) * checked.head.kv_bytes + OVERHEAD
}

fn check_memory(path: &Path, need: u64, available: Option<u64>) -> Result<()> {
    let Some(available) = available.filter(|available| *available < need) else { return Ok(()) };
    let reason = format!("it needs {} MiB and {} MiB are free", need >> 20, available >> 20);
    Err(Failure::usage(format!("too little memory for the model `{}`", path.display()))
        .because(reason)
        .hint("close other programs")
        .hint("a smaller model: g3 model pull qwen2.5-coder-0.5b")
        .hint("a smaller context: context_length in [providers.embedded.default]"))
}

/// Returns `MemAvailable` in bytes, or the value set by a test.
fn available() -> Option<u64> {
    if let Some(bytes) = TestHook::Memory.number() {
        return Some(bytes);
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
