//! Embeddings: the queue of requests, and the second context in which texts are read, a few tokens
//! at a time, so that chats do not wait for long.
//!
//! The context is created with the first request. A text is read alone and always in the same
//! portions, so that its vector does not depend on other requests.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::model_host::wire::{
    EmbedderId, HostFault, HostFaultKind, HostResponse, HostResponseLine, HostStopReason,
    ReplyUsage, TEXT_LIMIT, TEXTS_LIMIT, Vectors,
};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::{LlamaContextParams, LlamaPoolingType};
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;

use crate::command::EmbedRequest;
use crate::gguf::GgufHeader;
use crate::load;
use crate::mean_centering::MeanState;

/// Tokens read at a time; a chat in progress waits for this many.
const TOKENS_PER_TURN: usize = 32;
/// Maximum number of tokens read of a text; the rest is ignored.
const MAX_TOKENS: usize = 512;
/// Version of the algorithm, incremented with every change.
const WAY: u32 = 1;

/// Returns the id of this model's embedder, or `None` if its file does not specify the dimension.
pub(crate) fn name(head: &GgufHeader) -> Option<EmbedderId> {
    let dimension = u32::try_from(head.dimension).ok().filter(|dimension| *dimension > 0)?;
    // The length distinguishes files of one model with different quantizations.
    let name = format!("{}-{}-{dimension}-{WAY}", head.name, head.length);
    Some(EmbedderId { name, dimension })
}

/// The queue of embedding requests and their context.
pub(crate) struct EmbedQueue<'m> {
    embedder: Option<EmbedderId>,
    context: Option<LlamaContext<'m>>,
    mean_state: MeanState,
    /// The file in which the mean state is stored.
    mean_file: PathBuf,
    waiting: VecDeque<EmbedTask>,
    /// The text being read: one for the mean state, otherwise the next one of the first request.
    reading: Option<Reading>,
}

/// A request and its finished vectors.
struct EmbedTask {
    wish: EmbedRequest,
    vectors: Vec<Vec<f32>>,
}

/// A text being read, and the sum of its states so far.
struct Reading {
    tokens: Vec<LlamaToken>,
    offset: usize,
    sum: Vec<f64>,
}

