//! Measures what the host does against what llama.cpp does alone: reading, writing, constrained
//! writing, several conversations at once, and what a second turn reads. Medians of three rounds.

use std::num::NonZeroU32;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use base::failure::{Failure, OrFail, Result};
use base::host::wire::{Chat, Mode, Tell, Told, Tool, Turn, Usage};
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use serde_json::json;

use crate::engine::{self, Command};
use crate::guard;
use crate::options::Serve;

const ROUNDS: usize = 3;
/// Tokens written in each measurement.
const WRITTEN: u32 = 64;
const PROMPT: usize = 256;
const QUESTION: &str = "Write the file story.txt with a long story about a lighthouse.";

/// Tokens a second.
type Rate = f64;

/// Runs all measurements and gives the table as Markdown.
pub fn run(serve: &Serve) -> Result<String> {
    let checked = guard::check(serve)?;
    let raw = raw(serve)?;
    let (engine, commands) = channel();
    let (tell, loaded) = channel();
    let (options, head) = (serve.clone(), checked.head.name.clone());
    let worker = std::thread::spawn(move || {
        engine::run(&options, checked, &commands, || {
            let _ = tell.send(());
        })
    });
    let measured = loaded.recv().is_ok().then(|| Measured::take(&engine));
    let _ = engine.send(Command::Stop);
    let ended = worker.join().map_err(|_| Failure::failed("the engine broke"))?;
    ended?;
    let measured = measured.ok_or_else(|| Failure::failed("the model was not loaded"))??;
    Ok(table(&head, serve, raw, &measured))
}

/// What llama.cpp does alone.
#[derive(Clone, Copy)]
struct Raw {
    read: Rate,
    write: Rate,
}

/// What the host does.
struct Measured {
    free: Rate,
    constrained: Rate,
    filtered: u64,
    four: Rate,
    first_ms: u64,
    second_ms: u64,
    second_tokens: u64,
}

fn raw(serve: &Serve) -> Result<Raw> {
    let mut backend = LlamaBackend::init().or_fail(|| "cannot start llama.cpp")?;
    backend.void_logs();
    let cannot = || "llama.cpp cannot be measured";
    let model = LlamaModel::load_from_file(&backend, &serve.model, &LlamaModelParams::default());
    let model = model.or_fail(cannot)?;
    let threads = i32::try_from(serve.threads()).unwrap_or(1);
    let parameters = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(2048))
        .with_n_batch(512)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let mut context = model.new_context(&backend, parameters).or_fail(cannot)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        context.clear_kv_cache();
        let mut batch = LlamaBatch::new(PROMPT, 1);
        for at in 0..PROMPT {
            let token = LlamaToken(i32::try_from(at * 7 % 1000).unwrap_or(0));
            let position = i32::try_from(at).unwrap_or(0);
            batch.add(token, position, &[0], at + 1 == PROMPT).or_fail(cannot)?;
        }
        let since = Instant::now();
        context.decode(&mut batch).or_fail(cannot)?;
        // Decoding is only begun by `decode`; the logits wait for its end.
        let _ = context.get_logits_ith(batch.n_tokens() - 1)[0];
        let read = PROMPT as f64 / since.elapsed().as_secs_f64();
        let since = Instant::now();
        for n in 0..WRITTEN {
            batch.clear();
            let position = i32::try_from(PROMPT).unwrap_or(0) + n.cast_signed();
            batch.add(LlamaToken(1000 + n.cast_signed()), position, &[0], true).or_fail(cannot)?;
            context.decode(&mut batch).or_fail(cannot)?;
            let _ = context.get_logits_ith(0)[0];
        }
        rounds.push((read, f64::from(WRITTEN) / since.elapsed().as_secs_f64()));
    }
    let read = median(rounds.iter().map(|(read, _)| *read));
    Ok(Raw { read, write: median(rounds.iter().map(|(_, write)| *write)) })
}

