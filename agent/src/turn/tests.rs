//! The loop against a scripted model and a scripted toolbox, in one process.

use std::collections::VecDeque;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::act::ToolJob;
use super::*;
use crate::context::window::Window;
use crate::context::{Entry, Record};
use crate::message::{Part, ToolCall, ToolResult};
use crate::provider::{Facts, Hear, ToolSpec};
use crate::tools::Outcome;

/// A model that says what it is told to say, and remembers what it was asked.
struct Script {
    facts: Facts,
    replies: Mutex<VecDeque<std::result::Result<Reply, ProviderError>>>,
    asked: Mutex<Vec<Vec<Message>>>,
}

impl Script {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Script {
        Script::with(replies.into_iter().map(Ok))
    }

    fn with(
        replies: impl IntoIterator<Item = std::result::Result<Reply, ProviderError>>,
    ) -> Script {
        let facts = Facts {
            provider: "script.test".into(),
            model: "m".into(),
            context: 10_000,
            max_output: 1_000,
            small: false,
        };
        let replies = Mutex::new(replies.into_iter().collect());
        Script { facts, replies, asked: Mutex::new(Vec::new()) }
    }

    fn asked(&self) -> Vec<Vec<Message>> {
        self.asked.lock().unwrap().clone()
    }
}

impl Provider for Script {
    fn ask<'a>(
        &'a self,
        request: &'a Request<'a>,
        hear: &'a mut Hear<'_>,
    ) -> BoxFuture<'a, std::result::Result<Reply, ProviderError>> {
        self.asked.lock().unwrap().push(request.messages.to_vec());
        let reply = self.replies.lock().unwrap().pop_front();
        Box::pin(async move {
            let reply = reply.expect("the script has no more replies")?;
            hear(Delta::Text(&reply.message.words()));
            Ok(reply)
        })
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// Tools: `wait` ends when another call named `wake` runs; `say` gives back its text; `slow` never
/// ends by itself and sets the token as well.
#[derive(Default)]
struct Tools {
    woken: CancellationToken,
    order: Mutex<Vec<String>>,
}

impl Toolbox for Tools {
    fn offered(&self) -> &[ToolSpec] {
        &[]
    }

    fn touches(&self, _: &str, args: &Value) -> Vec<String> {
        args["file"].as_str().map(str::to_owned).into_iter().collect()
    }

    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            self.order.lock().unwrap().push(format!("begin {}", job.call.id));
            let outcome = match job.call.name.as_str() {
                "wait" => {
                    self.woken.cancelled().await;
                    Outcome::done("woken")
                }
                "wake" => {
                    self.woken.cancel();
                    Outcome::done("woke it")
                }
                "slow" => {
                    self.woken.cancel();
                    std::future::pending().await
                }
                _ => {
                    tokio::task::yield_now().await;
                    Outcome::done(job.call.args["text"].as_str().unwrap_or("said"))
                }
            };
            self.order.lock().unwrap().push(format!("end {}", job.call.id));
            outcome
        })
    }
}

struct Nowhere;

impl Record for Nowhere {
    fn note(&mut self, _: &Entry) -> std::io::Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    fn set_aside(&mut self, name: &str, _: &str) -> std::io::Result<PathBuf> {
        Ok(PathBuf::from(format!("thinned/{name}.txt")))
    }
}

fn reply(parts: Vec<Part>, stop: Stop) -> Reply {
    let message = Message { role: Role::Assistant, parts };
    Reply { message, usage: Usage::default(), stop }
}

fn says(text: &str) -> Reply {
    reply(vec![Part::Text { text: text.into() }], Stop::Done)
}

fn call(id: &str, name: &str, args: Value) -> Part {
    Part::Call(ToolCall { id: id.into(), name: name.into(), args, malformed: None })
}

fn calls(parts: Vec<Part>) -> Reply {
    reply(parts, Stop::Calls)
}

struct Run {
    finish: Result<Finish>,
    talk: Conversation,
    events: Vec<What>,
}

impl Run {
    fn results(&self) -> Vec<ToolResult> {
        let parts = self.talk.messages().iter().flat_map(|message| message.parts.clone());
        let results = parts.filter_map(|part| match part {
            Part::Result(result) => Some(result),
            Part::Text { .. } | Part::Call(_) | Part::Reasoning { .. } | Part::Image(_) => None,
        });
        results.collect()
    }
}

