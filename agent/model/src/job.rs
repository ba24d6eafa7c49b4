//! One reply: what is left to read of its prompt, what was written, and who hears it.

use std::sync::mpsc::Sender;
use std::time::Instant;

use base::host::wire::{Call, Fault, Mode, Stop, Tell, Told, Usage};
use llama_cpp_2::token::LlamaToken;
use serde_json::Value;

use crate::batch::Need;
use crate::cache::{Key, Seat};
use crate::envelope::{Envelope, Said};
use crate::marked::Marked;
use crate::prompt::Spoken;
use crate::sample::Sampler;

/// A sign of life every so many tokens that cannot be shown.
const PROGRESS: usize = 16;

/// A prompt that was made of a chat, and its limits.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The conversation.
    pub key: Key,
    /// The id of the request.
    pub id: u64,
    /// The whole prompt.
    pub prompt: Vec<LlamaToken>,
    /// How much of it is system text and tools.
    pub shared: usize,
    /// How calls are constrained.
    pub mode: Mode,
    /// The grammar of an envelope, or of what follows a mark.
    pub grammar: Option<String>,
    /// Tokens of output at most.
    pub max_tokens: usize,
    /// When it was asked.
    pub since: Instant,
}

/// A reply that is being written.
pub struct Job {
    /// What was asked.
    pub plan: Plan,
    /// Where its KV is.
    pub seat: Seat,
    /// Chooses its tokens.
    pub sampler: Sampler,
    /// Who hears it.
    pub hears: Sender<Told>,
    written: Vec<LlamaToken>,
    speech: Speech,
    first: Option<Instant>,
    called: bool,
}

/// How the written bytes are read.
enum Speech {
    Envelope(Envelope),
    Marked(Marked),
    Free(crate::envelope::Words),
}

/// What a call that begins or ends means for the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turning {
    /// Nothing changed.
    None,
    /// A call begins: constrain. The token that ended the mark may have gone on with this.
    Constrain(String),
    /// It ended: release.
    Release,
}

impl Job {
    /// A reply of which nothing is written.
    pub fn new(plan: Plan, seat: Seat, sampler: Sampler, hears: Sender<Told>) -> Job {
        let speech = match plan.mode {
            Mode::Envelope => Speech::Envelope(Envelope::default()),
            Mode::Lazy => Speech::Marked(Marked::default()),
            Mode::Free | Mode::Auto => Speech::Free(crate::envelope::Words::default()),
        };
        Job { plan, seat, sampler, hears, written: Vec::new(), speech, first: None, called: false }
    }

    /// What it waits for, when so many tokens stand in its sequence. The beginning that others
    /// share is read to its exact end first, so that it can be saved.
    pub fn need(&self, standing: usize) -> Need {
        let Plan { prompt, shared, .. } = &self.plan;
        match prompt.len().saturating_sub(standing) {
            0 => Need::Write,
            _ if standing < *shared => Need::Read(shared - standing),
            left => Need::Read(left),
        }
    }

    /// The next tokens to go into the batch.
    pub fn next(&self, standing: usize, count: usize) -> Vec<LlamaToken> {
        let prompt = &self.plan.prompt;
        if standing < prompt.len() {
            return prompt[standing..(standing + count).min(prompt.len())].to_vec();
        }
        self.written.last().copied().into_iter().collect()
    }

    /// Says that so much of the prompt is read.
    pub fn progress(&self, standing: usize) {
        self.tell(Tell::Progress {
            prefilled: standing.min(self.plan.prompt.len()) as u64,
            prompt: self.plan.prompt.len() as u64,
            written: self.written.len() as u64,
        });
    }

    /// Takes a token that was chosen, and its bytes.
    pub fn write(&mut self, token: LlamaToken, bytes: &[u8]) -> Turning {
        self.first.get_or_insert_with(Instant::now);
        self.written.push(token);
        let (said, turning) = self.speech.push(bytes);
        if said.is_empty() && self.written.len().is_multiple_of(PROGRESS) {
            self.progress(usize::MAX);
        }
        for said in said {
            self.say(said);
        }
        turning
    }

    /// Whether the reply is complete by its own form.
    pub fn is_complete(&self) -> bool {
        matches!(&self.speech, Speech::Envelope(envelope) if envelope.ended())
    }

