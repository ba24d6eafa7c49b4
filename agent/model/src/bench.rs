//! Measures what the host does against what llama.cpp does alone: reading, writing, calls that are
//! held to their schemas, several conversations at once, and what a second turn reads.

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
/// Tokens written in each measurement.
const WRITTEN: u32 = 64;
const PROMPT: usize = 256;
/// Tokens that stand before what llama.cpp writes.
const STANDING: u32 = 96;
const CANNOT: &str = "llama.cpp cannot be measured";
const QUESTION: &str = "Write the file story.txt with a long story about a lighthouse.";
const TASK: &str = "Create greet.py, a program that greets whoever its first argument names.";
/// Tokens of a call at most; it ends by itself before.
const CALL: u32 = 256;
/// The tools that g3 offers to a small model: the agent's own tables, and the names in them.
const TOOLS: [(&str, &[&str]); 2] = [
    (include_str!("../../tools/src/profile/g3.json"), &["shell", "read_file", "write_file"]),
    (include_str!("../../tools/src/profile/tools_api.json"), &["edit"]),
];

/// Tokens a second.
type Rate = f64;

/// Runs all measurements and gives the table as Markdown.
pub fn run(serve: &Serve) -> Result<String> {
    let checked = preflight::check(serve)?;
    let name = checked.head.name.clone();
    // The same number for both, from beginning to end.
    let threads = Threads::new(serve.threads).now();
    let serve = Serve { threads: Some(threads), ..serve.clone() };
    let (backend, model) = load::model(&serve)?;
    let mut raw = Raw::new(&backend, &model, threads)?;
    // Not the user's: what is measured must be read, and nothing of it is of use later.
    let place = ScratchDir::new()?;
    let prefixes =
        PrefixStore::open(place.0.clone(), &serve.model).or_fail(|| "cannot keep conversations")?;
    let (engine, commands) = channel();
    let (tell, loaded) = channel();
    std::thread::scope(|scope| {
        let (serve, backend, model) = (&serve, &backend, &model);
        let worker = scope.spawn(move || {
            let ready = || {
                let _ = tell.send(());
            };
            let threads = Threads::new(Some(threads));
            let ground = EngineContext { backend, model, checked, threads, prefixes };
            engine::answer(serve, ground, &commands, ready)
        });
        let measured = loaded.recv().is_ok().then(|| measure(&mut raw, &engine));
        let _ = engine.send(EngineCommand::Stop);
        worker.join().map_err(|_| Failure::failed("the engine broke"))??;
        let rounds = measured.ok_or_else(|| Failure::failed("the model was not loaded"))??;
        Ok(table(&name, threads, &rounds))
    })
}

/// A directory for the time of the measurement.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> Result<ScratchDir> {
        let path = std::env::temp_dir().join(format!("g3-model-bench-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.or_fail(|| format!("cannot make `{}`", path.display()))?;
        Ok(ScratchDir(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What llama.cpp does alone: a context of its own.
struct Raw<'m> {
    context: LlamaContext<'m>,
}

/// One round: all measurements, one right after the other, so that what else happens on the
/// machine slows both sides of a ratio.
struct Round {
    read: Rate,
    raw: Rate,
    free: Rate,
    call: Rate,
    held: Rate,
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
        Ok(Raw { context: context.or_fail(|| CANNOT)? })
    }

    /// Tokens a second that are read.
    fn read(&mut self) -> Result<Rate> {
        self.context.clear_kv_cache();
        let mut batch = LlamaBatch::new(PROMPT, 1);
        for at in 0..PROMPT {
            let token = LlamaToken(i32::try_from(at * 7 % 1000).unwrap_or(0));
            let position = i32::try_from(at).unwrap_or(0);
            batch.add(token, position, &[0], at + 1 == PROMPT).or_fail(|| CANNOT)?;
        }
        let since = Instant::now();
        self.context.decode(&mut batch).or_fail(|| CANNOT)?;
        // Decoding is only begun by `decode`; the logits wait for its end.
        let _ = self.context.get_logits_ith(batch.n_tokens() - 1)[0];
        Ok(PROMPT as f64 / since.elapsed().as_secs_f64())
    }

    /// Tokens a second that are written, behind about as many as stand before the host's.
    fn write(&mut self) -> Result<Rate> {
        self.context.clear_kv_cache_seq(Some(0), Some(STANDING), None).or_fail(|| CANNOT)?;
        let mut batch = LlamaBatch::new(1, 1);
        let since = Instant::now();
        for n in 0..WRITTEN {
            batch.clear();
            let at = (STANDING + n).cast_signed();
            batch.add(LlamaToken(1000 + n.cast_signed()), at, &[0], true).or_fail(|| CANNOT)?;
            self.context.decode(&mut batch).or_fail(|| CANNOT)?;
            let _ = self.context.get_logits_ith(0)[0];
        }
        Ok(f64::from(WRITTEN) / since.elapsed().as_secs_f64())
    }
}

fn measure(raw: &mut Raw<'_>, engine: &Sender<EngineCommand>) -> Result<Vec<Round>> {
    // What happens first is slower: its memory is touched for the first time.
    raw.read()?;
    ask(engine, &[chat("free", ToolCallMode::Free)])?;
    ask(engine, &[call("held", true)])?;
    ask(engine, &[call("call", false)])?;
    (0..ROUNDS).map(|n| round(raw, engine, n)).collect()
}

fn round(raw: &mut Raw<'_>, engine: &Sender<EngineCommand>, n: usize) -> Result<Round> {
    let read = raw.read()?;
    // Always the same conversations, so that none is put on disk meanwhile. There and back again:
    // a load that grows or shrinks hits all of them alike.
    let free = || Ok::<Rate, Failure>(rate(&ask(engine, &[chat("free", ToolCallMode::Free)])?));
    let (raw_there, free_there) = (raw.write()?, free()?);
    let (free_back, raw_back) = (free()?, raw.write()?);
    let whole = |name, held| Ok::<ReplyUsage, Failure>(ask(engine, &[call(name, held)])?[0]);
    let call_there = whole("call", false)?;
    let held = [whole("held", true)?, whole("held", true)?];
    let call_back = whole("call", false)?;
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
        raw: both(raw_there, raw_back),
        free: both(free_there, free_back),
        call: both(whole_rate(call_there), whole_rate(call_back)),
        held: both(whole_rate(held[0]), whole_rate(held[1])),
        four,
        filtered: held.iter().map(|usage| usage.filtered).sum(),
        first_ms: first.prefill_ms as f64,
        second_ms: second.prefill_ms as f64,
        second_tokens: second.prefilled,
    })
}

