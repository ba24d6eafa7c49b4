//! The thread that owns the model: assigns sequences to conversations, decodes all of them in one
//! batch, and sends the output to the clients.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Instant;

use base::failure::{Failure, OrFail, Result};
use base::model_host::wire::{
    HostChat, HostFault, HostFaultKind, HostResponse, HostResponseLine, HostStopReason, ReplyUsage,
    ToolCallMode,
};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;

use crate::batch::{self, Need};
use crate::command::{EngineCommand, EngineLoad};
use crate::embeddings::EmbedQueue;
use crate::grammar;
use crate::kv_cache::{ConversationKey, KvCache, SlotWait};
use crate::load;
use crate::options::Serve;
use crate::preflight::CheckedModel;
use crate::prompt::{self, VerbatimCall};
use crate::prompt_prefix::{self, PrefixStore};
use crate::reply_job::{GrammarSwitch, JobPlan, ReplyJob};
use crate::sample::Sampler;
use crate::template::Template;
use crate::threads::Threads;

/// Minimum number of tokens for a reply; a longer prompt is rejected.
const MIN_REPLY: usize = 64;

/// A loaded model and its conversations.
struct Engine<'m> {
    model: &'m LlamaModel,
    context: LlamaContext<'m>,
    template: Template,
    checked: CheckedModel,
    cache: KvCache,
    spoken: HashMap<ConversationKey, Vec<VerbatimCall>>,
    waiting: Vec<(JobPlan, Box<HostChat>, Sender<HostResponseLine>)>,
    active: Vec<ReplyJob>,
    embeds: EmbedQueue<'m>,
    controls: Vec<String>,
    settings: Settings,
}

/// Settings that do not depend on the number of threads.
struct Settings {
    parallel: usize,
    parameters: LlamaContextParams,
    threads: Threads,
}

/// Loads the model, calls `loaded`, and executes commands until `Stop`.
pub(crate) fn run(
    serve: &Serve,
    checked: CheckedModel,
    commands: &Receiver<EngineCommand>,
    loaded: impl FnOnce(),
) -> Result<()> {
    let threads = Threads::new(serve.threads);
    let (backend, model) = &load::model(serve)?;
    let prefixes =
        prompt_prefix::directory().and_then(|directory| PrefixStore::open(directory, &serve.model));
    let prefixes = prefixes.or_fail(|| "cannot keep conversations")?;
    answer(serve, EngineContext { backend, model, checked, threads, prefixes }, commands, loaded)
}

/// What an engine needs.
pub(crate) struct EngineContext<'m> {
    /// llama.cpp.
    pub backend: &'m LlamaBackend,
    /// The loaded model.
    pub model: &'m LlamaModel,
    /// The facts about its file.
    pub checked: CheckedModel,
    /// The initial threads.
    pub threads: Threads,
    /// The saved prompt prefixes.
    pub prefixes: PrefixStore,
}

/// Executes commands with a loaded model until `Stop`.
pub(crate) fn answer(
    serve: &Serve,
    engine_context: EngineContext<'_>,
    commands: &Receiver<EngineCommand>,
    loaded: impl FnOnce(),
) -> Result<()> {
    let EngineContext { backend, model, checked, mut threads, prefixes } = engine_context;
    threads.update();
    let sequences = serve.parallel * 3;
    let parameters = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(checked.cells))
        .with_n_batch(512)
        .with_n_ubatch(256)
        .with_n_seq_max(sequences)
        .with_kv_unified(true)
        .with_no_perf(true);
    let embeds = EmbedQueue::new(&checked.head, prefixes.directory());
    let context = load::context(backend, model, &parameters, threads.now())?;
    let template = Template::new(checked.head.template.as_deref()).map_err(|error| {
        Failure::usage("this model's chat template is not supported").because(error)
    })?;
    let cells = usize::try_from(checked.cells).unwrap_or(usize::MAX);
    let cache = KvCache::new(prefixes, sequences as usize, cells, checked.head.kv_bytes)
        .or_fail(|| "cannot keep conversations")?;
    let mut engine = Engine {
        embeds,
        controls: load::controls(model),
        model,
        context,
        template,
        checked,
        cache,
        spoken: HashMap::new(),
        waiting: Vec::new(),
        active: Vec::new(),
        settings: Settings { parallel: serve.parallel as usize, parameters, threads },
    };
    loaded();
    while engine.listen(commands) {
        if engine.settings.threads.update() {
            engine = engine.recreate_context(backend)?;
        }
        engine.start_waiting();
        engine.step();
        engine.embeds.step(backend, model, engine.settings.threads.now());
    }
    Ok(())
}