async fn run_with(model: &Script, tools: &Tools, limits: Limits, cancel: CancellationToken) -> Run {
    let events: Arc<Mutex<Vec<What>>> = Arc::default();
    let heard = events.clone();
    let agent = Agent {
        provider: model,
        toolbox: tools,
        system: "be good",
        session: "s",
        limits,
        keep: &|| Some("- [ ] the rest".to_owned()),
        tell: Arc::new(move |what| heard.lock().unwrap().push(what)),
        cancel,
    };
    let mut talk = Conversation::new(Window::new(model.facts.context, 10), Box::new(Nowhere));
    talk.ask(Message::text(Role::User, "go")).unwrap();
    let finish = drive(&mut talk, &agent).await;
    let events = events.lock().unwrap().clone();
    Run { finish, talk, events }
}

async fn run(model: &Script) -> Run {
    run_with(model, &Tools::default(), Limits::default(), CancellationToken::new()).await
}

#[tokio::test]
async fn calls_of_one_reply_run_at_once_and_their_results_come_in_call_order() {
    let model = Script::new([
        calls(vec![call("a", "wait", json!({})), call("b", "wake", json!({}))]),
        says("done"),
    ]);
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &Finish::Done);
    let ids: Vec<String> = run.results().into_iter().map(|result| result.call_id).collect();
    assert_eq!(ids, ["a", "b"]);
    let ended = run.events.iter().filter_map(|what| match what {
        What::ToolEnd { id, .. } => Some(id.as_str()),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), ["b", "a"], "`wait` can only end after `wake` did");
}

#[tokio::test]
async fn calls_that_touch_the_same_file_keep_their_order() {
    let tools = Tools::default();
    let model = Script::new([
        calls(vec![
            call("a", "say", json!({"file": "x"})),
            call("b", "say", json!({"file": "x", "text": "2"})),
            call("c", "say", json!({"file": "y"})),
        ]),
        says("done"),
    ]);
    run_with(&model, &tools, Limits::default(), CancellationToken::new()).await;
    let order = tools.order.lock().unwrap().clone();
    let at = |what: &str| order.iter().position(|it| it == what).unwrap();
    assert!(at("end a") < at("begin b"), "{order:?}");
    assert!(at("begin c") < at("begin b"), "{order:?}");
}

#[tokio::test]
async fn a_call_identical_to_the_one_before_it_is_not_run_but_answered() {
    let same = || json!({"text": "x"});
    let model = Script::new([
        calls(vec![
            call("a", "say", same()),
            call("b", "say", same()),
            Part::Text { text: "and again".into() },
            call("c", "say", same()),
        ]),
        says("done"),
    ]);
    let tools = Tools::default();
    let run = run_with(&model, &tools, Limits::default(), CancellationToken::new()).await;
    let results = run.results();
    assert_eq!(results.iter().map(|r| r.ok).collect::<Vec<_>>(), [true, false, true]);
    assert!(results[1].text.contains("identical"), "{}", results[1].text);
    assert!(!tools.order.lock().unwrap().contains(&"begin b".to_owned()));
}

#[tokio::test]
async fn malformed_arguments_are_shown_as_sent() {
    let bad = ToolCall {
        id: "a".into(),
        name: "say".into(),
        args: Value::Null,
        malformed: Some("{\"text\": ".into()),
    };
    let model = Script::new([calls(vec![Part::Call(bad)]), says("sorry")]);
    let run = run(&model).await;
    let args = run.events.iter().find_map(|what| match what {
        What::ToolStart { args, .. } => Some(args.clone()),
        _ => None,
    });
    assert_eq!(args, Some(json!("{\"text\": ")));
    assert_eq!(run.results().len(), 1);
}

#[tokio::test]
async fn a_call_cut_off_by_the_output_limit_is_not_run() {
    let model = Script::new([
        reply(
            vec![call("a", "say", json!({})), call("b", "say", json!({"text": "hal"}))],
            Stop::Length,
        ),
        says("done"),
    ]);
    let run = run(&model).await;
    let results = run.results();
    assert!(results[0].ok);
    assert!(!results[1].ok && results[1].text.contains("in parts"), "{}", results[1].text);
}

