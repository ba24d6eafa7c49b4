//! Benchmarks the host against llama.cpp alone: reading, generating, calls constrained by a
//! grammar, concurrent conversations, and the tokens read in a second turn.

use std::fs::{self, DirBuilder};
use std::num::NonZeroU32;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use base::failure::{Failure, OrFail, Result};
use base::model_host::wire::{
    HostChat, HostMessage, HostResponse, HostResponseLine, HostTool, ReplyUsage, ToolCallMode,
};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use serde_json::{Value, json};

use crate::command::EngineCommand;
use crate::engine::{self, EngineContext};
use crate::load;
use crate::options::Serve;
use crate::preflight;
use crate::prompt;
use crate::prompt_prefix::PrefixStore;
use crate::threads::Threads;

const ROUNDS: usize = 5;
/// Tokens generated in each measurement.
const REPLY_TOKENS: u32 = 64;
const PROMPT: usize = 256;
/// Tokens of context before what llama.cpp generates.
const CONTEXT_TOKENS: u32 = 96;
const BENCH_ERROR: &str = "llama.cpp cannot be measured";
const STORY_REQUEST: &str = "Write the file story.txt with a long story about a lighthouse.";
const TASK: &str = "Create greet.py, a program that greets whoever its first argument names.";
/// Maximum number of tokens of a call, which ends by itself before.
const CALL: u32 = 256;
/// The tools that g3 offers to a small model: the agent's own tables, and the names in them.
const TOOLS: [(&str, &[&str]); 2] = [
    (include_str!("../../tools/src/profile/g3.json"), &["shell", "read_file", "write_file"]),
    (include_str!("../../tools/src/profile/tools_api.json"), &["edit"]),
];

/// Tokens per second.
type Rate = f64;

/// Runs all measurements and returns the table as Markdown.
pub fn run(serve: &Serve) -> Result<String> {
    let checked = preflight::check(serve)?;
    let name = checked.head.name.clone();
    // The same fixed number of threads for both.
    let threads = Threads::new(serve.threads).now();
    let serve = Serve { threads: Some(threads), ..serve.clone() };
    let (backend, model) = load::model(&serve)?;
    let mut raw_bench = Raw::new(&backend, &model, threads)?;
    // Not the user's cache: the prompts must be read, and their KV is of no use later.
    let scratch = ScratchDir::new()?;
    let prefixes = PrefixStore::open(scratch.0.clone(), &serve.model)
        .or_fail(|| "cannot keep conversations")?;
    let (engine, commands) = channel();
    let (tx, loaded) = channel();
    std::thread::scope(|scope| {
        let (serve, backend, model) = (&serve, &backend, &model);
        let worker = scope.spawn(move || {
            let ready = || {
                let _ = tx.send(());
            };
            let threads = Threads::new(Some(threads));
            let engine_context = EngineContext { backend, model, checked, threads, prefixes };
            engine::answer(serve, engine_context, &commands, ready)
        });
        let measurement = loaded.recv().is_ok().then(|| measure(&mut raw_bench, &engine));
        let _ = engine.send(EngineCommand::Stop);
        worker.join().map_err(|_| Failure::failed("the engine broke"))??;
        let rounds = measurement.ok_or_else(|| Failure::failed("the model was not loaded"))??;
        Ok(table(&name, threads, &rounds))
    })
}

