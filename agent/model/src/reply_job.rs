//! One reply: what is left to read of its prompt, what was written, and who hears it.

use std::sync::mpsc::Sender;
use std::time::Instant;

use base::model_host::wire::{
    HostFault, HostResponse, HostResponseLine, HostStopReason, HostToolCall, ReplyUsage,
    ToolCallMode,
};
use llama_cpp_2::token::LlamaToken;
use serde_json::Value;

use crate::batch::Need;
use crate::json_envelope::{JsonEnvelope, ModelOutput};
use crate::kv_cache::{AcquiredSlot, ConversationKey};
use crate::prompt::VerbatimCall;
use crate::sample::Sampler;
use crate::tool_call_parser::ToolCallParser;

/// A sign of life every so many tokens that cannot be shown.
const PROGRESS: usize = 16;

/// A prompt that was made of a chat, and its limits.
#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    /// The conversation.
    pub key: ConversationKey,
    /// The id of the request.
    pub id: u64,
    /// The whole prompt.
    pub prompt: Vec<LlamaToken>,
    /// How much of it is system text and tools.
    pub shared: usize,
    /// How calls are constrained.
    pub mode: ToolCallMode,
    /// The grammar of an envelope, or of what follows a mark.
    pub grammar: Option<String>,
    /// Tokens of output at most.
    pub max_tokens: usize,
    /// When it was asked.
    pub since: Instant,
}

/// A reply that is being written.
pub(crate) struct ReplyJob {
    /// What was asked.
    pub plan: JobPlan,
    /// Where its KV is.
    pub seat: AcquiredSlot,
    /// Chooses its tokens.
    pub sampler: Sampler,
    /// Who hears it.
    pub hears: Sender<HostResponseLine>,
    written: Vec<LlamaToken>,
    speech: OutputParser,
    first: Option<Instant>,
    called: bool,
}

/// How the written bytes are read.
enum OutputParser {
    Envelope(JsonEnvelope),
    Marked(ToolCallParser),
    Free(crate::json_envelope::Utf8Decoder),
}

/// What a call that begins or ends means for the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrammarSwitch {
    /// Nothing changed.
    None,
    /// A call begins: constrain. The token that ended the mark may have gone on with this.
    Constrain(String),
    /// It ended: release.
    Release,
}

impl ReplyJob {
    /// A reply of which nothing is written.
    pub(crate) fn new(
        plan: JobPlan,
        seat: AcquiredSlot,
        sampler: Sampler,
        hears: Sender<HostResponseLine>,
    ) -> ReplyJob {
        let speech = match plan.mode {
            ToolCallMode::Envelope => OutputParser::Envelope(JsonEnvelope::default()),
            ToolCallMode::Lazy => OutputParser::Marked(ToolCallParser::default()),
            ToolCallMode::Free | ToolCallMode::Auto => {
                OutputParser::Free(crate::json_envelope::Utf8Decoder::default())
            }
        };
        ReplyJob {
            plan,
            seat,
            sampler,
            hears,
            written: Vec::new(),
            speech,
            first: None,
            called: false,
        }
    }

    /// What it waits for, when so many tokens stand in its sequence. The beginning that others
    /// share is read to its exact end first, so that it can be saved.
    pub(crate) fn need(&self, standing: usize) -> Need {
        let JobPlan { prompt, shared, .. } = &self.plan;
        match prompt.len().saturating_sub(standing) {
            0 => Need::Write,
            _ if standing < *shared => Need::Read(shared - standing),
            left => Need::Read(left),
        }
    }

    /// The next tokens to go into the batch.
    pub(crate) fn next(&self, standing: usize, count: usize) -> Vec<LlamaToken> {
        let prompt = &self.plan.prompt;
        if standing < prompt.len() {
            return prompt[standing..(standing + count).min(prompt.len())].to_vec();
        }
        self.written.last().copied().into_iter().collect()
    }