    /// Whether it must end: the limit is reached, or it only repeats itself.
    pub fn is_spent(&self) -> bool {
        self.written.len() >= self.plan.max_tokens || repeats(&self.written)
    }

    /// Says the rest and the end. Gives what the model wrote, for the next prompt.
    pub fn finish(mut self, stop: Stop) -> Option<Spoken> {
        let speech = std::mem::replace(&mut self.speech, Speech::Free(Default::default()));
        let spoken = match speech {
            Speech::Envelope(envelope) => {
                let spoken = spoken(&envelope);
                if let Some(call) = envelope.call().filter(|_| stop != Stop::Cancelled) {
                    self.say(call);
                }
                spoken
            }
            Speech::Marked(marked) => {
                if let Some(said) = marked.finish().filter(|_| stop != Stop::Cancelled) {
                    self.say(said);
                }
                None
            }
            Speech::Free(_) => None,
        };
        let stop = if self.called && stop == Stop::Done { Stop::Calls } else { stop };
        let usage = self.usage();
        self.tell(Tell::Done { stop, usage });
        spoken
    }

    /// Says that there will be no reply.
    pub fn fail(self, fault: Fault) {
        self.tell(Tell::Error(fault));
    }

    fn say(&mut self, said: Said) {
        let tell = match said {
            Said::Text(text) => Tell::Text { text },
            Said::Call { name, args, cut } => {
                self.called = true;
                Tell::Call { name, args, truncated_at_cap: cut }
            }
        };
        self.tell(tell);
    }

    fn tell(&self, what: Tell) {
        // A client that is gone hears nothing; its connection's end cancels the reply.
        let _ = self.hears.send(Told { id: self.plan.id, what });
    }

    fn usage(&self) -> Usage {
        let millis = |from: Instant, to: Instant| to.duration_since(from).as_millis() as u64;
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        Usage {
            prompt: self.plan.prompt.len() as u64,
            reused: self.seat.reused as u64,
            prefilled: (self.plan.prompt.len() - self.seat.reused) as u64,
            written: self.written.len() as u64,
            prefill_ms: millis(self.plan.since, first),
            write_ms: millis(first, now),
            filtered: self.sampler.filtered,
        }
    }
}

impl Speech {
    fn push(&mut self, bytes: &[u8]) -> (Vec<Said>, Turning) {
        match self {
            Speech::Envelope(envelope) => {
                (envelope.push(bytes).into_iter().collect(), Turning::None)
            }
            Speech::Marked(marked) => {
                let before = marked.in_call();
                let said = marked.push(bytes);
                let turning = match (before, marked.in_call()) {
                    (false, true) => Turning::Constrain(marked.begun().to_owned()),
                    (true, false) => Turning::Release,
                    _ => Turning::None,
                };
                (said, turning)
            }
            Speech::Free(words) => {
                let text = words.push(bytes);
                let said = (!text.is_empty()).then_some(Said::Text(text));
                (said.into_iter().collect(), Turning::None)
            }
        }
    }
}

/// What was written, under the call as the conversation will repeat it.
fn spoken(envelope: &Envelope) -> Option<Spoken> {
    let raw = envelope.raw();
    let value: Value = serde_json::from_str(&raw).ok()?;
    let name = value.get("name")?.as_str()?.to_owned();
    Some(Spoken { call: Call { name, args: value.get("arguments")?.clone() }, raw })
}

/// Whether the end of a text is one short piece again and again: small models do not get out of
/// that by themselves.
fn repeats(tokens: &[LlamaToken]) -> bool {
    const LENGTH: usize = 160;
    if tokens.len() < LENGTH || !tokens.len().is_multiple_of(16) {
        return false;
    }
    let end = &tokens[tokens.len() - LENGTH..];
    (1..=20).any(|period| end.iter().zip(&end[period..]).all(|(a, b)| a == b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ids: impl IntoIterator<Item = i32>) -> Vec<LlamaToken> {
        ids.into_iter().map(LlamaToken).collect()
    }

    #[test]
    fn a_text_that_only_repeats_itself_is_seen() {
        assert!(repeats(&tokens([7, 8, 9].into_iter().cycle().take(320))));
        assert!(!repeats(&tokens(0..320)));
        assert!(!repeats(&tokens((0..16).chain([1; 48]))));
    }
}
