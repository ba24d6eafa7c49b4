//! Which conversation's KV stands in which sequence of the context, and which waits on disk.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::process::is_alive;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::token::LlamaToken;

use crate::prompt_prefix::{HALF, PrefixStore, WORTH};

/// A conversation: its connection and its name there.
pub(crate) type ConversationKey = (u64, String);

/// The KV of all conversations.
#[derive(Debug)]
pub(crate) struct KvCache {
    slots: Vec<Slot>,
    spilled: HashMap<ConversationKey, Spilled>,
    prefixes: PrefixStore,
    directory: PathBuf,
    /// Tokens that fit into the context.
    cells: usize,
    /// Bytes of a token's KV.
    kv_bytes: u64,
    clock: u64,
}

/// A sequence of the context.
#[derive(Debug, Default)]
struct Slot {
    owner: Option<ConversationKey>,
    tokens: Vec<LlamaToken>,
    /// Tokens that its reply may come to; 0 when nothing is being written.
    reserved: usize,
    used_at: u64,
}

#[derive(Debug)]
struct Spilled {
    path: PathBuf,
    tokens: Vec<LlamaToken>,
    used_at: u64,
}

/// Bytes of all conversations on disk; the oldest are forgotten past it.
const SPILLED_BOUND: u64 = 1 << 30;

/// Where the KV of a reply that is being written waits for the next context.
#[derive(Debug)]
pub(crate) struct MovedKv {
    seq: usize,
    path: PathBuf,
}

/// A sequence that a reply may be written into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcquiredSlot {
    /// The sequence.
    pub seq: usize,
    /// How much of the prompt stands in it already.
    pub reused: usize,
}

/// Why a conversation is not seated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotWait {
    /// A reply of the same conversation is being written.
    Turn,
    /// Replies that are being written need the room.
    Room,
}

impl KvCache {
    /// An empty cache for so many sequences and tokens; the KV of a token has so many bytes.
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

    /// Seats a conversation whose prompt is known: what of it was read before stays. Nothing is
    /// spilled for a conversation that must wait. `shared` tokens of the prompt are its system
    /// text and tools.
    pub(crate) fn seat(
        &mut self,
        context: &mut LlamaContext,
        key: &ConversationKey,
        prompt: &[LlamaToken],
        shared: usize,
        room: usize,
    ) -> Result<AcquiredSlot, SlotWait> {
        self.clock += 1;
        let own = self.slots.iter().find(|slot| slot.owner.as_ref() == Some(key));
        if own.is_some_and(|slot| slot.reserved > 0) {
            return Err(SlotWait::Turn);
        }
        let wanted = prompt.len() + room;
        let reserved: usize = self.slots.iter().map(|slot| slot.reserved).sum();
        if reserved + wanted > self.cells {
            return Err(SlotWait::Room);
        }
        let seq = self.find_seq(context, key).ok_or(SlotWait::Room)?;
        // The last token is always read again: its logits are what the reply begins with.
        let most = prompt.len().saturating_sub(1);
        self.cut_to(context, seq, prompt, most);
        self.slots[seq].reserved = wanted;
        self.slots[seq].used_at = self.clock;
        self.make_room(context, seq);
        // Only now is there room for what was spilled.
        if let Some(spilled) = self.spilled.remove(key) {
            self.bring_back(context, seq, &spilled);
        }
        if self.slots[seq].tokens.is_empty() {
            self.begin(context, seq, prompt, shared);
        }
        self.cut_to(context, seq, prompt, most);
        Ok(AcquiredSlot { seq, reused: self.slots[seq].tokens.len() })
    }

    /// What stands in a sequence.
    pub(crate) fn tokens(&self, seq: usize) -> &[LlamaToken] {
        &self.slots[seq].tokens
    }

    /// Notes that tokens were read into a sequence; a complete beginning is saved for others.
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

    /// Takes all KV out of a context that is about to go. It waits on disk, so that memory is
    /// needed once; gives what [`Cache::come_back`] needs of the replies that are being written.
    pub(crate) fn leave(&mut self, context: &mut LlamaContext) -> Vec<MovedKv> {
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

    /// Puts the replies that are being written into the next context; false when one of them has
    /// lost its KV.
    pub(crate) fn come_back(&mut self, context: &mut LlamaContext, moved: &[MovedKv]) -> bool {
        let mut sound = true;
        for MovedKv { seq, path } in moved {
            let tokens = std::mem::take(&mut self.slots[*seq].tokens);
            sound &= self.load(context, *seq, path, tokens);
        }
        sound
    }

    /// The reply has ended; its KV stays until the room is needed.
    pub(crate) fn rest(&mut self, seq: usize) {
        self.slots[seq].reserved = 0;
    }

    /// Nothing can be trusted in a sequence after a decoding error.
    pub(crate) fn forget(&mut self, context: &mut LlamaContext, seq: usize) {
        self.cut(context, seq, 0);
        self.slots[seq].owner = None;
        self.slots[seq].reserved = 0;
    }

    /// A connection closed: its conversations end.
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

    /// Conversations in memory and on disk.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.slots.iter().filter(|slot| slot.owner.is_some()).count(), self.spilled.len())
    }

    /// The conversation's own sequence, else a free one, else that of the one used longest ago.
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

    /// Spills idle conversations until all that is reserved fits.
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

    /// Writes the KV of a sequence; of a file that could not be written nothing is left.
    fn save(&self, context: &LlamaContext, seq: usize, path: &Path) -> bool {
        let tokens = &self.slots[seq].tokens;
        let saved =
            !tokens.is_empty() && context.state_seq_save_file(path, id(seq), tokens).is_ok();
        if !saved {
            let _ = fs::remove_file(path);
        }
        saved
    }

    /// Reads what was saved of these tokens into an empty sequence and removes the file.
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

    /// A new conversation begins with what another has read already, or with a saved beginning.
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
            && (WORTH..=prompt.len()).contains(&shared)
            && self.prefixes.load(context, id(seq), &prompt[..shared])
        {
            self.slots[seq].tokens = prompt[..shared].to_vec();
            return;
        }
        // Cells are shared between sequences, so this takes neither time nor memory.
        let end = u32::try_from(length).ok();
        if length > 0 && context.kv_cache_seq_cp(id(other), id(seq), Some(0), end).is_ok() {
            self.slots[seq].tokens = prompt[..length].to_vec();
        }
    }

    /// Forgets what does not agree with a prompt, and what is past so many tokens.
    fn cut_to(&mut self, context: &mut LlamaContext, seq: usize, to: &[LlamaToken], most: usize) {
        let length = common(&self.slots[seq].tokens, to).min(most);
        self.cut(context, seq, length);
    }

    fn cut(&mut self, context: &mut LlamaContext, seq: usize, length: usize) {
        let start = u32::try_from(length).ok();
        let whole = u32::try_from(seq).ok();
        // Some models (recurrent ones) cannot forget a part; then all of it is read again.
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

/// The conversations to forget, oldest first, so that the rest is within so many bytes.
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

/// What a host that was killed left on disk: a directory of conversations, half a beginning.
fn remove_left_behind(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let pid = name.strip_prefix("spill-").or_else(|| name.strip_prefix(HALF));
        if pid.and_then(|pid| pid.parse().ok()).is_some_and(|pid| !is_alive(pid)) {
            let path = entry.path();
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
}

#[cfg(test)]
mod tests;
