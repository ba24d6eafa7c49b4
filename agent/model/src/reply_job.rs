//! A reply in progress: the rest of its prompt, its output, and its receiver.

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

/// Number of hidden tokens after which a keep-alive is sent.
const PROGRESS: usize = 16;

/// The prompt built from a chat, and its limits.
#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    /// The conversation.
    pub key: ConversationKey,
    /// The id of the request.
    pub id: u64,
    /// The whole prompt.
    pub prompt: Vec<LlamaToken>,
    /// Number of tokens of the system prompt and tools in it.
    pub shared: usize,
    /// How calls are constrained.
    pub mode: ToolCallMode,
    /// The grammar of an envelope, or of what follows a mark.
    pub grammar: Option<String>,
    /// Maximum number of output tokens.
    pub max_tokens: usize,
    /// The time of the request.
    pub since: Instant,
}

/// A reply in progress.
pub(crate) struct ReplyJob {
    /// The request.
    pub plan: JobPlan,
    /// The sequence with its KV.
    pub slot: AcquiredSlot,
    /// Samples its tokens.
    pub sampler: Sampler,
    /// Receives it.
    pub reply_tx: Sender<HostResponseLine>,
    written: Vec<LlamaToken>,
    parser: OutputParser,
    first: Option<Instant>,
    has_called: bool,
}

/// How the output is parsed.
enum OutputParser {
    Envelope(JsonEnvelope),
    Marked(ToolCallParser),
    Free(crate::json_envelope::Utf8Decoder),
}

/// How the start or end of a call affects the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrammarSwitch {
    /// No change.
    None,
    /// A call starts: constrain it. The token that completed the marker may have continued with
    /// this text.
    Constrain(String),
    /// The call ended: release the constraint.
    Release,
}

impl ReplyJob {
    /// Creates a reply without output.
    pub(crate) fn new(
        plan: JobPlan,
        slot: AcquiredSlot,
        sampler: Sampler,
        reply_tx: Sender<HostResponseLine>,
    ) -> ReplyJob {
        let parser = match plan.mode {
            ToolCallMode::Envelope => OutputParser::Envelope(JsonEnvelope::default()),
            ToolCallMode::Lazy => OutputParser::Marked(ToolCallParser::default()),
            ToolCallMode::Free | ToolCallMode::Auto => {
                OutputParser::Free(crate::json_envelope::Utf8Decoder::default())
            }
        };
        ReplyJob {
            plan,
            slot,
            sampler,
            reply_tx,
            written: Vec::new(),
            parser,
            first: None,
            has_called: false,
        }
    }

    /// Returns what it needs, given the number of tokens in its sequence. The shared prefix is read
    /// exactly to its end first, so that it can be saved.
    pub(crate) fn need(&self, cached: usize) -> Need {
        let JobPlan { prompt, shared, .. } = &self.plan;
        match prompt.len().saturating_sub(cached) {
            0 => Need::Write,
            _ if cached < *shared => Need::Read(shared - cached),
            left => Need::Read(left),
        }
    }

    /// Returns the next tokens for the batch.
    pub(crate) fn next(&self, cached: usize, count: usize) -> Vec<LlamaToken> {
        let prompt = &self.plan.prompt;
        if cached < prompt.len() {
            return prompt[cached..(cached + count).min(prompt.len())].to_vec();
        }
        self.written.last().copied().into_iter().collect()
    }

    /// Reports how much of the prompt has been read.
    pub(crate) fn progress(&self, cached: usize) {
        self.send(HostResponse::Progress {
            prefilled: cached.min(self.plan.prompt.len()) as u64,
            prompt: self.plan.prompt.len() as u64,
            written: self.written.len() as u64,
        });
    }

    /// Adds a sampled token and its bytes.
    pub(crate) fn write(&mut self, token: LlamaToken, bytes: &[u8]) -> GrammarSwitch {
        self.first.get_or_insert_with(Instant::now);
        self.written.push(token);
        let (outputs, switch) = self.parser.push(bytes);
        if outputs.is_empty() && self.written.len().is_multiple_of(PROGRESS) {
            self.progress(usize::MAX);
        }
        for output in outputs {
            self.send_output(output);
        }
        switch
    }