impl<'m> Engine<'m> {
    /// Continues in a new context with the current number of threads: llama.cpp could change the
    /// number in a context, but llama-cpp-2 does not expose this. The old context is dropped first
    /// while the conversations are on disk, so that the memory is needed only once.
    fn recreate_context(mut self, backend: &LlamaBackend) -> Result<Engine<'m>> {
        let moved = self.cache.save_all(&mut self.context);
        drop(self.context);
        self.embeds.rest();
        let Settings { parameters, threads, .. } = &self.settings;
        let context = load::context(backend, self.model, parameters, threads.now())?;
        let mut engine = Engine { context, ..self };
        if !engine.cache.restore_all(&mut engine.context, &moved) {
            engine.fail_all("the conversations were lost on the way to another number of threads");
        }
        Ok(engine)
    }

    /// Executes all pending commands; waits for one if there is no other work.
    fn listen(&mut self, commands: &Receiver<EngineCommand>) -> bool {
        if self.active.is_empty() && self.waiting.is_empty() && self.embeds.count() == 0 {
            let Ok(command) = commands.recv() else { return false };
            self.settings.threads.pause();
            if !self.run_command(command) {
                return false;
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => {
                    if !self.run_command(command) {
                        return false;
                    }
                }
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Executes a command. Returns false if the engine must stop.
    fn run_command(&mut self, command: EngineCommand) -> bool {
        match command {
            EngineCommand::Chat { connection, id, chat, reply_tx } => {
                let key = (connection, chat.conversation.clone());
                match self.plan(key, id, &chat) {
                    Ok(plan) => self.waiting.push((plan, chat, reply_tx)),
                    Err(fault) => drop(
                        reply_tx.send(HostResponseLine { id, what: HostResponse::Error(fault) }),
                    ),
                }
            }
            EngineCommand::Embed(wish) => self.embeds.add(wish),
            EngineCommand::Cancel { connection, chat } => {
                self.embeds.cancel(|wish| wish.connection == connection && wish.id == chat);
                self.cancel(|key, id| key.0 == connection && id == chat);
            }
            EngineCommand::Closed(connection) => {
                self.embeds.cancel(|wish| wish.connection == connection);
                self.cancel(|key, _| key.0 == connection);
                self.cache.close(&mut self.context, connection);
                self.spoken.retain(|key, _| key.0 != connection);
            }
            EngineCommand::Count(tell) => {
                let chats = self.active.len() + self.waiting.len();
                let (in_memory, on_disk) = self.cache.count();
                let threads = self.settings.threads.now();
                let embeds = self.embeds.count();
                let _ = tell.send(EngineLoad { chats, in_memory, on_disk, embeds, threads });
            }
            EngineCommand::Stop => return false,
        }
        true
    }

    /// Builds the prompt of a chat.
    fn plan(
        &self,
        key: ConversationKey,
        id: u64,
        chat: &HostChat,
    ) -> std::result::Result<JobPlan, HostFault> {
        let start_time = Instant::now();
        let rejected = |reason: String| HostFault::new(HostFaultKind::Rejected, reason);
        let mode = prompt::mode(chat, self.checked.head.parameters);
        let grammar = match mode {
            ToolCallMode::Envelope => Some(grammar::envelope(&chat.tools, chat.act)),
            ToolCallMode::Lazy => Some(grammar::after_mark(&chat.tools)),
            ToolCallMode::Free | ToolCallMode::Auto => None,
        };
        let verbatim_calls = self.spoken.get(&key).map_or(&[][..], Vec::as_slice);
        let prompt_text = prompt::write(&self.template, chat, mode, verbatim_calls, &self.controls)
            .map_err(|e| rejected(e.to_string()))?;
        let tokens = |text: &str| {
            let vocab = self.model.vocab();
            vocab.tokenize(text.as_bytes(), vocab.should_add_bos(), true)
        };
        let prompt = tokens(&prompt_text.text);
        let shared = tokens(&prompt_text.shared);
        let shared = shared.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        let context = self.checked.context as usize;
        let reply_room = context.saturating_sub(prompt.len());
        if reply_room < MIN_REPLY {
            let reason = format!("{} tokens, and the context holds {context}", prompt.len());
            return Err(HostFault::new(HostFaultKind::TooLong, reason));
        }
        let max_tokens = (chat.max_tokens as usize).clamp(1, reply_room);
        Ok(JobPlan { key, id, prompt, shared, mode, grammar, max_tokens, since: start_time })
    }

    /// Assigns sequences to waiting chats in order, as long as there are any. No chat overtakes one
    /// that waits for space, or one that needs much space would wait forever.
    fn start_waiting(&mut self) {
        let mut still_waiting = Vec::new();
        let mut is_full = false;
        for (plan, chat, reply_tx) in std::mem::take(&mut self.waiting) {
            if is_full || self.active.len() >= self.settings.parallel {
                still_waiting.push((plan, chat, reply_tx));
                continue;
            }
            let JobPlan { key, prompt, shared, max_tokens, .. } = &plan;
            let slot = self.cache.acquire(&mut self.context, key, prompt, *shared, *max_tokens);
            let slot = match slot {
                Ok(slot) => slot,
                Err(wait) => {
                    is_full = wait == SlotWait::Room;
                    still_waiting.push((plan, chat, reply_tx));
                    continue;
                }
            };
            let mut sampler = Sampler::new(chat.temperature, chat.seed);
            let constraint = match &plan.grammar {
                Some(grammar) if plan.mode == ToolCallMode::Envelope => {
                    sampler.constrain(self.model, grammar, &[])
                }
                Some(_) | None => Ok(()),
            };
            let job = ReplyJob::new(plan, slot, sampler, reply_tx);
            match constraint {
                Ok(()) => self.active.push(job),
                Err(error) => {
                    self.cache.rest(slot.seq);
                    job.fail(HostFault::new(HostFaultKind::Rejected, error));
                }
            }
        }
        self.waiting = still_waiting;
    }

    /// Decodes one batch for all conversations.
    fn step(&mut self) {
        if self.active.is_empty() {
            return;
        }
        let cached_tokens = |cache: &KvCache, job: &ReplyJob| cache.tokens(job.slot.seq).len();
        let needs: Vec<Need> =
            self.active.iter().map(|job| job.need(cached_tokens(&self.cache, job))).collect();
        let shares = batch::share(&needs);
        let mut batch = LlamaBatch::new(shares.iter().sum::<usize>().max(1), 1);
        let mut parts = Vec::new();
        for (job, token_share) in self.active.iter().zip(&shares) {
            let start = cached_tokens(&self.cache, job);
            let tokens = job.next(start, *token_share);
            let complete = start + tokens.len() >= job.plan.prompt.len();
            let logits = (complete && !tokens.is_empty())
                .then(|| batch.n_tokens() + i32::try_from(tokens.len()).unwrap_or(0) - 1);
            for (offset, token) in tokens.iter().enumerate() {
                let last = complete && offset + 1 == tokens.len();
                let position = i32::try_from(start + offset).unwrap_or(i32::MAX);
                let sequence = i32::try_from(job.slot.seq).unwrap_or(0);
                batch
                    .add(*token, position, &[sequence], last)
                    .expect("the batch was made for exactly these tokens");
            }
            parts.push((tokens, logits));
        }
        if let Err(error) = self.context.decode(&mut batch) {
            self.fail_all(&error.to_string());
            return;
        }
        self.take(parts);
    }

    /// Records what was read, and samples a token for each conversation whose prompt is complete.
    fn take(&mut self, parts: Vec<(Vec<LlamaToken>, Option<i32>)>) {
        let mut still_active = Vec::new();
        for (mut job, (tokens, logits)) in std::mem::take(&mut self.active).into_iter().zip(parts) {
            let seq = job.slot.seq;
            self.cache.grow(&self.context, seq, &tokens, job.plan.shared);
            let Some(index) = logits else {
                job.progress(self.cache.tokens(seq).len());
                still_active.push(job);
                continue;
            };
            let token = job.sampler.pick(self.context.get_logits_ith(index));
            match self.write(&mut job, token) {
                None => still_active.push(job),
                Some(stop) => self.finish(job, stop),
            }
        }
        self.active = still_active;
    }

    /// Adds a token to a reply. Returns `Some` if the reply ends with it.
    fn write(&mut self, job: &mut ReplyJob, token: LlamaToken) -> Option<HostStopReason> {
        let vocab = self.model.vocab();
        if vocab.is_eog(token) {
            return Some(HostStopReason::Done);
        }
        let has_marked_calls = job.plan.mode == ToolCallMode::Lazy;
        let bytes = vocab.token_to_piece(token, has_marked_calls, None);
        match job.write(token, &bytes) {
            GrammarSwitch::None => {}
            GrammarSwitch::Release => job.sampler.release(),
            GrammarSwitch::Constrain(call_text) => {
                if let Some(grammar) = &job.plan.grammar {
                    let call_text = vocab.tokenize(call_text.as_bytes(), false, false);
                    // A grammar that worked for one reply works for the next; without it the call
                    // is only parsed more leniently.
                    let _ = job.sampler.constrain(self.model, grammar, &call_text);
                }
            }
        }
        if job.is_complete() {
            return Some(HostStopReason::Done);
        }
        job.is_spent().then_some(HostStopReason::Length)
    }

    fn finish(&mut self, job: ReplyJob, stop: HostStopReason) {
        self.cache.rest(job.slot.seq);
        let key = job.plan.key.clone();
        if let Some(spoken) = job.finish(stop) {
            self.spoken.entry(key).or_default().push(spoken);
        }
    }

    fn cancel(&mut self, is_selected: impl Fn(&ConversationKey, u64) -> bool) {
        let (cancelled, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(plan, _, _)| is_selected(&plan.key, plan.id));
        self.waiting = waiting;
        let cancelled: Vec<(JobPlan, Box<HostChat>, Sender<HostResponseLine>)> = cancelled;
        for (plan, _, reply_tx) in cancelled {
            let usage = ReplyUsage { prompt: plan.prompt.len() as u64, ..ReplyUsage::default() };
            let what = HostResponse::Done { stop: HostStopReason::Cancelled, usage };
            let _ = reply_tx.send(HostResponseLine { id: plan.id, what });
        }
        let (ended_jobs, still_active) = std::mem::take(&mut self.active)
            .into_iter()
            .partition(|job| is_selected(&job.plan.key, job.plan.id));
        self.active = still_active;
        let ended_jobs: Vec<ReplyJob> = ended_jobs;
        for job in ended_jobs {
            self.finish(job, HostStopReason::Cancelled);
        }
    }

    fn fail_all(&mut self, reason: &str) {
        for job in std::mem::take(&mut self.active) {
            self.cache.forget(&mut self.context, job.slot.seq);
            let mut fault = HostFault::new(HostFaultKind::Broken, "llama.cpp failed");
            fault.why = Some(reason.to_owned());
            job.fail(fault);
        }
    }
}
