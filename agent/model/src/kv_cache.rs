//! The KV cache: which conversation is in which sequence of the context, and which are on disk.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::process::is_alive;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::token::LlamaToken;

use crate::prompt_prefix::{MIN_TOKENS, PARTIAL_PREFIX, PrefixStore};

/// The key of a conversation: its connection and its name there.
pub(crate) type ConversationKey = (u64, String);

/// The KV of all conversations.
#[derive(Debug)]
pub(crate) struct KvCache {
    slots: Vec<Slot>,
    spilled: HashMap<ConversationKey, Spilled>,
    prefixes: PrefixStore,
    directory: PathBuf,
    /// Capacity of the context in tokens.
    cells: usize,
    /// Size of a token's KV in bytes.
    kv_bytes: u64,
    clock: u64,
}

/// A sequence of the context.
#[derive(Debug, Default)]
struct Slot {
    owner: Option<ConversationKey>,
    tokens: Vec<LlamaToken>,
    /// Maximum number of tokens of its reply; 0 if none is being generated.
    reserved: usize,
    used_at: u64,
}

#[derive(Debug)]
struct Spilled {
    path: PathBuf,
    tokens: Vec<LlamaToken>,
    used_at: u64,
}

/// Maximum size in bytes of all conversations on disk; the oldest are deleted beyond it.
const SPILLED_BOUND: u64 = 1 << 30;

/// The file with the KV of an active reply while the context is replaced.
#[derive(Debug)]
pub(crate) struct MovedKv {
    seq: usize,
    path: PathBuf,
}

/// A sequence for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcquiredSlot {
    /// The sequence.
    pub seq: usize,
    /// Number of prompt tokens that it already contains.
    pub reused: usize,
}

/// Why a conversation has to wait for a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotWait {
    /// A reply of the same conversation is in progress.
    Turn,
    /// Replies in progress need the space.
    Room,
}