#[tokio::test]
async fn a_text_cut_off_by_the_output_limit_is_continued() {
    let half = reply(vec![Part::Text { text: "one, ".into() }], Stop::Length);
    let model = Script::new([half, says("two")]);
    let run = run(&model).await;
    assert_eq!(run.finish.unwrap(), Finish::Done);
    assert!(model.asked()[1].last().unwrap().words().contains("Go on exactly"));
}

#[tokio::test]
async fn empty_replies_are_not_a_silent_end() {
    let model = Script::new((0..9).map(|_| says("")));
    let run = run(&model).await;
    assert!(run.finish.unwrap_err().what.contains("does not get to an end"));
    assert_eq!(model.asked().len(), 4);
}

#[tokio::test]
async fn a_model_that_repeats_itself_is_stopped_with_a_reason() {
    let model = Script::new((0..20).map(|n| calls(vec![call(&n.to_string(), "say", json!({}))])));
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &Finish::Limit(Limit::Repeats(6)));
    assert!(run.results()[2].text.contains("made this same call 3 times"));
}

#[tokio::test]
async fn the_turn_limit_ends_the_run_with_all_calls_answered() {
    let model = Script::new(
        (0..5).map(|n| calls(vec![call(&n.to_string(), "say", json!({"text": n.to_string()}))])),
    );
    let limits = Limits { turns: Some(2), ..Limits::default() };
    let run = run_with(&model, &Tools::default(), limits, CancellationToken::new()).await;
    assert_eq!(run.finish.as_ref().unwrap(), &Finish::Limit(Limit::Turns(2)));
    assert_eq!(run.results().len(), 2);
}

#[tokio::test]
async fn a_cancelled_tool_is_answered_and_the_run_ends() {
    let tools = Tools::default();
    let model =
        Script::new([calls(vec![call("a", "say", json!({})), call("b", "slow", json!({}))])]);
    // The slow tool itself sets the token: the user cancels while it runs.
    let cancel = tools.woken.clone();
    let run = run_with(&model, &tools, Limits::default(), cancel).await;
    assert_eq!(run.finish.as_ref().unwrap(), &Finish::Cancelled);
    let results = run.results();
    assert_eq!(results.len(), 2);
    assert!(!results[1].ok && results[1].text.contains("cancelled"));
}

#[tokio::test]
async fn a_request_that_is_too_long_is_summarised_and_asked_again() {
    let model = Script::with([
        Ok(calls(vec![call("a", "say", json!({"text": "x".repeat(3_000)}))])),
        Err(ProviderError::TooLong("9 > 8".into())),
        Ok(says("we did half")),
        Ok(says("and now the rest")),
    ]);
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &Finish::Done);
    let last = model.asked().pop().unwrap();
    assert_eq!(last.len(), 1);
    for kept in ["we did half", "go", "the rest"] {
        assert!(last[0].words().contains(kept), "{kept} is lost");
    }
    assert!(run.events.iter().any(|what| matches!(what, What::Compacted { .. })));
}

#[tokio::test]
async fn large_old_results_are_thinned_when_the_window_fills() {
    let big = |n: u32| {
        let text = format!("{n}{}", "x".repeat(6_000));
        calls(vec![call(
            &n.to_string(),
            "say",
            json!({"text": text.clone()[..1].to_owned() + &text}),
        )])
    };
    let model = Script::new((0..4).map(big).chain([says("a summary"), says("done"), says("done")]));
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &Finish::Done);
    assert!(run.events.iter().any(|what| matches!(what, What::Thinned { .. })));
}

#[tokio::test]
async fn every_request_begins_with_the_one_before_it() {
    let model = Script::new([
        calls(vec![call("a", "say", json!({"text": "1"}))]),
        calls(vec![call("b", "say", json!({"text": "2"}))]),
        says("done"),
    ]);
    run(&model).await;
    let asked = model.asked();
    for pair in asked.windows(2) {
        assert_eq!(pair[1][..pair[0].len()], pair[0][..]);
    }
}
