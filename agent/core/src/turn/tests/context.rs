//! Tests of the context: stable prefixes, thinning, summaries, and replayed journals.

use super::*;

#[tokio::test]
async fn a_too_long_request_is_summarized_and_sent_again() {
    let model = Script::with([
        Ok(calls(vec![call("a", "say", json!({"text": "x".repeat(3_000)}))])),
        Err(ProviderError::TooLong("9 > 8".into())),
        Ok(says("we did half")),
        Ok(says("and now the rest")),
    ]);
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
    let last = model.requests().pop().unwrap();
    assert_eq!(last.len(), 1);
    for kept in ["we did half", "go", "the rest"] {
        assert!(last[0].full_text().contains(kept), "{kept} is lost");
    }
    assert!(run.events.iter().any(|what| matches!(what, EventKind::Compacted { .. })));
}

#[tokio::test]
async fn the_cost_of_a_summary_counts_against_the_budget() {
    let mut summary = says("we did half");
    summary.usage.input = 900;
    let model = Script::with([
        Ok(calls(vec![call("a", "say", json!({}))])),
        Err(ProviderError::TooLong("9 > 8".into())),
        Ok(summary),
        Ok(calls(vec![call("b", "say", json!({}))])),
        Ok(says("beyond the limit")),
    ]);
    let limits = UsageLimits { tokens: Some(800), ..UsageLimits::default() };
    let run = run_with(&model, &Tools::default(), limits, CancellationToken::new()).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Limit(Limit::Tokens(800)));
}

/// Returns twenty turns, each with a call and its result, that fill more than two windows; one part
/// alone exceeds a window.
fn more_than_fits() -> Vec<ConversationEntry> {
    let usage = Usage::default();
    let turn = |n: usize| {
        let long = if n == 7 { 60_000 } else { 4_000 };
        let requests = format!("mark-{n:02} {}", "x".repeat(long));
        let (call_id, name, text) = (n.to_string(), "say".into(), "said".into());
        let result =
            ToolResult { call_id, name, ok: true, text, images: Vec::new(), not_run: false };
        let message = calls(vec![call(&n.to_string(), "say", json!({}))]).message;
        let request = Message::text(MessageRole::User, requests);
        [
            ConversationEntry::Request { message: request },
            ConversationEntry::Reply { message, usage, stop: StopReason::Calls },
            ConversationEntry::Result { result },
            ConversationEntry::Reply {
                message: says("done").message,
                usage,
                stop: StopReason::Done,
            },
        ]
    };
    (0..20).flat_map(turn).collect()
}

#[tokio::test]
async fn a_conversation_too_long_for_one_request_is_summarized_in_parts() {
    let count = Mutex::new(0);
    let summary = || {
        *count.lock().unwrap() += 1;
        says(&format!("summary {}", count.lock().unwrap()))
    };
    let model = Script::new((0..12).map(|_| summary()));
    let (tools, cancel) = (Tools::default(), CancellationToken::new());
    let run = run_after(more_than_fits(), &model, &tools, UsageLimits::default(), cancel).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
    let requests = model.requests();
    let (last, parts) = requests.split_last().unwrap();
    assert!(parts.len() > 2, "{} parts", parts.len());
    let read: String = serde_json::to_string(parts).unwrap();
    for n in 0..20 {
        assert!(read.contains(&format!("mark-{n:02} ")), "part {n} was never read");
    }
    for (n, part) in parts.iter().enumerate() {
        let size: u64 = part.iter().map(crate::context::window::estimate).sum();
        assert!(size < 10_000 - 1_000, "part {n} has {size} tokens");
        let sent = serde_json::to_string(part).unwrap();
        assert_eq!(n > 0, sent.contains(&format!("summary {n}")), "part {n}: {sent}");
        assert_eq!(part[0].role, MessageRole::User);
        for message in part {
            for called in message.calls() {
                assert!(sent.contains(&format!("\"call_id\":\"{}\"", called.id)));
            }
        }
    }
    let kept = last[0].full_text();
    assert!(kept.contains(&format!("summary {}", parts.len())), "{kept}");
    assert!(kept.contains("go") && kept.contains("the rest"), "{kept}");
}

#[tokio::test]
async fn a_too_long_summary_request_is_split_into_smaller_parts() {
    let too_long = Err(ProviderError::TooLong("too long".into()));
    let summaries = (1..9).map(|n| Ok(says(&format!("summary {n}"))));
    let model = Script::with([too_long].into_iter().chain(summaries));
    // Seven turns, which fit according to our estimate.
    let before = more_than_fits().into_iter().take(7 * 4).collect();
    let (tools, cancel) = (Tools::default(), CancellationToken::new());
    let run = run_after(before, &model, &tools, UsageLimits::default(), cancel).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
    let requests = model.requests();
    let all = serde_json::to_string(&requests[0]).unwrap();
    assert!((0..7).all(|n| all.contains(&format!("mark-{n:02} "))), "the first asks for all");
    let (last, parts) = requests[1..].split_last().unwrap();
    for part in parts {
        let size: u64 = part.iter().map(crate::context::window::estimate).sum();
        assert!(size < 4_500, "{size} tokens");
    }
    let read = serde_json::to_string(parts).unwrap();
    assert!((0..7).all(|n| read.contains(&format!("mark-{n:02} "))), "{read}");
    assert!(last[0].full_text().contains(&format!("summary {}", parts.len())));
}

