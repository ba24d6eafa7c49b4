//! Tests of calls and of the end of a turn: which calls run, and why the loop stops.

use super::*;

#[tokio::test]
async fn calls_of_one_reply_run_concurrently_with_results_in_call_order() {
    let model = Script::new([
        calls(vec![call("a", "wait", json!({})), call("b", "wake", json!({}))]),
        says("done"),
    ]);
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
    let ids: Vec<String> = run.results().into_iter().map(|result| result.call_id).collect();
    assert_eq!(ids, ["a", "b"]);
    let ended = run.events.iter().filter_map(|what| match what {
        EventKind::ToolEnd { id, .. } => Some(id.as_str()),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), ["b", "a"], "`wait` can only end after `wake` did");
}

#[tokio::test]
async fn calls_on_the_same_file_run_in_order() {
    let tools = Tools::default();
    let model = Script::new([
        calls(vec![
            call("a", "say", json!({"file": "x"})),
            call("b", "say", json!({"file": "x", "text": "2"})),
            call("c", "say", json!({"file": "y"})),
        ]),
        says("done"),
    ]);
    run_with(&model, &tools, UsageLimits::default(), CancellationToken::new()).await;
    let order = tools.order.lock().unwrap().clone();
    let at = |what: &str| order.iter().position(|it| it == what).unwrap();
    assert!(at("end a") < at("begin b"), "{order:?}");
    assert!(at("begin c") < at("begin b"), "{order:?}");
}

#[tokio::test]
async fn a_call_identical_to_the_previous_one_is_answered_but_not_run() {
    let same = || json!({"text": "x"});
    let model = Script::new([
        calls(vec![
            call("a", "say", same()),
            call("b", "say", same()),
            ContentPart::Text { text: "and again".into() },
            call("c", "say", same()),
        ]),
        says("done"),
    ]);
    let tools = Tools::default();
    let run = run_with(&model, &tools, UsageLimits::default(), CancellationToken::new()).await;
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
    let model = Script::new([calls(vec![ContentPart::Call(bad)]), says("sorry")]);
    let run = run(&model).await;
    let args = run.events.iter().find_map(|what| match what {
        EventKind::ToolStart { args, .. } => Some(args.clone()),
        _ => None,
    });
    assert_eq!(args, Some(json!("{\"text\": ")));
    assert_eq!(run.results().len(), 1);
}

#[tokio::test]
async fn a_call_truncated_by_the_output_limit_is_not_run() {
    let model = Script::new([
        reply(
            vec![call("a", "say", json!({})), call("b", "say", json!({"text": "hal"}))],
            StopReason::Length,
        ),
        says("done"),
    ]);
    let run = run(&model).await;
    let results = run.results();
    assert!(results[0].ok);
    assert!(!results[1].ok && results[1].text.contains("in parts"), "{}", results[1].text);
}

#[tokio::test]
async fn a_text_truncated_by_the_output_limit_is_continued() {
    let half = reply(vec![ContentPart::Text { text: "one, ".into() }], StopReason::Length);
    let model = Script::new([half, says("two")]);
    let run = run(&model).await;
    assert_eq!(run.finish.unwrap(), TurnEnd::Done);
    assert!(model.requests()[1].last().unwrap().full_text().contains("Go on exactly"));
}

#[tokio::test]
async fn empty_replies_do_not_end_the_turn_silently() {
    let model = Script::new((0..9).map(|_| says("")));
    let run = run(&model).await;
    assert!(run.finish.unwrap_err().failure.what.contains("does not get to an end"));
    assert_eq!(model.requests().len(), 4);
}

#[tokio::test]
async fn a_model_that_repeats_itself_is_stopped_with_a_reason() {
    let model = Script::new((0..20).map(|n| calls(vec![call(&n.to_string(), "say", json!({}))])));
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Limit(Limit::Repeats(6)));
    assert!(run.results()[2].text.contains("made this same call 3 times"));
}

