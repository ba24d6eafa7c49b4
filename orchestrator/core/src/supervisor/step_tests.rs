//! Whole runs of a supervisor, as inputs and actions.

use super::*;
use crate::session::journal::JournalLine;
use crate::session::record::{RunLimits, RunMode, Templates};
use base::id::Id;
use studio_git::names::BranchName;
use studio_git::repo::Base;
use studio_git::session_repo::SessionRepo;

fn run_state(checks: &[&str], limits: RunLimits, attended: bool) -> RunState {
    let id = Id::parse("task-aaaa").unwrap();
    let record = SessionRecord {
        start: None,
        origin: None,
        schema: 1,
        id: id.clone(),
        task: "do it".into(),
        agent: "fake".into(),
        persona: None,
        model: None,
        profile: None,
        base: Base { branch: None, commit: "c0".into() },
        session_repo: SessionRepo {
            id,
            worktree: "/w".into(),
            git_dir: "/g".into(),
            branch: BranchName::parse("studio/task-aaaa").unwrap(),
            base: "c0".into(),
        },
        templates: Templates { branch: "studio/{id}".into(), worktree: "/w/{id}".into() },
        checks: checks.iter().map(|check| (*check).to_owned()).collect(),
        limits,
        run_mode: RunMode { attended, ..RunMode::default() },
        attempt: 1,
        group: None,
        after: Vec::new(),
        plan_ref: crate::session::record::PlanRef::default(),
        created_at: "t".into(),
    };
    let mut summary = JournalSummary::default();
    summary.add_entry(&JournalEntry::Queued { prompt: None });
    RunState::new(record, summary, ConversationMemory::Persistent)
}

fn default_state() -> RunState {
    run_state(&[], RunLimits::default(), false)
}

/// Applies an input; collected work conflicts with that of no other session.
fn step_alone(state: &mut RunState, input: Input) -> Vec<SupervisorAction> {
    let mut actions = step(state, input);
    if actions.contains(&SupervisorAction::Compare) {
        actions.extend(step(state, Input::Compared { conflicts: Vec::new() }));
    }
    actions
}

/// Applies the inputs and returns the names of the actions; replaying the written journal must give
/// the same summary.
fn run_inputs(state: &mut RunState, inputs: Vec<Input>) -> Vec<String> {
    let mut lines =
        vec![JournalLine { time: "t".into(), entry: JournalEntry::Queued { prompt: None } }];
    let mut names = Vec::new();
    for input in inputs {
        for action in step_alone(state, input) {
            names.push(name(&action));
            if let SupervisorAction::Write(entry) = action {
                lines.push(JournalLine { time: "t".into(), entry });
            }
        }
    }
    // The supervisor's own summary has no times.
    let mut replayed = JournalSummary {
        updated_at: None,
        run_started_at: None,
        ended_at: None,
        parked_since: None,
        ..JournalSummary::of(&lines)
    };
    replayed.open_requests.values_mut().for_each(|request| request.asked_at = None);
    assert_eq!(replayed, state.summary, "the journal tells the whole story");
    names
}

fn name(action: &SupervisorAction) -> String {
    match action {
        SupervisorAction::Write(JournalEntry::Exit { outcome, .. }) => format!("exit {outcome:?}"),
        SupervisorAction::Write(entry) => {
            let value = serde_json::to_value(entry).unwrap();
            format!("write {}", value["entry"].as_str().unwrap())
        }
        SupervisorAction::Prompt { text, .. } => format!("prompt {text:?}"),
        other => format!("{other:?}"),
    }
}

fn start_inputs() -> Vec<Input> {
    vec![
        Input::Begin { pid: 1 },
        Input::WorktreeReady { note: None },
        Input::Launched { conversation_id: None, loaded: false },
    ]
}

fn work(files_changed: u64) -> Input {
    Input::Imported { work: WorkSummary { files_changed, ..WorkSummary::default() } }
}

fn check(ok: bool) -> Input {
    let exit = i32::from(!ok);
    let result = CheckResult {
        command: "true".into(),
        ok,
        exit,
        ms: 1,
        tail: String::new(),
        hint: None,
        limit: None,
        fails_on: None,
        flaky: false,
    };
    Input::Checked { results: vec![result] }
}

fn outcome_of(mut inputs: Vec<Input>, state: &mut RunState) -> String {
    let mut all_inputs = start_inputs();
    all_inputs.append(&mut inputs);
    let names = run_inputs(state, all_inputs);
    assert_eq!(names.last().unwrap(), "Finish", "{names:?}");
    names[names.len() - 2].clone()
}