impl KvCache {
    /// Creates an empty cache for this many sequences and tokens; `kv_bytes` is the size of a
    /// token's KV.
    pub(crate) fn new(
        prefixes: PrefixStore,
        sequences: usize,
        cells: usize,
        kv_bytes: u64,
    ) -> io::Result<KvCache> {
        let parent = prefixes.directory();
        remove_left_behind(parent);
        let directory = parent.join(format!("spill-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let slots = (0..sequences).map(|_| Slot::default()).collect();
        let spilled = HashMap::new();
        Ok(KvCache { slots, spilled, prefixes, directory, cells, kv_bytes, clock: 0 })
    }

    /// Assigns a sequence to a conversation with this prompt and keeps the part that was read
    /// before. Spills nothing for a conversation that must wait. The first `shared` tokens of the
    /// prompt are its system prompt and tools.
    pub(crate) fn acquire(
        &mut self,
        context: &mut LlamaContext,
        key: &ConversationKey,
        prompt: &[LlamaToken],
        shared: usize,
        room: usize,
    ) -> Result<AcquiredSlot, SlotWait> {
        self.clock += 1;
        let own_slot = self.slots.iter().find(|slot| slot.owner.as_ref() == Some(key));
        if own_slot.is_some_and(|slot| slot.reserved > 0) {
            return Err(SlotWait::Turn);
        }
        let wanted = prompt.len() + room;
        let reserved: usize = self.slots.iter().map(|slot| slot.reserved).sum();
        if reserved + wanted > self.cells {
            return Err(SlotWait::Room);
        }
        let seq = self.find_seq(context, key).ok_or(SlotWait::Room)?;
        // The last token is always read again, because the reply starts from its logits.
        let most = prompt.len().saturating_sub(1);
        self.cut_to(context, seq, prompt, most);
        self.slots[seq].reserved = wanted;
        self.slots[seq].used_at = self.clock;
        self.make_room(context, seq);
        // Only now is there space for the spilled KV.
        if let Some(spilled) = self.spilled.remove(key) {
            self.bring_back(context, seq, &spilled);
        }
        if self.slots[seq].tokens.is_empty() {
            self.begin(context, seq, prompt, shared);
        }
        self.cut_to(context, seq, prompt, most);
        Ok(AcquiredSlot { seq, reused: self.slots[seq].tokens.len() })
    }

    /// Returns the tokens in a sequence.
    pub(crate) fn tokens(&self, seq: usize) -> &[LlamaToken] {
        &self.slots[seq].tokens
    }

    /// Records that tokens were read into a sequence. A complete shared prefix is saved for other
    /// conversations.
    pub(crate) fn grow(
        &mut self,
        context: &LlamaContext,
        seq: usize,
        tokens: &[LlamaToken],
        shared: usize,
    ) {
        let slot = &mut self.slots[seq];
        let before = slot.tokens.len();
        slot.tokens.extend_from_slice(tokens);
        if before < shared && slot.tokens.len() == shared {
            self.prefixes.save(context, id(seq), &slot.tokens);
        }
    }

    /// Saves all KV of a context that is about to be dropped. It is kept on disk, so that the
    /// memory is needed only once. Returns what [`KvCache::restore_all`] needs for the replies in
    /// progress.
    pub(crate) fn save_all(&mut self, context: &mut LlamaContext) -> Vec<MovedKv> {
        let mut moved = Vec::new();
        for seq in 0..self.slots.len() {
            let slot = &self.slots[seq];
            if slot.reserved == 0 {
                if slot.owner.is_some() {
                    self.spill(context, seq);
                }
                continue;
            }
            let path = self.directory.join(format!("moved-{seq}.kv"));
            if !slot.tokens.is_empty() {
                self.save(context, seq, &path);
                moved.push(MovedKv { seq, path });
            }
        }
        moved
    }

    /// Loads the replies in progress into the next context. Returns false if one of them lost its
    /// KV.
    pub(crate) fn restore_all(&mut self, context: &mut LlamaContext, moved: &[MovedKv]) -> bool {
        let mut sound = true;
        for MovedKv { seq, path } in moved {
            let tokens = std::mem::take(&mut self.slots[*seq].tokens);
            sound &= self.load(context, *seq, path, tokens);
        }
        sound
    }

    /// Ends a reply. Its KV is kept until the space is needed.
    pub(crate) fn rest(&mut self, seq: usize) {
        self.slots[seq].reserved = 0;
    }

    /// Clears a sequence, whose content is invalid after a decoding error.
    pub(crate) fn forget(&mut self, context: &mut LlamaContext, seq: usize) {
        self.cut(context, seq, 0);
        self.slots[seq].owner = None;
        self.slots[seq].reserved = 0;
    }

    /// Removes the conversations of a closed connection.
    pub(crate) fn close(&mut self, context: &mut LlamaContext, connection: u64) {
        for seq in 0..self.slots.len() {
            if self.slots[seq].owner.as_ref().is_some_and(|(owner, _)| *owner == connection) {
                self.forget(context, seq);
            }
        }
        self.spilled.retain(|(owner, _), spilled| {
            if *owner == connection {
                let _ = fs::remove_file(&spilled.path);
            }
            *owner != connection
        });
    }

    /// Returns the number of conversations in memory and on disk.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.slots.iter().filter(|slot| slot.owner.is_some()).count(), self.spilled.len())
    }

    /// Returns the conversation's own sequence, else a free one, else the least recently used one.
    fn find_seq(&mut self, context: &mut LlamaContext, key: &ConversationKey) -> Option<usize> {
        if let Some(seq) = self.slots.iter().position(|slot| slot.owner.as_ref() == Some(key)) {
            return Some(seq);
        }
        let free = self.slots.iter().position(|slot| slot.owner.is_none());
        let seq = match free {
            Some(seq) => seq,
            None => {
                let seq = self.oldest_idle(None)?;
                self.spill(context, seq);
                seq
            }
        };
        self.slots[seq].owner = Some(key.clone());
        Some(seq)
    }

    /// Spills idle conversations until all reserved space fits.
    fn make_room(&mut self, context: &mut LlamaContext, keep: usize) {
        let used = |slot: &Slot| slot.tokens.len().max(slot.reserved);
        while self.slots.iter().map(used).sum::<usize>() > self.cells {
            let Some(seq) = self.oldest_idle(Some(keep)) else { return };
            self.spill(context, seq);
        }
    }

    fn oldest_idle(&self, keep: Option<usize>) -> Option<usize> {
        let idle = (0..self.slots.len()).filter(|seq| {
            let slot = &self.slots[*seq];
            slot.owner.is_some() && slot.reserved == 0 && Some(*seq) != keep
        });
        idle.min_by_key(|seq| self.slots[*seq].used_at)
    }

    fn spill(&mut self, context: &mut LlamaContext, seq: usize) {
        let used_at = self.slots[seq].used_at;
        let path = self.directory.join(format!("{used_at}-{seq}.kv"));
        let bytes = self.slots[seq].tokens.len() as u64 * self.kv_bytes;
        if bytes <= SPILLED_BOUND
            && self.save(context, seq, &path)
            && let Some(owner) = self.slots[seq].owner.take()
        {
            let tokens = std::mem::take(&mut self.slots[seq].tokens);
            self.spilled.insert(owner, Spilled { path, tokens, used_at });
        }
        self.forget(context, seq);
        for key in surplus(&self.spilled, self.kv_bytes, SPILLED_BOUND) {
            if let Some(spilled) = self.spilled.remove(&key) {
                let _ = fs::remove_file(spilled.path);
            }
        }
    }

    fn bring_back(&mut self, context: &mut LlamaContext, seq: usize, spilled: &Spilled) {
        self.cut(context, seq, 0);
        self.load(context, seq, &spilled.path, spilled.tokens.clone());
    }

    /// Saves the KV of a sequence. Leaves no file if it cannot be written completely.
    fn save(&self, context: &LlamaContext, seq: usize, path: &Path) -> bool {
        let tokens = &self.slots[seq].tokens;
        let saved =
            !tokens.is_empty() && context.state_seq_save_file(path, id(seq), tokens).is_ok();
        if !saved {
            let _ = fs::remove_file(path);
        }
        saved
    }

    /// Loads the saved KV of these tokens into an empty sequence and removes the file.
    fn load(
        &mut self,
        context: &mut LlamaContext,
        seq: usize,
        path: &Path,
        tokens: Vec<LlamaToken>,
    ) -> bool {
        let loaded = context.state_seq_load_file(path, id(seq), tokens.len() + 1);
        let _ = fs::remove_file(path);
        let whole = matches!(loaded, Ok((found, _)) if found == tokens);
        if whole {
            self.slots[seq].tokens = tokens;
        } else {
            self.cut(context, seq, 0);
        }
        whole
    }

    /// Starts a new conversation with the common prefix of another one, or with a saved prefix.
    fn begin(
        &mut self,
        context: &mut LlamaContext,
        seq: usize,
        prompt: &[LlamaToken],
        shared: usize,
    ) {
        let others = (0..self.slots.len()).filter(|other| *other != seq);
        let best = others.map(|other| (common(&self.slots[other].tokens, prompt), other)).max();
        let (length, other) = best.unwrap_or_default();
        if length < shared
            && (MIN_TOKENS..=prompt.len()).contains(&shared)
            && self.prefixes.load(context, id(seq), &prompt[..shared])
        {
            self.slots[seq].tokens = prompt[..shared].to_vec();
            return;
        }
        // Sequences share cells, so this takes neither time nor memory.
        let end = u32::try_from(length).ok();
        if length > 0 && context.kv_cache_seq_cp(id(other), id(seq), Some(0), end).is_ok() {
            self.slots[seq].tokens = prompt[..length].to_vec();
        }
    }

    /// Removes tokens that differ from a prompt, and those beyond `most`.
    fn cut_to(&mut self, context: &mut LlamaContext, seq: usize, to: &[LlamaToken], most: usize) {
        let length = common(&self.slots[seq].tokens, to).min(most);
        self.cut(context, seq, length);
    }

    fn cut(&mut self, context: &mut LlamaContext, seq: usize, length: usize) {
        let start = u32::try_from(length).ok();
        let whole = u32::try_from(seq).ok();
        // Some models (recurrent ones) cannot remove a part; then everything is read again.
        if length > 0 && context.kv_cache_seq_rm(id(seq), start, None).is_ok() {
            self.slots[seq].tokens.truncate(length);
            return;
        }
        let _ = context.clear_kv_cache_seq(whole, None, None);
        self.slots[seq].tokens.clear();
    }
}

impl Drop for KvCache {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn common(one: &[LlamaToken], other: &[LlamaToken]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

fn id(seq: usize) -> i32 {
    i32::try_from(seq).unwrap_or(0)
}

/// Returns the conversations to delete, oldest first, so that the rest is within the limit.
fn surplus(
    spilled: &HashMap<ConversationKey, Spilled>,
    kv_bytes: u64,
    bound: u64,
) -> Vec<ConversationKey> {
    let mut newest: Vec<(&ConversationKey, &Spilled)> = spilled.iter().collect();
    newest.sort_by_key(|(_, spilled)| std::cmp::Reverse(spilled.used_at));
    let mut bytes = 0;
    newest.retain(|(_, spilled)| {
        bytes += spilled.tokens.len() as u64 * kv_bytes;
        bytes > bound
    });
    newest.into_iter().rev().map(|(key, _)| key.clone()).collect()
}

/// Removes the files of killed hosts: directories of conversations and incomplete prefixes.
fn remove_left_behind(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let pid = name.strip_prefix("spill-").or_else(|| name.strip_prefix(PARTIAL_PREFIX));
        if pid.and_then(|pid| pid.parse().ok()).is_some_and(|pid| !is_alive(pid)) {
            let path = entry.path();
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
}

#[cfg(test)]
mod tests;