#[tokio::test]
async fn replaying_a_journal_restores_the_conversation() {
    let big = |n: u32| {
        let text = format!("{n}{}", "x".repeat(6_000));
        calls(vec![
            call(&format!("{n}a"), "say", json!({"text": text})),
            call(&format!("{n}b"), "say", json!({"text": n.to_string()})),
        ])
    };
    let model = Script::new((0..4).map(big).chain((0..9).map(|_| says("a summary, or the end"))));
    let run = run(&model).await;
    let entries = run.notes.0.lock().unwrap().clone();
    let has = |wanted: fn(&ConversationEntry) -> bool| entries.iter().any(wanted);
    assert!(has(|entry| matches!(entry, ConversationEntry::Thinned { .. })));
    assert!(has(|entry| matches!(entry, ConversationEntry::Compacted { .. })));
    for upto in 0..=entries.len() {
        let mut again = Conversation::new(
            ContextWindow::new(model.facts.context, 10),
            Box::new(Notes::default()),
        );
        again.replay(entries[..upto].to_vec()).unwrap();
        let (mut calls, mut results) = (0, 0);
        for part in again.messages().iter().flat_map(|message| &message.parts) {
            calls += usize::from(matches!(part, ContentPart::Call(_)));
            results += usize::from(matches!(part, ContentPart::Result(_)));
        }
        assert_eq!(calls, results, "cut behind entry {upto}");
        if upto == entries.len() {
            assert_eq!(again.messages(), run.conversation.messages());
            assert_eq!(again.usage(), run.conversation.usage());
        }
    }
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
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
    assert!(run.events.iter().any(|what| matches!(what, EventKind::Thinned { .. })));
}

#[tokio::test]
async fn large_arguments_of_old_calls_are_thinned_like_results() {
    let writes = |n: u32| {
        let content = format!("{n}{}", "é".repeat(3_000));
        let args = json!({"file": n.to_string(), "content": content, "text": "ok"});
        calls(vec![call(&n.to_string(), "say", args)])
    };
    let model = Script::new((0..5).map(writes).chain((0..3).map(|_| says("done"))));
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
    let thinned = run.events.iter().find_map(|what| match what {
        EventKind::Thinned { detail } => Some(detail.clone()),
        _ => None,
    });
    let thinned = thinned.expect("what old calls wrote is moved away");
    assert!(thinned["after"].as_u64() < thinned["before"].as_u64(), "{thinned}");
    let after = model.requests().into_iter().find(|sent| {
        serde_json::to_string(sent)
            .unwrap()
            .contains("bytes of this argument were moved to thinned/")
    });
    let call = after.unwrap()[1].calls().next().unwrap().clone();
    assert_eq!((&call.args["file"], &call.args["text"]), (&json!("0"), &json!("ok")));
    assert!(call.args["content"].as_str().unwrap().contains("thinned/0-content.txt"), "{call:?}");
}

#[tokio::test]
async fn the_users_last_images_survive_a_summary() {
    let shown = |data: &str| {
        let picture =
            provider::message::Image { media_type: "image/png".into(), data: data.into() };
        let mut message = Message::text(MessageRole::User, "look");
        message.parts.push(ContentPart::Image(picture));
        let (usage, stop) = (Usage::default(), StopReason::Done);
        [
            ConversationEntry::Request { message },
            ConversationEntry::Reply { message: says("ok").message, usage, stop },
        ]
    };
    let before = [shown("first"), shown("second")].concat();
    let too_long = || Err(ProviderError::TooLong("9 > 8".into()));
    let model = Script::with([too_long(), Ok(says("a summary")), too_long(), Ok(says("done"))]);
    let (tools, cancel) = (Tools::default(), CancellationToken::new());
    let once = run_after(before, &model, &tools, UsageLimits::default(), cancel.clone()).await;
    assert!(once.finish.is_err(), "what is still too long after a summary is an error");
    let entries = once.notes.0.lock().unwrap().clone();
    run_after(entries, &model, &tools, UsageLimits::default(), cancel).await.finish.unwrap();
    for sent in [&model.requests()[2], model.requests().last().unwrap()] {
        let sent = serde_json::to_string(sent).unwrap();
        assert!(sent.contains("second") && !sent.contains("first"), "{sent}");
    }
}

#[tokio::test]
async fn summaries_include_calls_and_results() {
    let model = Script::with([
        Ok(calls(vec![call("a", "say", json!({"text": "result-plum", "file": "args-plum"}))])),
        Err(ProviderError::TooLong("9 > 8".into())),
        Ok(says("we did half")),
        Ok(says("done")),
    ]);
    run(&model).await;
    let question = serde_json::to_string(&model.requests()[2]).unwrap();
    assert!(question.contains("args-plum") && question.contains("result-plum"), "{question}");
}

#[tokio::test]
async fn every_request_starts_with_the_previous_one() {
    let model = Script::new([
        calls(vec![call("a", "say", json!({"text": "1"}))]),
        calls(vec![call("b", "say", json!({"text": "2"}))]),
        says("done"),
    ]);
    run(&model).await;
    let requests = model.requests();
    for pair in requests.windows(2) {
        assert_eq!(pair[1][..pair[0].len()], pair[0][..]);
    }
}
