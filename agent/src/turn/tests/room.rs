//! The context: prefixes, thinning, summaries, and journals played back.

use super::*;

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
async fn what_a_summary_costs_counts_against_the_budget() {
    let mut summary = says("we did half");
    summary.usage.input = 900;
    let model = Script::with([
        Ok(calls(vec![call("a", "say", json!({}))])),
        Err(ProviderError::TooLong("9 > 8".into())),
        Ok(summary),
        Ok(calls(vec![call("b", "say", json!({}))])),
        Ok(says("beyond the limit")),
    ]);
    let limits = Limits { tokens: Some(800), ..Limits::default() };
    let run = run_with(&model, &Tools::default(), limits, CancellationToken::new()).await;
    assert_eq!(run.finish.as_ref().unwrap(), &Finish::Limit(Limit::Tokens(800)));
}

#[tokio::test]
async fn a_journal_played_back_gives_the_same_conversation() {
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
    let has = |wanted: fn(&Entry) -> bool| entries.iter().any(wanted);
    assert!(has(|entry| matches!(entry, Entry::Thinned { .. })));
    assert!(has(|entry| matches!(entry, Entry::Compacted { .. })));
    for upto in 0..=entries.len() {
        let mut again =
            Conversation::new(Window::new(model.facts.context, 10), Box::new(Notes::default()));
        again.replay(entries[..upto].to_vec()).unwrap();
        let (mut calls, mut results) = (0, 0);
        for part in again.messages().iter().flat_map(|message| &message.parts) {
            calls += usize::from(matches!(part, Part::Call(_)));
            results += usize::from(matches!(part, Part::Result(_)));
        }
        assert_eq!(calls, results, "cut behind entry {upto}");
        if upto == entries.len() {
            assert_eq!(again.messages(), run.talk.messages());
            assert_eq!(again.usage(), run.talk.usage());
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