impl<'m> EmbedQueue<'m> {
    /// Creates an empty queue without a context. The mean state is stored in this directory.
    pub(crate) fn new(head: &GgufHeader, directory: &Path) -> EmbedQueue<'m> {
        let embedder = name(head);
        let (known_as, dimension) =
            embedder.as_ref().map_or(("", 0), |of| (of.name.as_str(), of.dimension));
        let file = known_as.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mean_file = directory.join(format!("usual-{file}.json"));
        EmbedQueue {
            mean_state: MeanState::load(&mean_file, dimension),
            mean_file,
            embedder,
            context: None,
            waiting: VecDeque::new(),
            reading: None,
        }
    }

    /// Returns the number of waiting requests.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a request, or answers why it is rejected.
    pub(crate) fn add(&mut self, request: EmbedRequest) {
        let Err(reason) = self.check(&request.texts) else {
            self.waiting.push_back(EmbedTask { wish: request, vectors: Vec::new() });
            return;
        };
        send(&request, HostResponse::Error(HostFault::new(HostFaultKind::Rejected, reason)));
    }

    fn check(&self, texts: &[String]) -> std::result::Result<(), String> {
        if self.embedder.is_none() {
            return Err("this model makes no vectors".to_owned());
        }
        if texts.is_empty() || texts.iter().any(String::is_empty) {
            return Err("a text is empty, or there is none".to_owned());
        }
        if texts.len() > TEXTS_LIMIT {
            return Err(format!("there are more than {TEXTS_LIMIT} texts"));
        }
        Ok(())
    }

    /// Cancels requests.
    pub(crate) fn cancel(&mut self, is_selected: impl Fn(&EmbedRequest) -> bool) {
        if self.waiting.front().is_some_and(|task| is_selected(&task.wish)) {
            self.reading = None;
        }
        let (cancelled, waiting): (VecDeque<EmbedTask>, VecDeque<EmbedTask>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|task| is_selected(&task.wish));
        self.waiting = waiting;
        for task in cancelled {
            send(
                &task.wish,
                HostResponse::Done {
                    stop: HostStopReason::Cancelled,
                    usage: ReplyUsage::default(),
                },
            );
        }
    }

    /// Drops the context, which is recreated on demand. The current text is read again from its
    /// start.
    pub(crate) fn rest(&mut self) {
        self.context = None;
        self.reading = None;
    }

    /// Reads the next portion.
    pub(crate) fn step(&mut self, backend: &LlamaBackend, model: &'m LlamaModel, threads: u32) {
        if self.waiting.is_empty() {
            return;
        }
        if let Err(failure) = self.turn(backend, model, threads) {
            self.rest();
            let fault = HostFault { kind: HostFaultKind::Broken, ..HostFault::from(failure) };
            for task in std::mem::take(&mut self.waiting) {
                send(&task.wish, HostResponse::Error(fault.clone()));
            }
        }
    }

    fn turn(&mut self, backend: &LlamaBackend, model: &'m LlamaModel, threads: u32) -> Result<()> {
        let context = match &mut self.context {
            Some(context) => context,
            None => self.context.insert(context(backend, model, threads)?),
        };
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => {
                let Some(task) = self.waiting.front() else { return Ok(()) };
                let text = self.mean_state.wants().unwrap_or(&task.wish.texts[task.vectors.len()]);
                context.clear_kv_cache();
                Reading::new(model, text)
            }
        };
        reading.read(context)?;
        if reading.offset < reading.tokens.len() {
            self.reading = Some(reading);
            return Ok(());
        }
        let state = reading.state();
        if self.mean_state.wants().is_some() {
            self.mean_state.take(state, &self.mean_file);
            return Ok(());
        }
        self.take(self.mean_state.vector(&state))
    }

    /// Stores a finished vector and proceeds to the next text.
    fn take(&mut self, vector: Vec<f32>) -> Result<()> {
        if !vector.iter().all(|x| x.is_finite()) {
            return Err(Failure::failed("the model returned an invalid embedding"));
        }
        let Some(mut task) = self.waiting.pop_front() else { return Ok(()) };
        task.vectors.push(vector);
        if task.vectors.len() < task.wish.texts.len() {
            self.waiting.push_back(task);
            return Ok(());
        }
        let Some(embedder) = self.embedder.clone() else { return Ok(()) };
        send(&task.wish, HostResponse::Vectors(Vectors { embedder, vectors: task.vectors }));
        Ok(())
    }
}

/// Creates a context that outputs the last state of all tokens. It also computes their logits,
/// which are not needed; their memory is the reason for the small portions.
fn context<'m>(
    backend: &LlamaBackend,
    model: &'m LlamaModel,
    threads: u32,
) -> Result<LlamaContext<'m>> {
    let parameters = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(MAX_TOKENS as u32))
        .with_n_batch(TOKENS_PER_TURN as u32)
        .with_n_ubatch(TOKENS_PER_TURN as u32)
        .with_embeddings(true)
        .with_pooling_type(LlamaPoolingType::None)
        .with_no_perf(true);
    load::context(backend, model, &parameters, threads)
}

impl Reading {
    /// Control tokens in the text are treated as plain text.
    fn new(model: &LlamaModel, text: &str) -> Reading {
        let vocab = model.vocab();
        let text = base::text::head(text, TEXT_LIMIT);
        let mut tokens = vocab.tokenize(text.as_bytes(), vocab.should_add_bos(), false);
        tokens.truncate(MAX_TOKENS);
        Reading { tokens, offset: 0, sum: Vec::new() }
    }

