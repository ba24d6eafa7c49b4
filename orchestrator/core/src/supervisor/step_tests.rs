//! Whole runs of a supervisor, as inputs and actions.

use super::*;
use crate::session::journal::JournalLine;
use crate::session::record::{RunLimits, RunMode, Templates};
use base::id::Id;
use studio_git::names::BranchName;
use studio_git::repo::Base;
use studio_git::session_repo::SessionRepo;

fn life(checks: &[&str], limits: RunLimits, attended: bool) -> RunState {
    let id = Id::parse("task-aaaa").unwrap();
    let record = SessionRecord {
        schema: 1,
        id: id.clone(),
        task: "do it".into(),
        agent: "fake".into(),
        persona: None,
        model: None,
        profile: None,
        base: Base { branch: None, commit: "c0".into() },
        place: SessionRepo {
            id,
            worktree: "/w".into(),
            git_dir: "/g".into(),
            branch: BranchName::parse("studio/task-aaaa").unwrap(),
            base: "c0".into(),
        },
        templates: Templates { branch: "studio/{id}".into(), worktree: "/w/{id}".into() },
        checks: checks.iter().map(|check| (*check).to_owned()).collect(),
        limits,
        manner: RunMode { attended, ..RunMode::default() },
        attempt: 1,
        after: Vec::new(),
        part: crate::session::record::PlanRef::default(),
        created_at: "t".into(),
    };
    let mut story = JournalSummary::default();
    story.hear_entry(&JournalEntry::Queued { prompt: None });
    RunState::new(record, story, ConversationMemory::Keeps)
}

fn plain() -> RunState {
    life(&[], RunLimits::default(), false)
}

/// Applies the inputs and returns the names of the actions; replaying the written journal must give
/// the same summary.
fn played(life: &mut RunState, news: Vec<Input>) -> Vec<String> {
    let mut lines =
        vec![JournalLine { time: "t".into(), entry: JournalEntry::Queued { prompt: None } }];
    let mut names = Vec::new();
    for input in news {
        for deed in step(life, input) {
            names.push(name(&deed));
            if let SupervisorAction::Write(entry) = deed {
                lines.push(JournalLine { time: "t".into(), entry });
            }
        }
    }
    let replayed =
        JournalSummary { updated_at: None, run_began: None, ..JournalSummary::of(&lines) };
    assert_eq!(replayed, life.story, "the journal tells the whole story");
    names
}

fn name(deed: &SupervisorAction) -> String {
    match deed {
        SupervisorAction::Write(JournalEntry::Exit { outcome, .. }) => format!("exit {outcome:?}"),
        SupervisorAction::Write(entry) => {
            let value = serde_json::to_value(entry).unwrap();
            format!("write {}", value["entry"].as_str().unwrap())
        }
        SupervisorAction::Prompt { text, .. } => format!("prompt {text:?}"),
        other => format!("{other:?}"),
    }
}

fn begun() -> Vec<Input> {
    vec![
        Input::Begin { pid: 1 },
        Input::WorktreeStands { note: None },
        Input::Launched { talk: None, loaded: false },
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
        fails_on: None,
    };
    Input::Checked { results: vec![result] }
}

fn ended(mut news: Vec<Input>, life: &mut RunState) -> String {
    let mut all = begun();
    all.append(&mut news);
    let names = played(life, all);
    assert_eq!(names.last().unwrap(), "Finish", "{names:?}");
    names[names.len() - 2].clone()
}