    /// Whether the reply is complete by its format.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(&self.parser, OutputParser::Envelope(envelope) if envelope.ended())
    }

    /// Whether it must end: the limit is reached, or it only repeats itself.
    pub(crate) fn is_spent(&self) -> bool {
        self.written.len() >= self.plan.max_tokens || repeats(&self.written)
    }

    /// Sends the rest and the end. Returns what the model wrote, for the next prompt.
    pub(crate) fn finish(mut self, stop: HostStopReason) -> Option<VerbatimCall> {
        let parser = std::mem::replace(&mut self.parser, OutputParser::Free(Default::default()));
        let verbatim_call = match parser {
            OutputParser::Envelope(envelope) => {
                let verbatim_call = verbatim_call_of(&envelope);
                if let Some(call) = envelope.call().filter(|_| stop != HostStopReason::Cancelled) {
                    self.send_output(call);
                }
                verbatim_call
            }
            OutputParser::Marked(marked) => {
                if let Some(output) = marked.finish().filter(|_| stop != HostStopReason::Cancelled)
                {
                    self.send_output(output);
                }
                None
            }
            OutputParser::Free(_) => None,
        };
        let stop = if self.has_called && stop == HostStopReason::Done {
            HostStopReason::Calls
        } else {
            stop
        };
        let usage = self.usage();
        self.send(HostResponse::Done { stop, usage });
        verbatim_call
    }

    /// Sends an error in place of the reply.
    pub(crate) fn fail(self, fault: HostFault) {
        self.send(HostResponse::Error(fault));
    }

    fn send_output(&mut self, output: ModelOutput) {
        let response = match output {
            ModelOutput::Text(text) => HostResponse::Text { text },
            ModelOutput::Call { name, args, cut } => {
                self.has_called = true;
                HostResponse::Call { name, args, truncated_at_cap: cut }
            }
        };
        self.send(response);
    }

    fn send(&self, what: HostResponse) {
        // A disconnected client is ignored; the end of its connection cancels the reply.
        let _ = self.reply_tx.send(HostResponseLine { id: self.plan.id, what });
    }

    fn usage(&self) -> ReplyUsage {
        let millis = |from: Instant, to: Instant| to.duration_since(from).as_millis() as u64;
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        ReplyUsage {
            prompt: self.plan.prompt.len() as u64,
            reused: self.slot.reused as u64,
            prefilled: (self.plan.prompt.len() - self.slot.reused) as u64,
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
                let was_in_call = marked.in_call();
                let outputs = marked.push(bytes);
                let switch = match (was_in_call, marked.in_call()) {
                    (false, true) => GrammarSwitch::Constrain(marked.partial_call().to_owned()),
                    (true, false) => GrammarSwitch::Release,
                    _ => GrammarSwitch::None,
                };
                (outputs, switch)
            }
            OutputParser::Free(words) => {
                let text = words.push(bytes);
                let output = (!text.is_empty()).then_some(ModelOutput::Text(text));
                (output.into_iter().collect(), GrammarSwitch::None)
            }
        }
    }
}

/// Returns the output with the call as it will be repeated in the conversation.
fn verbatim_call_of(envelope: &JsonEnvelope) -> Option<VerbatimCall> {
    let raw = envelope.raw();
    let value: Value = serde_json::from_str(&raw).ok()?;
    let name = value.get("name")?.as_str()?.to_owned();
    Some(VerbatimCall { call: HostToolCall { name, args: value.get("arguments")?.clone() }, raw })
}

/// Whether the end of a text repeats one short piece over and over, which small models do not stop
/// by themselves.
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
    fn repetition_is_detected() {
        assert!(repeats(&tokens([7, 8, 9].into_iter().cycle().take(320))));
        assert!(!repeats(&tokens(0..320)));
        assert!(!repeats(&tokens((0..16).chain([1; 48]))));
    }
}