#[test]
fn a_successful_run_from_start_to_exit() {
    let mut state = run_state(&["true"], RunLimits::default(), false);
    let mut inputs = start_inputs();
    inputs.extend([Input::TurnEnded { reason: None }, work(1), check(true)]);
    assert_eq!(
        run_inputs(&mut state, inputs),
        [
            "write spawned",
            "MakeWorktree",
            "write worktree",
            "Launch { conversation_id: None }",
            "write agent",
            "write turn",
            "prompt \"do it\"",
            "write turn_end",
            "Import",
            "write work",
            "Compare",
            "write checking",
            "Check",
            "write checked",
            "exit Ready",
            "Finish",
        ]
    );
}

#[test]
fn a_run_can_end_in_every_way() {
    let turn_end = || Input::TurnEnded { reason: None };
    assert_eq!(outcome_of(vec![turn_end(), work(0)], &mut default_state()), "exit Empty");
    assert_eq!(outcome_of(vec![turn_end(), work(2)], &mut default_state()), "exit Ready");
    let mut checked = run_state(&["true"], RunLimits::default(), false);
    let failed = outcome_of(vec![turn_end(), work(1), check(false)], &mut checked);
    assert_eq!(failed, r#"exit Failed { why: "check `true` failed with exit code 1" }"#);
    let inputs = vec![Input::AgentExited { reason: "killed".into() }, work(1)];
    assert_eq!(outcome_of(inputs, &mut default_state()), r#"exit Failed { why: "killed" }"#);
    let stopped = vec![
        Input::Stop { why: None },
        Input::TurnEnded { reason: Some("cancelled".into()) },
        work(1),
    ];
    assert_eq!(outcome_of(stopped, &mut default_state()), "exit Stopped");
    let mut checked = run_state(&["true"], RunLimits::default(), false);
    assert_eq!(
        outcome_of(vec![turn_end(), work(1), Input::Stop { why: None }], &mut checked),
        "exit Stopped"
    );
    let inputs = vec![Input::Limit { limit: "5 s".into() }, turn_end(), work(1)];
    assert_eq!(
        outcome_of(inputs, &mut default_state()),
        r#"exit Failed { why: "it reached its limit of 5 s" }"#
    );
    let inputs = vec![turn_end(), Input::CannotImport { reason: "`.git` was rewritten".into() }];
    assert_eq!(
        outcome_of(inputs, &mut default_state()),
        r#"exit Failed { why: "`.git` was rewritten" }"#
    );
}

#[test]
fn a_stop_during_the_start_ends_before_the_first_prompt() {
    let inputs = vec![
        Input::Begin { pid: 1 },
        Input::Stop { why: None },
        Input::WorktreeReady { note: None },
    ];
    let names = run_inputs(&mut default_state(), inputs);
    assert_eq!(names[names.len() - 2..], ["exit Stopped", "Finish"]);
    assert!(!names.iter().any(|name| name.starts_with("Launch")));
}

#[test]
fn a_message_during_a_turn_is_sent_at_its_end() {
    let mut state = default_state();
    let mut inputs = start_inputs();
    inputs.extend([
        Input::Send { text: "also this".into() },
        Input::TurnEnded { reason: None },
        work(1),
        Input::TurnEnded { reason: None },
        work(1),
    ]);
    let names = run_inputs(&mut state, inputs);
    assert!(names.contains(&r#"prompt "also this""#.to_owned()), "{names:?}");
    assert_eq!(names[names.len() - 2], "exit Ready");
}

fn request_input(n: u32, what: &str) -> Input {
    Input::PermissionRequested(PermissionAsk {
        number: n,
        description: what.into(),
        rule: what.into(),
        host: None,
        futile_reason: None,
    })
}

fn allows(n: u32) -> Input {
    Input::Answer { n, allow: true, always: false }
}

fn always_allows(n: u32) -> Input {
    Input::Answer { n, allow: true, always: true }
}

/// Returns the answers that the agent gets to its requests.
fn answers_to(state: &mut RunState, inputs: Vec<Input>) -> Vec<(u32, bool, Option<String>)> {
    let actions: Vec<SupervisorAction> =
        inputs.into_iter().flat_map(|input| step(state, input)).collect();
    let answers = actions.into_iter().filter_map(|action| match action {
        SupervisorAction::Answer { n, decision } => Some((n, decision.allow, decision.reason)),
        _ => None,
    });
    answers.collect()
}

#[test]
fn unattended_requests_are_denied_immediately_with_a_hint() {
    let mut state = default_state();
    step_all(&mut state, start_inputs());
    for n in 1..=3 {
        let answers = answers_to(&mut state, vec![request_input(n, "rm -rf")]);
        let [(number, false, Some(why))] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!(*number, n);
        assert_eq!(
            why,
            "no terminal to ask on; `studio resume task-aaaa --ask` keeps requests open"
        );
    }
    assert_eq!((state.summary.phase.clone(), state.summary.denials.count), (Phase::Working, 3));
}

#[test]
fn a_request_waits_for_the_user_and_is_answered_by_number() {
    let mut state = run_state(&[], RunLimits::default(), true);
    step_all(&mut state, start_inputs());
    let answers = answers_to(
        &mut state,
        vec![request_input(1, "a"), request_input(2, "b"), allows(2), allows(9)],
    );
    assert_eq!(answers, [(2, true, None)]);
    assert_eq!(state.summary.phase, Phase::Waiting { reason: "permission 1: a".into() });
    assert_eq!(answers_to(&mut state, vec![request_input(3, "b")]), [], "`allow` is for once");
}

#[test]
fn always_answers_further_and_open_requests_of_its_kind() {
    let mut state = run_state(&[], RunLimits::default(), true);
    step_all(&mut state, start_inputs());
    let inputs =
        vec![request_input(1, "a"), request_input(2, "b"), request_input(3, "a"), always_allows(1)];
    assert_eq!(answers_to(&mut state, inputs), [(1, true, None), (3, true, None)]);
    assert_eq!(answers_to(&mut state, vec![request_input(4, "a")]), [(4, true, None)]);
    assert_eq!(
        state.summary.open_requests.keys().collect::<Vec<_>>(),
        [&2],
        "another kind still waits"
    );
}

#[test]
fn a_request_that_the_sandbox_denies_is_not_asked() {
    let mut state = run_state(&[], RunLimits::default(), true);
    step_all(&mut state, start_inputs());
    let futile_reason = Some("the box is closed there".to_owned());
    let request = PermissionAsk {
        number: 1,
        description: "write /opt/x".into(),
        rule: "r".into(),
        host: None,
        futile_reason,
    };
    let answers = answers_to(&mut state, vec![Input::PermissionRequested(request)]);
    assert_eq!(answers, [(1, false, Some("the box is closed there".into()))]);
}

fn step_all(state: &mut RunState, inputs: Vec<Input>) {
    for input in inputs {
        step(state, input);
    }
}

#[test]
fn events_are_numbered_over_all_runs() {
    let mut state = default_state();
    let event = || Input::Event { event: serde_json::json!({"seq": 1, "time": "t", "type": "x"}) };
    step_all(&mut state, start_inputs());
    step_all(&mut state, vec![event(), event()]);
    let mut summary = state.summary.clone();
    summary.add_entry(&JournalEntry::Queued { prompt: None });
    let mut resumed = RunState::new(state.record, summary, ConversationMemory::Persistent);
    step_all(&mut resumed, start_inputs());
    let actions = step(&mut resumed, event());
    let SupervisorAction::Write(JournalEntry::Event { event }) = &actions[0] else {
        panic!("{actions:?}")
    };
    assert_eq!(event["seq"], 3);
    assert_eq!(step(&mut resumed, Input::Event { event: serde_json::json!([1]) }), []);
}

#[test]
fn an_agent_without_memory_gets_the_task_with_a_message() {
    let mut state = RunState { memory: ConversationMemory::PerTurn, ..default_state() };
    let mut inputs = start_inputs();
    let sent = Input::Send { text: "also this".into() };
    inputs.extend([sent, Input::TurnEnded { reason: None }]);
    step_all(&mut state, inputs);
    let actions = step_alone(&mut state, work(1));
    let Some(SupervisorAction::Prompt { text, recap: true }) = actions.last() else {
        panic!("{actions:?}")
    };
    for part in ["You have worked on", "do it", "also this"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn a_budget_ends_a_session_with_an_unpriced_model() {
    let usage = serde_json::json!({"seq": 1, "time": "t", "type": "usage", "input": 60,
        "output": 50, "cache_read": 0, "cache_write": 0, "cost_usd": null});
    let limits = RunLimits { usd: Some(100.0), ..RunLimits::default() };
    let mut state = run_state(&[], limits, false);
    step_all(&mut state, start_inputs());
    let actions = step(&mut state, Input::Event { event: usage });
    assert!(actions.contains(&SupervisorAction::Cancel), "{actions:?}");
}

#[test]
fn limits_count_all_runs_and_are_raised_by_the_user() {
    let turn = || serde_json::json!({"seq": 1, "time": "t", "type": "turn", "n": 1});
    let mut first = run_state(&[], RunLimits { turns: Some(2), ..RunLimits::default() }, false);
    step_all(&mut first, start_inputs());
    step_all(&mut first, vec![Input::Event { event: turn() }, Input::Event { event: turn() }]);
    let mut summary = first.summary.clone();
    summary.add_entry(&JournalEntry::Queued { prompt: None });
    let mut resumed =
        RunState::new(first.record.clone(), summary.clone(), ConversationMemory::Persistent);
    step_all(&mut resumed, start_inputs());
    assert!(step(&mut resumed, Input::Event { event: turn() }).contains(&SupervisorAction::Cancel));
    let limits = RunLimits { turns: Some(3), ..RunLimits::default() };
    summary.add_entry(&JournalEntry::Settings { limits, attended: None });
    let mut raised = RunState::new(first.record, summary, ConversationMemory::Persistent);
    step_all(&mut raised, start_inputs());
    assert!(!step(&mut raised, Input::Event { event: turn() }).contains(&SupervisorAction::Cancel));
    assert!(step(&mut raised, Input::Event { event: turn() }).contains(&SupervisorAction::Cancel));
}

#[test]
fn limits_of_turns_tokens_and_money_cancel_the_turn() {
    let turn = serde_json::json!({"seq": 1, "time": "t", "type": "turn", "n": 1});
    let usage = serde_json::json!({"seq": 1, "time": "t", "type": "usage", "input": 60,
        "output": 50, "cache_read": 0, "cache_write": 0, "cost_usd": 0.5});
    let turns = RunLimits { turns: Some(0), ..RunLimits::default() };
    let tokens = RunLimits { tokens: Some(100), ..RunLimits::default() };
    let usd = RunLimits { usd: Some(0.4), ..RunLimits::default() };
    for (limits, event) in [(turns, turn), (tokens, usage.clone()), (usd, usage)] {
        let mut inputs = start_inputs();
        inputs.push(Input::Event { event });
        let names = run_inputs(&mut run_state(&[], limits, false), inputs);
        assert_eq!(names.last().unwrap(), "Cancel", "{limits:?}");
    }
}

#[test]
fn an_agent_without_its_conversation_gets_the_task_and_its_last_message() {
    let mut first = default_state();
    let mut inputs = start_inputs();
    let event = serde_json::json!({"seq": 1, "time": "t", "type": "text", "text": "half done"});
    inputs.push(Input::Event { event });
    run_inputs(&mut first, inputs);
    let mut summary = first.summary;
    summary.add_entry(&JournalEntry::Queued { prompt: Some("be quick".into()) });
    let mut resumed = RunState::new(first.record, summary, ConversationMemory::Persistent);
    let actions: Vec<SupervisorAction> =
        start_inputs().into_iter().flat_map(|input| step(&mut resumed, input)).collect();
    let Some(SupervisorAction::Prompt { text, recap: true }) = actions.last() else {
        panic!("{actions:?}")
    };
    for part in ["do it", "half done", "be quick"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn a_lost_conversation_is_explained_within_the_same_turn() {
    let mut state = RunState { memory: ConversationMemory::Continued, ..default_state() };
    let work = WorkSummary { commits: 1, ..WorkSummary::default() };
    run_inputs(
        &mut state,
        vec![
            Input::Begin { pid: 7 },
            Input::WorktreeReady { note: None },
            Input::Launched { conversation_id: None, loaded: false },
            Input::ConversationStarted { id: "c1".into() },
            Input::Send { text: "go on".into() },
            Input::TurnEnded { reason: None },
        ],
    );
    let next = step_alone(&mut state, Input::Imported { work });
    assert!(
        next.contains(&SupervisorAction::Prompt { text: "go on".into(), recap: false }),
        "{next:?}"
    );
    let lost = step(&mut state, Input::ConversationLost);
    let Some(SupervisorAction::Prompt { text, recap: true }) = lost.last() else {
        panic!("{lost:?}")
    };
    assert!(text.starts_with("You have worked on") && text.ends_with("go on"), "{text}");
    assert_eq!(state.summary.turns, 2);
    let stopped = step(&mut state, Input::Stop { why: None });
    assert!(stopped.contains(&SupervisorAction::Cancel), "{stopped:?}");
    let ended = step(&mut state, Input::ConversationLost);
    assert!(ended.contains(&SupervisorAction::Import), "{ended:?}");
}

fn limited(until: &str) -> Input {
    Input::RateLimited { until: until.into(), why: "usage limit reached".into(), ended_turn: false }
}

fn cancelled() -> Input {
    Input::TurnEnded { reason: Some(TURN_CANCELLED.into()) }
}

#[test]
fn a_limited_session_is_parked_and_continues_after_the_limit() {
    let mut state = default_state();
    let mut inputs = start_inputs();
    inputs.extend([limited("t1"), limited("t1"), limited("t2"), cancelled(), work(1)]);
    let names = run_inputs(&mut state, inputs);
    let expected = [
        "write parked",
        "Cancel",
        "write parked",
        "write turn_end",
        "Import",
        "write work",
        "Compare",
    ];
    assert_eq!(names[7..], expected, "the limit t1 is written once");
    let parked = Phase::Parked { until: "t2".into(), why: "usage limit reached".into() };
    assert_eq!(state.summary.phase, parked);
    let names: Vec<String> = [Input::RateLimitEnded, Input::RateLimitEnded]
        .into_iter()
        .flat_map(|input| step(&mut state, input))
        .map(|action| name(&action))
        .collect();
    assert_eq!(names[..2], ["write unparked", "write turn"]);
    assert!(names[2].starts_with("prompt") && names.len() == 3, "{names:?}");
    assert_eq!(state.summary.phase, Phase::Working);
}

#[test]
fn a_limit_that_ends_before_the_cancelled_turn_continues_it_then() {
    let mut state = default_state();
    let mut inputs = start_inputs();
    inputs.extend([limited("t"), Input::RateLimitEnded, cancelled(), work(1)]);
    let names = run_inputs(&mut state, inputs);
    let last = &names[names.len() - 3..];
    assert_eq!(last[..2], ["write unparked", "write turn"]);
}

#[test]
fn a_parked_session_can_be_stopped_and_a_completed_turn_is_not_repeated() {
    let mut inputs = vec![limited("t"), cancelled(), work(1), Input::Stop { why: None }];
    assert_eq!(outcome_of(inputs, &mut default_state()), "exit Stopped");
    inputs = vec![limited("t"), Input::TurnEnded { reason: None }, work(1)];
    assert_eq!(outcome_of(inputs, &mut default_state()), "exit Ready");
    inputs = vec![limited("t"), Input::Stop { why: None }, cancelled(), work(1)];
    assert_eq!(outcome_of(inputs, &mut default_state()), "exit Stopped");
}

#[test]
fn a_session_that_starts_during_a_limit_gets_its_task_afterwards() {
    let mut state = default_state();
    let mut inputs = start_inputs();
    inputs.insert(2, limited("t"));
    inputs.push(Input::RateLimitEnded);
    let names = run_inputs(&mut state, inputs);
    assert_eq!(names[names.len() - 1], "prompt \"do it\"");
    assert_eq!(state.summary.turns, 1);
}

#[test]
fn a_session_that_waits_for_the_user_is_not_parked() {
    let mut state = run_state(&[], RunLimits::default(), true);
    step_all(&mut state, start_inputs());
    step_all(&mut state, vec![request_input(1, "a")]);
    assert!(step(&mut state, limited("t")).is_empty());
}

fn stalled() -> Input {
    Input::Stalled { why: "no event for 10 minutes".into() }
}

#[test]
fn a_stuck_agent_is_told_once_and_an_event_ends_the_stall() {
    let mut state = default_state();
    let mut inputs = start_inputs();
    inputs.extend([stalled(), stalled(), Input::StallEnded, Input::StallEnded]);
    let names = run_inputs(&mut state, inputs);
    let notice = "NotifyRequest { reason: \"stalled: no event for 10 minutes\" }";
    assert_eq!(names[7..], ["write stalled", notice, "write stall_ended"]);
    assert_eq!(state.summary.phase, Phase::Working);
}

#[test]
fn a_message_cancels_a_stuck_turn_and_is_the_next_prompt() {
    let mut state = default_state();
    let mut inputs = start_inputs();
    inputs.extend([stalled(), Input::Send { text: "try b".into() }, cancelled(), work(1)]);
    let names = run_inputs(&mut state, inputs);
    assert!(names.contains(&"Cancel".to_owned()), "{names:?}");
    assert_eq!(names.last().unwrap(), "prompt \"try b\"");
    assert_eq!(
        outcome_of(
            vec![stalled(), Input::Stop { why: None }, cancelled(), work(1)],
            &mut default_state()
        ),
        "exit Stopped"
    );
}
