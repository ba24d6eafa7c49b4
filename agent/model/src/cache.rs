//! Which conversation's KV stands in which sequence of the context, and which waits on disk.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::process::is_alive;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::session::{LlamaStateSeqFlags, SeqState};
use llama_cpp_2::token::LlamaToken;

use crate::prefix::{Prefixes, WORTH};

/// A conversation: its connection and its name there.
pub type Key = (u64, String);

/// The KV of all conversations.
#[derive(Debug)]
pub struct Cache {
    slots: Vec<Slot>,
    spilled: HashMap<Key, Spilled>,
    prefixes: Prefixes,
    directory: PathBuf,
    /// Tokens that fit into the context.
    cells: usize,
    clock: u64,
}

/// A sequence of the context.
#[derive(Debug, Default)]
struct Slot {
    owner: Option<Key>,
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

/// Conversations on disk; the oldest are forgotten past it.
const SPILLED_BOUND: usize = 32;

/// A sequence that a reply may be written into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The sequence.
    pub seq: usize,
    /// How much of the prompt stands in it already.
    pub reused: usize,
}

impl Cache {
    /// An empty cache for so many sequences and tokens.
    pub fn new(prefixes: Prefixes, sequences: usize, cells: usize) -> io::Result<Cache> {
        let parent = prefixes.directory();
        remove_left_behind(parent);
        let directory = parent.join(format!("spill-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let slots = (0..sequences).map(|_| Slot::default()).collect();
        Ok(Cache { slots, spilled: HashMap::new(), prefixes, directory, cells, clock: 0 })
    }

    /// Seats a conversation whose prompt is known: what of it was read before stays. `None`: all
    /// seats are taken by replies that are being written; try again when one has ended.
    /// `shared` tokens of the prompt are its system text and tools.
    pub fn seat(
        &mut self,
        context: &mut LlamaContext,
        key: &Key,
        prompt: &[LlamaToken],
        shared: usize,
        room: usize,
    ) -> Option<Seat> {
        self.clock += 1;
        let seq = self.find_seq(context, key)?;
        self.slots[seq].reserved = prompt.len() + room;
        self.slots[seq].used_at = self.clock;
        if !self.make_room(context, seq) {
            self.slots[seq].reserved = 0;
            return None;
        }
        // Only now is there room for what was spilled.
        if let Some(spilled) = self.spilled.remove(key) {
            self.bring_back(context, seq, &spilled);
        }
        if self.slots[seq].tokens.is_empty() {
            self.begin(context, seq, prompt, shared);
        }
        // The last token is always read again: its logits are what the reply begins with.
        let most = prompt.len().saturating_sub(1);
        let reused = common(&self.slots[seq].tokens, prompt).min(most);
        self.cut(context, seq, reused);
        let reused = self.slots[seq].tokens.len();
        Some(Seat { seq, reused })
    }

    /// What stands in a sequence.
    pub fn tokens(&self, seq: usize) -> &[LlamaToken] {
        &self.slots[seq].tokens
    }

    /// Notes that tokens were read into a sequence; a complete beginning is saved for others.
    pub fn grow(
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

    /// Takes all KV out of a context that is about to go.
    pub fn lift(&self, context: &LlamaContext) -> Vec<Option<SeqState>> {
        let all = LlamaStateSeqFlags::empty();
        let state = |(seq, slot): (usize, &Slot)| {
            (!slot.tokens.is_empty()).then(|| context.state_seq_get(id(seq), all).ok()).flatten()
        };
        self.slots.iter().enumerate().map(state).collect()
    }

    /// Puts it into the next one; false when a reply that is being written has lost its KV.
    pub fn settle(&mut self, context: &mut LlamaContext, states: &[Option<SeqState>]) -> bool {
        let mut sound = true;
        for (seq, state) in states.iter().enumerate() {
            if self.slots[seq].tokens.is_empty() {
                continue;
            }
            let set = state.as_ref().is_some_and(|it| context.state_seq_set(it, id(seq)).is_ok());
            if !set {
                sound = sound && self.slots[seq].reserved == 0;
                self.cut(context, seq, 0);
            }
        }
        sound
    }

    /// The reply has ended; its KV stays until the room is needed.
    pub fn rest(&mut self, seq: usize) {
        self.slots[seq].reserved = 0;
    }

    /// Nothing can be trusted in a sequence after a decoding error.
    pub fn forget(&mut self, context: &mut LlamaContext, seq: usize) {
        self.cut(context, seq, 0);
        self.slots[seq].owner = None;
        self.slots[seq].reserved = 0;
    }

    /// A connection closed: its conversations end.
    pub fn close(&mut self, context: &mut LlamaContext, connection: u64) {
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
    pub fn count(&self) -> (usize, usize) {
        (self.slots.iter().filter(|slot| slot.owner.is_some()).count(), self.spilled.len())
    }

    /// The conversation's own sequence, else a free one, else that of the one used longest ago.
    fn find_seq(&mut self, context: &mut LlamaContext, key: &Key) -> Option<usize> {
        if let Some(seq) = self.slots.iter().position(|slot| slot.owner.as_ref() == Some(key)) {
            // One reply at a time: a second question of the same conversation waits.
            return (self.slots[seq].reserved == 0).then_some(seq);
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

    /// Spills idle conversations until all that is reserved fits; false when it cannot.
    fn make_room(&mut self, context: &mut LlamaContext, keep: usize) -> bool {
        loop {
            let used: usize =
                self.slots.iter().map(|slot| slot.tokens.len().max(slot.reserved)).sum();
            if used <= self.cells {
                return true;
            }
            let Some(seq) = self.oldest_idle(Some(keep)) else { return false };
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
        let tokens = self.slots[seq].tokens.clone();
        let used_at = self.slots[seq].used_at;
        let path = self.directory.join(format!("{used_at}-{seq}.kv"));
        let saved =
            !tokens.is_empty() && context.state_seq_save_file(&path, id(seq), &tokens).is_ok();
        if let (true, Some(owner)) = (saved, self.slots[seq].owner.take()) {
            self.spilled.insert(owner, Spilled { path, tokens, used_at });
        }
        self.forget(context, seq);
        while self.spilled.len() > SPILLED_BOUND {
            let oldest = self.spilled.iter().min_by_key(|(_, spilled)| spilled.used_at);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { break };
            if let Some(spilled) = self.spilled.remove(&key) {
                let _ = fs::remove_file(spilled.path);
            }
        }
    }

    fn bring_back(&mut self, context: &mut LlamaContext, seq: usize, spilled: &Spilled) {
        let most = spilled.tokens.len() + 1;
        match context.state_seq_load_file(&spilled.path, id(seq), most) {
            Ok((tokens, _)) if tokens == spilled.tokens => self.slots[seq].tokens = tokens,
            Ok(_) | Err(_) => self.cut(context, seq, 0),
        }
        let _ = fs::remove_file(&spilled.path);
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

impl Drop for Cache {
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

/// What a host that was killed left on disk.
fn remove_left_behind(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("spill-")?.parse().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