    /// Reads the next tokens.
    fn read(&mut self, context: &mut LlamaContext) -> Result<()> {
        let error_text = || "llama.cpp cannot read a text";
        let end = (self.offset + TOKENS_PER_TURN).min(self.tokens.len());
        let part = &self.tokens[self.offset..end];
        if part.is_empty() {
            return Ok(());
        }
        let mut batch = LlamaBatch::new(part.len(), 1);
        for (position, token) in (self.offset..).zip(part) {
            let position = i32::try_from(position).unwrap_or(i32::MAX);
            batch.add(*token, position, &[0], true).or_fail(error_text)?;
        }
        context.decode(&mut batch).or_fail(error_text)?;
        for (index, position) in (self.offset..end).enumerate() {
            let index = i32::try_from(index).unwrap_or(i32::MAX);
            let state = context.embeddings_ith(index).or_fail(error_text)?;
            self.sum.resize(state.len(), 0.0);
            // A token only depends on the ones before it, so later ones carry more information.
            let weight = (position + 1) as f64;
            self.sum.iter_mut().zip(state).for_each(|(sum, x)| *sum += weight * f64::from(*x));
        }
        self.offset = end;
        Ok(())
    }

    /// Returns the weighted mean of the states.
    fn state(&self) -> Vec<f32> {
        let count = self.tokens.len() as f64;
        let weights = (count * (count + 1.0) / 2.0).max(1.0);
        self.sum.iter().map(|sum| (sum / weights) as f32).collect()
    }
}

fn send(request: &EmbedRequest, what: HostResponse) {
    // A disconnected client is ignored; the end of its connection cancels the request.
    let _ = request.reply_tx.send(HostResponseLine { id: request.id, what });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn head(dimension: u64) -> GgufHeader {
        GgufHeader {
            name: "m".into(),
            architecture: "a".into(),
            parameters: 1,
            context: 512,
            kv_bytes: 1,
            dimension,
            template: None,
            length: 9,
        }
    }

    #[test]
    fn invalid_requests_are_rejected_and_cancelled_ones_are_dropped() {
        let nowhere = Path::new("/nonexistent");
        let mut embeds = EmbedQueue::new(&head(4), nowhere);
        let (reply_tx, heard) = channel();
        let ask = |id: u64, texts: &[&str], embeds: &mut EmbedQueue| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            embeds.add(EmbedRequest { connection: id % 2, id, texts, reply_tx: reply_tx.clone() });
        };
        ask(1, &[], &mut embeds);
        ask(2, &["a", ""], &mut embeds);
        ask(3, &["a"; TEXTS_LIMIT + 1], &mut embeds);
        let refused = |told: HostResponseLine| match told.what {
            HostResponse::Error(fault) => (told.id, fault.what),
            other => panic!("{other:?}"),
        };
        let said: Vec<(u64, String)> = heard.try_iter().map(refused).collect();
        let wanted = ["there is none", "is empty", "more than 256 texts"];
        assert_eq!(said.len(), 3);
        let fits = |(at, (id, what)): (usize, &(u64, String))| {
            *id == at as u64 + 1 && what.contains(wanted[at])
        };
        assert!(said.iter().enumerate().all(fits), "{said:?}");
        ask(4, &["a"; TEXTS_LIMIT], &mut embeds);
        ask(5, &["b"], &mut embeds);
        embeds.cancel(|wish| wish.connection == 0);
        assert_eq!(embeds.count(), 1);
        let told = heard.try_recv().unwrap();
        assert!(matches!(
            told,
            HostResponseLine {
                id: 4,
                what: HostResponse::Done { stop: HostStopReason::Cancelled, .. }
            }
        ));
        let mut none = EmbedQueue::new(&head(0), nowhere);
        ask(6, &["a"], &mut none);
        assert_eq!(none.count(), 0);
    }

    #[test]
    fn a_different_file_or_dimension_is_a_different_embedder() {
        let name = |head: &GgufHeader| name(head).unwrap().name;
        let base = head(4);
        assert_ne!(name(&base), name(&head(5)));
        assert_ne!(name(&base), name(&GgufHeader { length: 10, ..head(4) }));
        assert_eq!(name(&base), "m-9-4-1");
    }
}