#[tokio::test]
async fn the_turn_limit_ends_the_run_with_all_calls_answered() {
    let model = Script::new(
        (0..5).map(|n| calls(vec![call(&n.to_string(), "say", json!({"text": n.to_string()}))])),
    );
    let limits = UsageLimits { turns: Some(2), ..UsageLimits::default() };
    let run = run_with(&model, &Tools::default(), limits, CancellationToken::new()).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Limit(Limit::Turns(2)));
    assert_eq!(run.results().len(), 2);
}

#[tokio::test]
async fn a_cancelled_tool_is_answered_and_the_run_ends() {
    let tools = Tools::default();
    let model =
        Script::new([calls(vec![call("a", "say", json!({})), call("b", "slow", json!({}))])]);
    // The slow tool itself sets the token, as if the user cancelled while it runs.
    let cancel = tools.woken.clone();
    let run = run_with(&model, &tools, UsageLimits::default(), cancel).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Cancelled);
    let results = run.results();
    assert_eq!(results.len(), 2);
    assert!(!results[1].ok && results[1].text.contains("cancelled"));
}

#[tokio::test]
async fn the_next_step_is_shown_to_the_model_only() {
    let said = json!({"text": "ok", "next": "Now run it."});
    let model = Script::new([calls(vec![call("a", "say", said)]), says("done")]);
    let run = run(&model).await;
    assert_eq!(run.results()[0].text, "ok\n\nNow run it.");
    let shown = run.events.iter().find_map(|what| match what {
        EventKind::ToolEnd { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(shown, Some("ok"));
}

#[tokio::test]
async fn a_run_continues_while_the_toolbox_has_open_work() {
    let tools = Tools::default();
    tools.open.lock().unwrap().push("[Not done] Look again.".into());
    let model = Script::new([says("done"), says("now really")]);
    let run = run_with(&model, &tools, UsageLimits::default(), CancellationToken::new()).await;
    assert_eq!(run.finish.unwrap(), TurnEnd::Done);
    let requests = model.requests();
    let last = requests[1].last().unwrap();
    assert!(last.is_reminder());
    assert_eq!(last.full_text(), "[Not done] Look again.");
}

#[tokio::test]
async fn excess_calls_of_a_reply_are_reported_and_answered_but_not_run() {
    let many = |count: usize| {
        let one = |n: usize| call(&format!("c{n}"), "say", json!({"text": format!("{n}")}));
        calls((0..count).map(one).collect())
    };
    for (made, kept) in [(128, 128), (129, 129), (1_024, 1_024), (20_000, 1_024)] {
        let mut model = Script::new([many(made), says("done")]);
        model.facts.context = 10_000_000;
        let tools = Tools::default();
        let run = run_with(&model, &tools, UsageLimits::default(), CancellationToken::new()).await;
        assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
        let count = |is: fn(&EventKind) -> bool| run.events.iter().filter(|what| is(what)).count();
        assert_eq!(count(|what| matches!(what, EventKind::ToolStart { .. })), made);
        assert_eq!(count(|what| matches!(what, EventKind::ToolEnd { .. })), made);
        let begun = tools.order.lock().unwrap().iter().filter(|it| it.starts_with("begin")).count();
        assert_eq!(begun, made.min(128));
        let results = run.results();
        assert_eq!((results.len(), run.conversation.messages()[1].calls().count()), (kept, kept));
        for (at, result) in results.iter().enumerate() {
            assert_eq!(result.call_id, format!("c{at}"));
            assert_eq!(result.ok, at < 128);
            let said = format!("the reply made {made} calls");
            assert_eq!(result.text.contains(&said), at >= 128, "{}", result.text);
        }
    }
}

#[tokio::test]
async fn the_same_call_many_times_in_one_reply_is_not_a_loop() {
    let one = |n: usize| call(&format!("c{n}"), "say", json!({"text": "x"}));
    let model = Script::new([calls((0..10).map(one).collect()), says("done")]);
    let run = run(&model).await;
    assert_eq!(run.finish.as_ref().unwrap(), &TurnEnd::Done);
    assert_eq!(run.results().iter().filter(|result| result.ok).count(), 1);
}