    /// Says that so much of the prompt is read.
    pub(crate) fn progress(&self, standing: usize) {
        self.tell(HostResponse::Progress {
            prefilled: standing.min(self.plan.prompt.len()) as u64,
            prompt: self.plan.prompt.len() as u64,
            written: self.written.len() as u64,
        });
    }

    /// Takes a token that was chosen, and its bytes.
    pub(crate) fn write(&mut self, token: LlamaToken, bytes: &[u8]) -> GrammarSwitch {
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
    pub(crate) fn is_complete(&self) -> bool {
        matches!(&self.speech, OutputParser::Envelope(envelope) if envelope.ended())
    }

    /// Whether it must end: the limit is reached, or it only repeats itself.
    pub(crate) fn is_spent(&self) -> bool {
        self.written.len() >= self.plan.max_tokens || repeats(&self.written)
    }

    /// Says the rest and the end. Gives what the model wrote, for the next prompt.
    pub(crate) fn finish(mut self, stop: HostStopReason) -> Option<VerbatimCall> {
        let speech = std::mem::replace(&mut self.speech, OutputParser::Free(Default::default()));
        let spoken = match speech {
            OutputParser::Envelope(envelope) => {
                let spoken = spoken(&envelope);
                if let Some(call) = envelope.call().filter(|_| stop != HostStopReason::Cancelled) {
                    self.say(call);
                }
                spoken
            }
            OutputParser::Marked(marked) => {
                if let Some(said) = marked.finish().filter(|_| stop != HostStopReason::Cancelled) {
                    self.say(said);
                }
                None
            }
            OutputParser::Free(_) => None,
        };
        let stop =
            if self.called && stop == HostStopReason::Done { HostStopReason::Calls } else { stop };
        let usage = self.usage();
        self.tell(HostResponse::Done { stop, usage });
        spoken
    }

    /// Says that there will be no reply.
    pub(crate) fn fail(self, fault: HostFault) {
        self.tell(HostResponse::Error(fault));
    }

    fn say(&mut self, said: ModelOutput) {
        let tell = match said {
            ModelOutput::Text(text) => HostResponse::Text { text },
            ModelOutput::Call { name, args, cut } => {
                self.called = true;
                HostResponse::Call { name, args, truncated_at_cap: cut }
            }
        };
        self.tell(tell);
    }

    fn tell(&self, what: HostResponse) {
        // A client that is gone hears nothing; its connection's end cancels the reply.
        let _ = self.hears.send(HostResponseLine { id: self.plan.id, what });
    }

    fn usage(&self) -> ReplyUsage {
        let millis = |from: Instant, to: Instant| to.duration_since(from).as_millis() as u64;
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        ReplyUsage {
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

impl OutputParser {
    fn push(&mut self, bytes: &[u8]) -> (Vec<ModelOutput>, GrammarSwitch) {
        match self {
            OutputParser::Envelope(envelope) => {
                (envelope.push(bytes).into_iter().collect(), GrammarSwitch::None)
            }
            OutputParser::Marked(marked) => {
                let before = marked.in_call();
                let said = marked.push(bytes);
                let turning = match (before, marked.in_call()) {
                    (false, true) => GrammarSwitch::Constrain(marked.begun().to_owned()),
                    (true, false) => GrammarSwitch::Release,
                    _ => GrammarSwitch::None,
                };
                (said, turning)
            }
            OutputParser::Free(words) => {
                let text = words.push(bytes);
                let said = (!text.is_empty()).then_some(ModelOutput::Text(text));
                (said.into_iter().collect(), GrammarSwitch::None)
            }
        }
    }
}

/// What was written, under the call as the conversation will repeat it.
fn spoken(envelope: &JsonEnvelope) -> Option<VerbatimCall> {
    let raw = envelope.raw();
    let value: Value = serde_json::from_str(&raw).ok()?;
    let name = value.get("name")?.as_str()?.to_owned();
    Some(VerbatimCall { call: HostToolCall { name, args: value.get("arguments")?.clone() }, raw })
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
