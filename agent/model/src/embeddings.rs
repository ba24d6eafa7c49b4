//! Vectors of texts: whoever waits for them, and the second context in which their texts are read,
//! a few tokens in each turn, so that nobody's chat waits for long.
//!
//! The context is made when vectors are first asked for. A text is read alone and always in the
//! same portions, so its vector does not depend on what else is asked.

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

/// Tokens that are read in one turn: a chat that is being written waits for so many.
const TURN: usize = 32;
/// Tokens of a text that are read; the rest of a longer one does not count.
const MOST_TOKENS: usize = 512;
/// Counts up with every change of how a vector is made.
const WAY: u32 = 1;

/// Who makes vectors with this model; `None` when its file does not say how long they are.
pub(crate) fn name(head: &GgufHeader) -> Option<EmbedderId> {
    let dimension = u32::try_from(head.dimension).ok().filter(|dimension| *dimension > 0)?;
    // The length tells files of one model with other roundings apart.
    let name = format!("{}-{}-{dimension}-{WAY}", head.name, head.length);
    Some(EmbedderId { name, dimension })
}

/// Whoever waits for vectors, and what they are made with.
pub(crate) struct EmbedQueue<'m> {
    embedder: Option<EmbedderId>,
    context: Option<LlamaContext<'m>>,
    usual: MeanState,
    /// Where that is kept.
    kept: PathBuf,
    waiting: VecDeque<EmbedTask>,
    /// The text that is being read: one for `usual`, else the next one of who waits first.
    reading: Option<Reading>,
}

/// A request, and as many vectors as are made.
struct EmbedTask {
    wish: EmbedRequest,
    vectors: Vec<Vec<f32>>,
}

/// A text that is being read, and the sum of the states so far.
struct Reading {
    tokens: Vec<LlamaToken>,
    at: usize,
    sum: Vec<f64>,
}

impl<'m> EmbedQueue<'m> {
    /// Nobody waits yet, and nothing is made. What is usual is kept in this directory.
    pub(crate) fn new(head: &GgufHeader, directory: &Path) -> EmbedQueue<'m> {
        let embedder = name(head);
        let (known_as, dimension) =
            embedder.as_ref().map_or(("", 0), |of| (of.name.as_str(), of.dimension));
        let file = known_as.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let kept = directory.join(format!("usual-{file}.json"));
        EmbedQueue {
            usual: MeanState::kept(&kept, dimension),
            kept,
            embedder,
            context: None,
            waiting: VecDeque::new(),
            reading: None,
        }
    }

    /// How many requests wait.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a request in, or says why not.
    pub(crate) fn add(&mut self, wish: EmbedRequest) {
        let Err(why) = self.check(&wish.texts) else {
            self.waiting.push_back(EmbedTask { wish, vectors: Vec::new() });
            return;
        };
        tell(&wish, HostResponse::Error(HostFault::new(HostFaultKind::Rejected, why)));
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

    /// Ends requests early.
    pub(crate) fn cancel(&mut self, is_meant: impl Fn(&EmbedRequest) -> bool) {
        if self.waiting.front().is_some_and(|order| is_meant(&order.wish)) {
            self.reading = None;
        }
        let (ended, waiting): (VecDeque<EmbedTask>, VecDeque<EmbedTask>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|order| is_meant(&order.wish));
        self.waiting = waiting;
        for order in ended {
            tell(
                &order.wish,
                HostResponse::Done {
                    stop: HostStopReason::Cancelled,
                    usage: ReplyUsage::default(),
                },
            );
        }
    }

    /// Gives the context back; it is made anew when it is needed. The text that was being read is
    /// begun again.
    pub(crate) fn rest(&mut self) {
        self.context = None;
        self.reading = None;
    }

    /// Reads on for one turn.
    pub(crate) fn step(&mut self, backend: &LlamaBackend, model: &'m LlamaModel, threads: u32) {
        if self.waiting.is_empty() {
            return;
        }
        if let Err(failure) = self.turn(backend, model, threads) {
            self.rest();
            let fault = HostFault { kind: HostFaultKind::Broken, ..HostFault::from(failure) };
            for order in std::mem::take(&mut self.waiting) {
                tell(&order.wish, HostResponse::Error(fault.clone()));
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
                let Some(order) = self.waiting.front() else { return Ok(()) };
                let text = self.usual.wants().unwrap_or(&order.wish.texts[order.vectors.len()]);
                context.clear_kv_cache();
                Reading::new(model, text)
            }
        };
        reading.read(context)?;
        if reading.at < reading.tokens.len() {
            self.reading = Some(reading);
            return Ok(());
        }
        let state = reading.state();
        if self.usual.wants().is_some() {
            self.usual.take(state, &self.kept);
            return Ok(());
        }
        self.take(self.usual.vector(&state))
    }

    /// A vector is made: the next text is that of whoever waits next.
    fn take(&mut self, vector: Vec<f32>) -> Result<()> {
        if !vector.iter().all(|x| x.is_finite()) {
            return Err(Failure::failed("the model returned an invalid embedding"));
        }
        let Some(mut order) = self.waiting.pop_front() else { return Ok(()) };
        order.vectors.push(vector);
        if order.vectors.len() < order.wish.texts.len() {
            self.waiting.push_back(order);
            return Ok(());
        }
        let Some(embedder) = self.embedder.clone() else { return Ok(()) };
        tell(&order.wish, HostResponse::Vectors(Vectors { embedder, vectors: order.vectors }));
        Ok(())
    }
}