#[test]
fn a_successful_run_from_start_to_exit() {
    let mut life = life(&["true"], RunLimits::default(), false);
    let mut news = begun();
    news.extend([Input::TurnEnded { why: None }, work(1), check(true)]);
    assert_eq!(
        played(&mut life, news),
        [
            "write spawned",
            "MakeWorktree",
            "write worktree",
            "Launch { talk: None }",
            "write agent",
            "write turn",
            "prompt \"do it\"",
            "write turn_end",
            "Import",
            "write work",
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
    let done = || Input::TurnEnded { why: None };
    assert_eq!(ended(vec![done(), work(0)], &mut plain()), "exit Empty");
    assert_eq!(ended(vec![done(), work(2)], &mut plain()), "exit Ready");
    let mut checked = life(&["true"], RunLimits::default(), false);
    let failed = ended(vec![done(), work(1), check(false)], &mut checked);
    assert_eq!(failed, r#"exit Failed { why: "check `true` failed with exit code 1" }"#);
    let gone = vec![Input::AgentGone { why: "killed".into() }, work(1)];
    assert_eq!(ended(gone, &mut plain()), r#"exit Failed { why: "killed" }"#);
    let stopped = vec![Input::Stop, Input::TurnEnded { why: Some("cancelled".into()) }, work(1)];
    assert_eq!(ended(stopped, &mut plain()), "exit Stopped");
    let mut checked = life(&["true"], RunLimits::default(), false);
    assert_eq!(ended(vec![done(), work(1), Input::Stop], &mut checked), "exit Stopped");
    let over = vec![Input::Limit { what: "5 s".into() }, done(), work(1)];
    assert_eq!(ended(over, &mut plain()), r#"exit Failed { why: "it reached its limit of 5 s" }"#);
    let torn = vec![done(), Input::CannotImport { why: "`.git` was rewritten".into() }];
    assert_eq!(ended(torn, &mut plain()), r#"exit Failed { why: "`.git` was rewritten" }"#);
}

#[test]
fn a_stop_during_the_start_ends_before_the_first_prompt() {
    let news = vec![Input::Begin { pid: 1 }, Input::Stop, Input::WorktreeStands { note: None }];
    let names = played(&mut plain(), news);
    assert_eq!(names[names.len() - 2..], ["exit Stopped", "Finish"]);
    assert!(!names.iter().any(|name| name.starts_with("Launch")));
}

#[test]
fn a_message_during_a_turn_is_sent_at_its_end() {
    let mut life = plain();
    let mut news = begun();
    news.extend([
        Input::Send { text: "also this".into() },
        Input::TurnEnded { why: None },
        work(1),
        Input::TurnEnded { why: None },
        work(1),
    ]);
    let names = played(&mut life, news);
    assert!(names.contains(&r#"prompt "also this""#.to_owned()), "{names:?}");
    assert_eq!(names[names.len() - 2], "exit Ready");
}

fn asks(n: u32, what: &str) -> Input {
    Input::Asked(PermissionAsk { n, what: what.into(), rule: what.into(), futile: None })
}

fn allows(n: u32) -> Input {
    Input::Answer { n, allow: true, always: false }
}

fn always_allows(n: u32) -> Input {
    Input::Answer { n, allow: true, always: true }
}

/// Returns the answers that the agent gets to its requests.
fn answered(life: &mut RunState, news: Vec<Input>) -> Vec<(u32, bool, Option<String>)> {
    let deeds: Vec<SupervisorAction> =
        news.into_iter().flat_map(|input| step(life, input)).collect();
    let told = deeds.into_iter().filter_map(|deed| match deed {
        SupervisorAction::Answer { n, decision } => Some((n, decision.allow, decision.why)),
        _ => None,
    });
    told.collect()
}

#[test]
fn unattended_requests_are_denied_immediately_with_a_hint() {
    let mut life = plain();
    step_all(&mut life, begun());
    for n in 1..=3 {
        let told = answered(&mut life, vec![asks(n, "rm -rf")]);
        let [(number, false, Some(why))] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(*number, n);
        assert_eq!(
            why,
            "no terminal to ask on; `studio resume task-aaaa --ask` keeps requests open"
        );
    }
    assert_eq!((life.story.phase.clone(), life.story.denied.count), (Phase::Working, 3));
}

#[test]
fn a_request_waits_for_the_user_and_is_answered_by_number() {
    let mut life = life(&[], RunLimits::default(), true);
    step_all(&mut life, begun());
    let told = answered(&mut life, vec![asks(1, "a"), asks(2, "b"), allows(2), allows(9)]);
    assert_eq!(told, [(2, true, None)]);
    assert_eq!(life.story.phase, Phase::Waiting { reason: "permission 1: a".into() });
    assert_eq!(answered(&mut life, vec![asks(3, "b")]), [], "`allow` is for once");
}

#[test]
fn always_answers_further_and_open_requests_of_its_kind() {
    let mut life = life(&[], RunLimits::default(), true);
    step_all(&mut life, begun());
    let news = vec![asks(1, "a"), asks(2, "b"), asks(3, "a"), always_allows(1)];
    assert_eq!(answered(&mut life, news), [(1, true, None), (3, true, None)]);
    assert_eq!(answered(&mut life, vec![asks(4, "a")]), [(4, true, None)]);
    assert_eq!(life.story.asks.keys().collect::<Vec<_>>(), [&2], "another kind still waits");
}

#[test]
fn a_request_that_the_sandbox_denies_is_not_asked() {
    let mut life = life(&[], RunLimits::default(), true);
    step_all(&mut life, begun());
    let futile = Some("the box is closed there".to_owned());
    let asked = PermissionAsk { n: 1, what: "write /opt/x".into(), rule: "r".into(), futile };
    let told = answered(&mut life, vec![Input::Asked(asked)]);
    assert_eq!(told, [(1, false, Some("the box is closed there".into()))]);
}

fn step_all(life: &mut RunState, news: Vec<Input>) {
    for input in news {
        step(life, input);
    }
}

#[test]
fn events_are_numbered_over_all_runs() {
    let mut life = plain();
    let event = || Input::Event { event: serde_json::json!({"seq": 1, "time": "t", "type": "x"}) };
    step_all(&mut life, begun());
    step_all(&mut life, vec![event(), event()]);
    let mut story = life.story.clone();
    story.hear_entry(&JournalEntry::Queued { prompt: None });
    let mut again = RunState::new(life.record, story, ConversationMemory::Keeps);
    step_all(&mut again, begun());
    let deeds = step(&mut again, event());
    let SupervisorAction::Write(JournalEntry::Event { event }) = &deeds[0] else {
        panic!("{deeds:?}")
    };
    assert_eq!(event["seq"], 3);
    assert_eq!(step(&mut again, Input::Event { event: serde_json::json!([1]) }), []);
}

#[test]
fn an_agent_without_memory_gets_the_task_with_a_message() {
    let mut life = RunState { memory: ConversationMemory::Forgets, ..plain() };
    let mut news = begun();
    let sent = Input::Send { text: "also this".into() };
    news.extend([sent, Input::TurnEnded { why: None }]);
    step_all(&mut life, news);
    let deeds = step(&mut life, work(1));
    let Some(SupervisorAction::Prompt { text, recap: true }) = deeds.last() else {
        panic!("{deeds:?}")
    };
    for part in ["You have worked on", "do it", "also this"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn a_budget_ends_a_session_with_an_unpriced_model() {
    let usage = serde_json::json!({"seq": 1, "time": "t", "type": "usage", "input": 60,
        "output": 50, "cache_read": 0, "cache_write": 0, "cost_usd": null});
    let money = RunLimits { usd: Some(100.0), ..RunLimits::default() };
    let mut life = life(&[], money, false);
    step_all(&mut life, begun());
    let deeds = step(&mut life, Input::Event { event: usage });
    assert!(deeds.contains(&SupervisorAction::Cancel), "{deeds:?}");
}

#[test]
fn limits_count_all_runs_and_are_raised_by_the_user() {
    let turn = || serde_json::json!({"seq": 1, "time": "t", "type": "turn", "n": 1});
    let mut first = life(&[], RunLimits { turns: Some(2), ..RunLimits::default() }, false);
    step_all(&mut first, begun());
    step_all(&mut first, vec![Input::Event { event: turn() }, Input::Event { event: turn() }]);
    let mut story = first.story.clone();
    story.hear_entry(&JournalEntry::Queued { prompt: None });
    let mut again = RunState::new(first.record.clone(), story.clone(), ConversationMemory::Keeps);
    step_all(&mut again, begun());
    assert!(step(&mut again, Input::Event { event: turn() }).contains(&SupervisorAction::Cancel));
    let more = RunLimits { turns: Some(3), ..RunLimits::default() };
    story.hear_entry(&JournalEntry::Settings { limits: more, attended: None });
    let mut raised = RunState::new(first.record, story, ConversationMemory::Keeps);
    step_all(&mut raised, begun());
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
    let money = RunLimits { usd: Some(0.4), ..RunLimits::default() };
    for (limits, event) in [(turns, turn), (tokens, usage.clone()), (money, usage)] {
        let mut news = begun();
        news.push(Input::Event { event });
        let names = played(&mut life(&[], limits, false), news);
        assert_eq!(names.last().unwrap(), "Cancel", "{limits:?}");
    }
}

#[test]
fn an_agent_without_its_conversation_gets_the_task_and_its_last_message() {
    let mut before = plain();
    let mut news = begun();
    let said = serde_json::json!({"seq": 1, "time": "t", "type": "text", "text": "half done"});
    news.push(Input::Event { event: said });
    played(&mut before, news);
    let mut story = before.story;
    story.hear_entry(&JournalEntry::Queued { prompt: Some("be quick".into()) });
    let mut again = RunState::new(before.record, story, ConversationMemory::Keeps);
    let deeds: Vec<SupervisorAction> =
        begun().into_iter().flat_map(|input| step(&mut again, input)).collect();
    let Some(SupervisorAction::Prompt { text, recap: true }) = deeds.last() else {
        panic!("{deeds:?}")
    };
    for part in ["do it", "half done", "be quick"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}