/// Tokens a second of four conversations at once.
fn together(engine: &Sender<EngineCommand>) -> Result<Rate> {
    let chats = ["a", "b", "c", "d"].map(|name| chat(name, ToolCallMode::Free));
    // Read first, so that only writing is compared.
    for chat in &chats {
        ask(engine, &[HostChat { max_tokens: 1, ..chat.clone() }])?;
    }
    let since = Instant::now();
    let written: u64 = ask(engine, &chats)?.iter().map(|usage| usage.written).sum();
    Ok(written as f64 / since.elapsed().as_secs_f64())
}

/// The rate over two measurements of equal length.
fn both(one: Rate, other: Rate) -> Rate {
    2.0 / (1.0 / one + 1.0 / other)
}

/// Asks all at once and waits for all.
fn ask(engine: &Sender<EngineCommand>, chats: &[HostChat]) -> Result<Vec<ReplyUsage>> {
    let mut waiting = Vec::new();
    for (id, chat) in (1..).zip(chats) {
        let (hears, heard) = channel::<HostResponseLine>();
        let chat = Box::new(chat.clone());
        let _ = engine.send(EngineCommand::Chat { connection: 1, id, chat, hears });
        waiting.push(heard);
    }
    let done = |heard: std::sync::mpsc::Receiver<HostResponseLine>| {
        let last = heard.into_iter().find_map(|told| match told.what {
            HostResponse::Done { usage, .. } => Some(Ok(usage)),
            HostResponse::Error(fault) => Some(Err(fault.into_failure())),
            HostResponse::Text { .. }
            | HostResponse::Call { .. }
            | HostResponse::Progress { .. } => None,
            HostResponse::Hello(_) | HostResponse::Status(_) | HostResponse::Vectors(_) => None,
        });
        last.unwrap_or_else(|| Err(Failure::failed("the engine ended")))
    };
    waiting.into_iter().map(done).collect()
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
        messages: vec![HostMessage::User { text: QUESTION.into() }],
        tools: vec![HostTool { name: "write_file".into(), description, parameters }],
        mode,
        max_tokens: WRITTEN,
        temperature: 0.0,
        seed: 0,
        act: false,
    }
}

/// A chat that comes to a call, held to the tools' schemas or written freely. Both have the same
/// prompt but for the mark of a fence, which the free one writes itself.
fn call(conversation: &str, held: bool) -> HostChat {
    let tools = small_tools();
    let asked = chat(conversation, if held { ToolCallMode::Envelope } else { ToolCallMode::Free });
    let told = if held { String::new() } else { prompt::envelope_tools(&tools) };
    HostChat {
        system: asked.system + &told,
        messages: vec![HostMessage::User { text: TASK.into() }],
        tools: if held { tools } else { Vec::new() },
        max_tokens: CALL,
        ..asked
    }
}

/// As `agent/tools` offers them.
fn small_tools() -> Vec<HostTool> {
    let mut tools = Vec::new();
    for (table, names) in TOOLS {
        let table: Vec<Value> = serde_json::from_str(table).unwrap_or_default();
        for face in table.iter().filter(|face| names.iter().any(|name| face["name"] == **name)) {
            let text = |key: &str| face[key].as_str().unwrap_or_default().to_owned();
            let mut parameters = face["parameters"].clone();
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

/// Tokens a second of a reply from the moment it was asked for: making its grammar counts.
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
    let middle = |of: fn(&Round) -> f64| median(rounds.iter().map(of));
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
        middle(|round| round.read),
        middle(|round| round.raw),
        middle(|round| round.free),
        middle(|round| round.free / round.raw),
        middle(|round| round.call),
        middle(|round| round.held),
        middle(|round| round.held / round.call),
        middle(|round| round.four),
        middle(|round| round.four / round.free),
        middle(|round| round.first_ms),
        rounds.last().map_or(0, |round| round.second_tokens),
        middle(|round| round.second_ms),
        rounds.iter().map(|round| round.filtered).sum::<u64>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_measured_with_the_tools_that_a_small_model_is_offered() {
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