/// A context whose tokens all give their last state. It computes their logits too, which nobody
/// wants: the memory for them is why a turn is so short.
fn context<'m>(
    backend: &LlamaBackend,
    model: &'m LlamaModel,
    threads: u32,
) -> Result<LlamaContext<'m>> {
    let parameters = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(MOST_TOKENS as u32))
        .with_n_batch(TURN as u32)
        .with_n_ubatch(TURN as u32)
        .with_embeddings(true)
        .with_pooling_type(LlamaPoolingType::None)
        .with_no_perf(true);
    load::context(backend, model, &parameters, threads)
}

impl Reading {
    /// What steers a conversation is only words in a text.
    fn new(model: &LlamaModel, text: &str) -> Reading {
        let vocab = model.vocab();
        let text = base::text::head(text, TEXT_LIMIT);
        let mut tokens = vocab.tokenize(text.as_bytes(), vocab.should_add_bos(), false);
        tokens.truncate(MOST_TOKENS);
        Reading { tokens, at: 0, sum: Vec::new() }
    }

    /// Reads the next tokens.
    fn read(&mut self, context: &mut LlamaContext) -> Result<()> {
        let cannot = || "llama.cpp cannot read a text";
        let end = (self.at + TURN).min(self.tokens.len());
        let part = &self.tokens[self.at..end];
        if part.is_empty() {
            return Ok(());
        }
        let mut batch = LlamaBatch::new(part.len(), 1);
        for (position, token) in (self.at..).zip(part) {
            let position = i32::try_from(position).unwrap_or(i32::MAX);
            batch.add(*token, position, &[0], true).or_fail(cannot)?;
        }
        context.decode(&mut batch).or_fail(cannot)?;
        for (index, position) in (self.at..end).enumerate() {
            let index = i32::try_from(index).unwrap_or(i32::MAX);
            let state = context.embeddings_ith(index).or_fail(cannot)?;
            self.sum.resize(state.len(), 0.0);
            // A token knows what stands before it only, so later ones know more.
            let weight = (position + 1) as f64;
            self.sum.iter_mut().zip(state).for_each(|(sum, x)| *sum += weight * f64::from(*x));
        }
        self.at = end;
        Ok(())
    }

    /// The weighted mean of the states.
    fn state(&self) -> Vec<f32> {
        let count = self.tokens.len() as f64;
        let weights = (count * (count + 1.0) / 2.0).max(1.0);
        self.sum.iter().map(|sum| (sum / weights) as f32).collect()
    }
}

fn tell(wish: &EmbedRequest, what: HostResponse) {
    // A client that is gone hears nothing; its connection's end cancels the request.
    let _ = wish.hears.send(HostResponseLine { id: wish.id, what });
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
    fn what_cannot_be_done_is_said_and_who_leaves_is_forgotten() {
        let nowhere = Path::new("/nonexistent");
        let mut embeds = EmbedQueue::new(&head(4), nowhere);
        let (hears, heard) = channel();
        let ask = |id: u64, texts: &[&str], embeds: &mut EmbedQueue| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            embeds.add(EmbedRequest { connection: id % 2, id, texts, hears: hears.clone() });
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
    fn another_file_or_length_is_another_embedder() {
        let name = |head: &GgufHeader| name(head).unwrap().name;
        let base = head(4);
        assert_ne!(name(&base), name(&head(5)));
        assert_ne!(name(&base), name(&GgufHeader { length: 10, ..head(4) }));
        assert_eq!(name(&base), "m-9-4-1");
    }
}