/// A temporary directory.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> Result<ScratchDir> {
        let path = std::env::temp_dir().join(format!("g3-model-bench-{}", std::process::id()));
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.or_fail(|| format!("cannot make `{}`", path.display()))?;
        Ok(ScratchDir(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// llama.cpp alone: a separate context.
struct Raw<'m> {
    context: LlamaContext<'m>,
}

/// One round: all measurements in immediate succession, so that other load on the machine slows
/// both sides of a ratio.
struct Round {
    read: Rate,
    raw: Rate,
    free: Rate,
    call: Rate,
    constrained: Rate,
    four: Rate,
    filtered: u64,
    first_ms: f64,
    second_ms: f64,
    second_tokens: u64,
}

impl<'m> Raw<'m> {
    fn new(backend: &LlamaBackend, model: &'m LlamaModel, threads: u32) -> Result<Raw<'m>> {
        let threads = i32::try_from(threads).unwrap_or(1);
        let parameters = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(2048))
            .with_n_batch(512)
            .with_n_threads(threads)
            .with_n_threads_batch(threads);
        let context = model.new_context(backend, parameters);
        Ok(Raw { context: context.or_fail(|| BENCH_ERROR)? })
    }

    /// Measures the tokens per second of reading.
    fn read(&mut self) -> Result<Rate> {
        self.context.clear_kv_cache();
        let mut batch = LlamaBatch::new(PROMPT, 1);
        for index in 0..PROMPT {
            let token = LlamaToken(i32::try_from(index * 7 % 1000).unwrap_or(0));
            let position = i32::try_from(index).unwrap_or(0);
            batch.add(token, position, &[0], index + 1 == PROMPT).or_fail(|| BENCH_ERROR)?;
        }
        let start_time = Instant::now();
        self.context.decode(&mut batch).or_fail(|| BENCH_ERROR)?;
        // `decode` only starts decoding; reading the logits waits for its end.
        let _ = self.context.get_logits_ith(batch.n_tokens() - 1)[0];
        Ok(PROMPT as f64 / start_time.elapsed().as_secs_f64())
    }

    /// Measures the tokens per second of generating, after about as much context as in the host's
    /// measurement.
    fn write(&mut self) -> Result<Rate> {
        self.context
            .clear_kv_cache_seq(Some(0), Some(CONTEXT_TOKENS), None)
            .or_fail(|| BENCH_ERROR)?;
        let mut batch = LlamaBatch::new(1, 1);
        let start_time = Instant::now();
        for n in 0..REPLY_TOKENS {
            batch.clear();
            let position = (CONTEXT_TOKENS + n).cast_signed();
            batch
                .add(LlamaToken(1000 + n.cast_signed()), position, &[0], true)
                .or_fail(|| BENCH_ERROR)?;
            self.context.decode(&mut batch).or_fail(|| BENCH_ERROR)?;
            let _ = self.context.get_logits_ith(0)[0];
        }
        Ok(f64::from(REPLY_TOKENS) / start_time.elapsed().as_secs_f64())
    }
}

fn measure(raw: &mut Raw<'_>, engine: &Sender<EngineCommand>) -> Result<Vec<Round>> {
    // The first run is slower because its memory is touched for the first time.
    raw.read()?;
    ask(engine, &[chat("free", ToolCallMode::Free)])?;
    ask(engine, &[call("held", true)])?;
    ask(engine, &[call("call", false)])?;
    (0..ROUNDS).map(|n| round(raw, engine, n)).collect()
}

fn round(raw: &mut Raw<'_>, engine: &Sender<EngineCommand>, n: usize) -> Result<Round> {
    let read = raw.read()?;
    // Always the same conversations, so that none is spilled to disk. Measured in both orders, so
    // that increasing or decreasing load affects all of them equally.
    let free = || Ok::<Rate, Failure>(rate(&ask(engine, &[chat("free", ToolCallMode::Free)])?));
    let (raw_first, free_first) = (raw.write()?, free()?);
    let (free_second, raw_second) = (free()?, raw.write()?);
    let whole_reply =
        |name, constrained| Ok::<ReplyUsage, Failure>(ask(engine, &[call(name, constrained)])?[0]);
    let call_first = whole_reply("call", false)?;
    let constrained = [whole_reply("held", true)?, whole_reply("held", true)?];
    let call_second = whole_reply("call", false)?;
    let four = together(engine)?;
    let mut long = chat("long", ToolCallMode::Free);
    long.system = format!("Round {n}. {}", "You are careful and short. ".repeat(80));
    long.max_tokens = 1;
    let first = ask(engine, std::slice::from_ref(&long))?[0];
    long.messages.push(HostMessage::Assistant { text: "Yes".into(), calls: Vec::new() });
    long.messages.push(HostMessage::User { text: "Go on.".into() });
    let second = ask(engine, &[long])?[0];
    Ok(Round {
        read,
        raw: both(raw_first, raw_second),
        free: both(free_first, free_second),
        call: both(whole_rate(call_first), whole_rate(call_second)),
        constrained: both(whole_rate(constrained[0]), whole_rate(constrained[1])),
        four,
        filtered: constrained.iter().map(|usage| usage.filtered).sum(),
        first_ms: first.prefill_ms as f64,
        second_ms: second.prefill_ms as f64,
        second_tokens: second.prefilled,
    })
}

/// Measures the tokens per second of four concurrent conversations.
fn together(engine: &Sender<EngineCommand>) -> Result<Rate> {
    let chats = ["a", "b", "c", "d"].map(|name| chat(name, ToolCallMode::Free));
    // The prompts are read first, so that only generation is compared.
    for chat in &chats {
        ask(engine, &[HostChat { max_tokens: 1, ..chat.clone() }])?;
    }
    let start_time = Instant::now();
    let written: u64 = ask(engine, &chats)?.iter().map(|usage| usage.written).sum();
    Ok(written as f64 / start_time.elapsed().as_secs_f64())
}

/// Returns the rate of two measurements of equal length.
fn both(a: Rate, b: Rate) -> Rate {
    2.0 / (1.0 / a + 1.0 / b)
}

/// Sends all chats at once and waits for all replies.
fn ask(engine: &Sender<EngineCommand>, chats: &[HostChat]) -> Result<Vec<ReplyUsage>> {
    let mut receivers = Vec::new();
    for (id, chat) in (1..).zip(chats) {
        let (reply_tx, rx) = channel::<HostResponseLine>();
        let chat = Box::new(chat.clone());
        let _ = engine.send(EngineCommand::Chat { connection: 1, id, chat, reply_tx });
        receivers.push(rx);
    }
    let usage_of = |rx: std::sync::mpsc::Receiver<HostResponseLine>| {
        let final_usage = rx.into_iter().find_map(|response_line| match response_line.what {
            HostResponse::Done { usage, .. } => Some(Ok(usage)),
            HostResponse::Error(fault) => Some(Err(fault.into_failure())),
            HostResponse::Text { .. }
            | HostResponse::Call { .. }
            | HostResponse::Progress { .. } => None,
            HostResponse::Hello(_) | HostResponse::Status(_) | HostResponse::Vectors(_) => None,
        });
        final_usage.unwrap_or_else(|| Err(Failure::failed("the engine ended")))
    };
    receivers.into_iter().map(usage_of).collect()
}

fn chat(conversation: &str, mode: ToolCallMode) -> HostChat {
    let parameters = json!({
        "type": "object",
        "properties": { "path": {"type": "string"}, "content": {"type": "string"} },
        "required": ["path", "content"],
    });
    let description = "Writes a file.".to_owned();
    HostChat {
        conversation: conversation.into(),
        system: "You are a coding agent.".into(),
        messages: vec![HostMessage::User { text: STORY_REQUEST.into() }],
        tools: vec![HostTool { name: "write_file".into(), description, parameters }],
        mode,
        max_tokens: REPLY_TOKENS,
        temperature: 0.0,
        seed: 0,
        act: false,
    }
}

/// Returns a chat that results in a call, constrained by the tools' schemas or not. Both prompts
/// are equal except for the opening code fence, which the unconstrained one generates itself.
fn call(conversation: &str, constrained: bool) -> HostChat {
    let tools = small_tools();
    let base =
        chat(conversation, if constrained { ToolCallMode::Envelope } else { ToolCallMode::Free });
    let instructions = if constrained { String::new() } else { prompt::envelope_tools(&tools) };
    HostChat {
        system: base.system + &instructions,
        messages: vec![HostMessage::User { text: TASK.into() }],
        tools: if constrained { tools } else { Vec::new() },
        max_tokens: CALL,
        ..base
    }
}

/// Returns the tools as in `agent/tools`.
fn small_tools() -> Vec<HostTool> {
    let mut tools = Vec::new();
    for (table, names) in TOOLS {
        let table: Vec<Value> = serde_json::from_str(table).unwrap_or_default();
        for definition in
            table.iter().filter(|definition| names.iter().any(|name| definition["name"] == **name))
        {
            let text = |key: &str| definition[key].as_str().unwrap_or_default().to_owned();
            let mut parameters = definition["parameters"].clone();
            if let Some(content) = parameters.pointer_mut("/properties/content/type") {
                *content = json!(["string", "object", "array"]);
            }
            tools.push(HostTool {
                name: text("name"),
                description: text("description"),
                parameters,
            });
        }
    }
    tools
}

/// Returns the tokens per second of a reply since its request, including the time to create its
/// grammar.
fn whole_rate(usage: ReplyUsage) -> Rate {
    let millis = (usage.prefill_ms + usage.write_ms).max(1);
    usage.written as f64 * 1000.0 / millis as f64
}

fn rate(usages: &[ReplyUsage]) -> Rate {
    let written: u64 = usages.iter().map(|usage| usage.written.saturating_sub(1)).sum();
    let millis = usages.iter().map(|usage| usage.write_ms).max().unwrap_or(1).max(1);
    written as f64 * 1000.0 / millis as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn table(model: &str, threads: u32, rounds: &[Round]) -> String {
    let median_of = |value_of: fn(&Round) -> f64| median(rounds.iter().map(value_of));
    format!(
        "## The local model host\n\n\
         `g3-model bench`: {model}, {threads} threads, {ROUNDS} rounds; each number is the median, \
         and so is each ratio, taken within a round.\n\n\
         | what | tokens/s or ms | ratio | bar |\n|---|---|---|---|\n\
         | llama.cpp reads {PROMPT} tokens | {:.1} | | |\n\
         | llama.cpp writes | {:.1} | 1 | |\n\
         | the host writes | {:.1} | {:.2} | >= 0.95 of llama.cpp |\n\
         | the host writes a whole call freely | {:.1} | | |\n\
         | the same, held to the schemas of g3's small tools | {:.1} | {:.2} of freely | >= 0.90 |\n\
         | four conversations together | {:.1} | {:.2} of one | >= 1.35 |\n\
         | a first turn is read | {:.0} ms | | |\n\
         | a second turn is read ({} tokens) | {:.0} ms | | only what is new |\n\n\
         The whole vocabulary was filtered {} times.\n",
        median_of(|round| round.read),
        median_of(|round| round.raw),
        median_of(|round| round.free),
        median_of(|round| round.free / round.raw),
        median_of(|round| round.call),
        median_of(|round| round.constrained),
        median_of(|round| round.constrained / round.call),
        median_of(|round| round.four),
        median_of(|round| round.four / round.free),
        median_of(|round| round.first_ms),
        rounds.last().map_or(0, |round| round.second_tokens),
        median_of(|round| round.second_ms),
        rounds.iter().map(|round| round.filtered).sum::<u64>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmark_uses_the_tools_of_a_small_model() {
        let tools = small_tools();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["shell", "read_file", "write_file", "edit"]);
        assert!(tools.iter().all(|tool| tool.parameters["required"].is_array()));
        let (held, free) = (call("c", true), call("c", false));
        let template = crate::template::Template::new(None).unwrap();
        let text =
            |chat: &HostChat| prompt::write(&template, chat, chat.mode, &[], &[]).unwrap().text;
        assert_eq!(text(&held).strip_prefix(&text(&free)), Some("```json\n"));
    }
}