impl Measured {
    fn take(engine: &Sender<Command>) -> Result<Measured> {
        let (mut free, mut constrained, mut four, mut filtered) = (vec![], vec![], vec![], 0);
        let (mut first_ms, mut second_ms, mut second_tokens) = (vec![], vec![], 0);
        for round in 0..ROUNDS {
            let alone = ask(engine, &[chat(&format!("free {round}"), Mode::Free)])?;
            free.push(rate(&alone));
            let bound = ask(engine, &[chat(&format!("bound {round}"), Mode::Envelope)])?;
            constrained.push(rate(&bound));
            filtered += bound[0].filtered;
            let chats = ["a", "b", "c", "d"].map(|it| chat(&format!("{it} {round}"), Mode::Free));
            // Read first, so that only writing is compared.
            for chat in &chats {
                ask(engine, &[Chat { max_tokens: 1, ..chat.clone() }])?;
            }
            let since = Instant::now();
            let together = ask(engine, &chats)?;
            let written: u64 = together.iter().map(|usage| usage.written).sum();
            four.push(written as f64 / since.elapsed().as_secs_f64());
            let mut long = chat(&format!("long {round}"), Mode::Free);
            long.system = format!("Round {round}. {}", "You are careful and short. ".repeat(80));
            long.max_tokens = 1;
            first_ms.push(ask(engine, std::slice::from_ref(&long))?[0].prefill_ms as f64);
            long.messages.push(Turn::Assistant { text: "Yes".into(), calls: Vec::new() });
            long.messages.push(Turn::User { text: "Go on.".into() });
            let second = ask(engine, &[long])?[0];
            second_ms.push(second.prefill_ms as f64);
            second_tokens = second.prefilled;
        }
        Ok(Measured {
            free: median(free.into_iter()),
            constrained: median(constrained.into_iter()),
            filtered,
            four: median(four.into_iter()),
            first_ms: median(first_ms.into_iter()) as u64,
            second_ms: median(second_ms.into_iter()) as u64,
            second_tokens,
        })
    }
}

/// Asks all at once and waits for all.
fn ask(engine: &Sender<Command>, chats: &[Chat]) -> Result<Vec<Usage>> {
    let mut waiting = Vec::new();
    for (id, chat) in (1..).zip(chats) {
        let (hears, heard) = channel::<Told>();
        let chat = Box::new(chat.clone());
        let _ = engine.send(Command::Chat { connection: 1, id, chat, hears });
        waiting.push(heard);
    }
    let done = |heard: std::sync::mpsc::Receiver<Told>| {
        let last = heard.into_iter().find_map(|told| match told.what {
            Tell::Done { usage, .. } => Some(Ok(usage)),
            Tell::Error(fault) => Some(Err(fault.into_failure())),
            Tell::Text { .. } | Tell::Call { .. } | Tell::Progress { .. } => None,
            Tell::Hello(_) | Tell::Status(_) | Tell::Bye => None,
        });
        last.unwrap_or_else(|| Err(Failure::failed("the engine ended")))
    };
    waiting.into_iter().map(done).collect()
}

fn chat(conversation: &str, mode: Mode) -> Chat {
    let parameters = json!({
        "type": "object",
        "properties": { "path": {"type": "string"}, "content": {"type": "string"} },
        "required": ["path", "content"],
    });
    let description = "Writes a file.".to_owned();
    Chat {
        conversation: conversation.into(),
        system: "You are a coding agent.".into(),
        messages: vec![Turn::User { text: QUESTION.into() }],
        tools: vec![Tool { name: "write_file".into(), description, parameters }],
        mode,
        max_tokens: WRITTEN,
        temperature: 0.0,
        seed: 0,
    }
}

fn rate(usages: &[Usage]) -> Rate {
    let written: u64 = usages.iter().map(|usage| usage.written.saturating_sub(1)).sum();
    let millis = usages.iter().map(|usage| usage.write_ms).max().unwrap_or(1).max(1);
    written as f64 * 1000.0 / millis as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn table(model: &str, serve: &Serve, raw: Raw, host: &Measured) -> String {
    format!(
        "## The local model host\n\n\
         `g3-model bench`: {model}, {} threads, medians of {ROUNDS} rounds.\n\n\
         | what | tokens/s or ms | ratio | bar |\n|---|---|---|---|\n\
         | llama.cpp reads {PROMPT} tokens | {:.1} | | |\n\
         | llama.cpp writes | {:.1} | 1 | |\n\
         | the host writes | {:.1} | {:.2} | >= 0.95 of llama.cpp |\n\
         | the host writes a call held to its schema | {:.1} | {:.2} of free | >= 0.90 |\n\
         | four conversations together | {:.1} | {:.2} of one | >= 1.35 |\n\
         | a first turn is read | {} ms | | |\n\
         | a second turn is read ({} tokens) | {} ms | | only what is new |\n\n\
         The whole vocabulary was filtered {} times.\n",
        serve.threads(),
        raw.read,
        raw.write,
        host.free,
        host.free / raw.write,
        host.constrained,
        host.constrained / host.free,
        host.four,
        host.four / host.free,
        host.first_ms,
        host.second_tokens,
        host.second_ms,
        host.filtered,
    )
}
