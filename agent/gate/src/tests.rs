//! Tests of the gate: decisions, questions and rules.

use base::config::agent::GateRule;

use super::rules::build_question;
use super::*;

struct ScriptedAsker(PermissionAnswer, Mutex<Vec<PermissionQuestion>>);

impl Asker for ScriptedAsker {
    fn ask<'a>(&'a self, question: &'a PermissionQuestion) -> BoxFuture<'a, PermissionAnswer> {
        self.1.lock().unwrap().push(question.clone());
        Box::pin(async { self.0.clone() })
    }
}

fn visit<'a>(access: &'a Access) -> AccessRequest<'a> {
    let root = Path::new("/w");
    AccessRequest { tool: "write_file", root, session_dir: Path::new("/s"), access, preview: None }
}

fn ruled(rules: &[GateRule], asker: Option<Arc<dyn Asker>>) -> base::failure::Result<Gate> {
    Gate::new(&Config { rules: rules.to_vec(), ..Config::default() }, asker)
}

fn rule(tool: Option<&str>, path: Option<&str>, action: GateAction) -> GateRule {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    GateRule { tool: owned(tool), command: None, path: owned(path), host: None, action }
}

#[tokio::test]
async fn access_inside_does_not_ask_and_outside_names_the_rule_to_add() {
    let gate = Gate::default();
    let inside = Access::Write("/w/a.txt".into());
    assert_eq!(gate.admit(&visit(&inside)).await, Ok(Permit::Unconfined));
    let outside = Access::Write("/etc/a[1].txt".into());
    let denied = gate.admit(&visit(&outside)).await.unwrap_err().reason;
    assert!(denied.contains("[[gate.rules]]\ntool = \"write_file\""), "{denied}");
    let rule: toml::Table = denied.split_once('\n').unwrap().1.parse().unwrap();
    let path = rule["gate"]["rules"][0]["path"].as_str().unwrap();
    let rules = [self::rule(Some("write_file"), Some(path), GateAction::Allow)];
    let opened = ruled(&rules, None).unwrap();
    assert_eq!(opened.admit(&visit(&outside)).await, Ok(Permit::Unconfined));
    let other = Access::Write("/etc/a1.txt".into());
    assert!(opened.admit(&visit(&other)).await.is_err());
}

#[tokio::test]
async fn the_first_rule_that_matches_decides() {
    let rules = [
        rule(None, Some("/w/secret/**"), GateAction::Deny),
        rule(Some("write_*"), Some("/out/**"), GateAction::Allow),
    ];
    let gate = ruled(&rules, None).unwrap();
    let admit = async |path: &str| gate.admit(&visit(&Access::Write(path.into()))).await;
    assert!(admit("/w/secret/key").await.unwrap_err().reason.starts_with("denied"));
    assert_eq!(admit("/out/a/b").await, Ok(Permit::Unconfined));
    assert!(admit("/outer/a").await.is_err());
}

#[test]
fn a_rule_about_commands_applies_to_every_command_of_a_line() {
    let says = |command: &str, action, line: &str| {
        let command = Some(command.to_owned());
        let rules = [GateRule { tool: None, command, path: None, host: None, action }];
        let (line, cwd) = (line.to_owned(), PathBuf::from("/w"));
        let access = Access::Run { line, cwd, confirm_destructive: true };
        ruled(&rules, None).unwrap().judge(&visit(&access)).action
    };
    for line in [
        "git push",
        "cd . && git push -f",
        "sh -c 'git push'",
        "A=1 git push; true",
        "git \\\n push",
    ] {
        assert_eq!(says("git push*", GateAction::Deny, line), GateAction::Deny, "{line}");
    }
    assert_eq!(says("sudo *", GateAction::Deny, "cd . && sudo ls"), GateAction::Deny);
    for line in ["git -C . push", "git --no-pager -c a.b=c push origin", "git --git-dir=x push"] {
        assert_eq!(says("git push*", GateAction::Deny, line), GateAction::Deny, "{line}");
    }
    assert_eq!(says("git push*", GateAction::Deny, "git pull"), GateAction::Allow);
    assert_eq!(says("rm *", GateAction::Allow, "rm a && rm b"), GateAction::Allow);
    assert_eq!(says("rm *", GateAction::Allow, "rm a > b 2>/dev/null"), GateAction::Allow);
    assert_eq!(says("rm a*", GateAction::Allow, "rm a; mv b c"), GateAction::Ask);
    assert_eq!(says("rm a*", GateAction::Allow, "rm a > /etc/b"), GateAction::Ask);
    assert_eq!(says("rm a*", GateAction::Allow, "rm a \"$(mv b c)\""), GateAction::Ask);
    assert_eq!(says("rm a; mv b c", GateAction::Allow, "rm a; mv b c"), GateAction::Allow);
    assert_eq!(says("*", GateAction::Allow, "rm -rf /"), GateAction::Deny);
    assert_eq!(says("rm -rf /", GateAction::Allow, "rm -rf /"), GateAction::Deny);
    // A `box` rule restricts a line if any of its commands matches, but allows a line that would
    // ask only if all of them match.
    assert_eq!(says("npm *", GateAction::Box, "npm ci; true"), GateAction::Box);
    assert_eq!(says("npm *", GateAction::Box, "npm ci; rm a"), GateAction::Ask);
}

#[test]
fn the_rule_for_a_line_is_the_line() {
    for line in ["printf 'a\\n' > /etc/x", "rm [a]*{b,c}? \\", "echo \"é\"; mv a /b"] {
        let access = Access::Run { line: line.into(), cwd: "/w".into(), confirm_destructive: true };
        let request = visit(&access);
        let rule: toml::Table = build_question(&request, String::new()).rule.parse().unwrap();
        let command = rule["gate"]["rules"][0]["command"].as_str().map(str::to_owned);
        let action = GateAction::Allow;
        let rules = [GateRule { tool: None, command, path: None, host: None, action }];
        let gate = ruled(&rules, None).unwrap();
        assert_eq!(gate.judge(&request).action, GateAction::Allow, "{line}");
    }
}

#[tokio::test]
async fn server_tools_ask_unless_configured_otherwise() {
    let rules = [
        rule(None, Some("**"), GateAction::Allow),
        rule(Some("mcp__a__read*"), None, GateAction::Allow),
        rule(Some("mcp__b__*"), None, GateAction::Deny),
    ];
    let gate = ruled(&rules, None).unwrap();
    let admit = async |tool: &str, free: bool| {
        let access = Access::Foreign { server: "a".into(), allowed: free };
        gate.admit(&AccessRequest { tool, ..visit(&access) }).await
    };
    assert_eq!(admit("mcp__a__read_it", false).await, Ok(Permit::Unconfined));
    let denied = admit("mcp__a__write", false).await.unwrap_err().reason;
    assert!(denied.ends_with("tool = \"mcp__a__write\"\naction = \"allow\""), "{denied}");
    assert_eq!(admit("mcp__a__write", true).await, Ok(Permit::Unconfined));
    assert!(admit("mcp__b__x", true).await.is_err(), "a rule comes first");
    assert_eq!(preapproved(admit("mcp__a__write", false)).await, Ok(Permit::Unconfined));
    assert!(preapproved(admit("mcp__b__x", false)).await.is_err(), "what is denied stays so");
    gate.set_permission_mode(PermissionMode::Plan);
    assert!(admit("mcp__a__read_it", true).await.unwrap_err().reason.contains("plan mode"));
}

#[tokio::test]
async fn page_actions_do_not_ask_but_wait_for_a_plan() {
    let access = Access::Act("the page in the browser".into());
    let gate = Gate::default();
    assert_eq!(gate.admit(&visit(&access)).await, Ok(Permit::Unconfined));
    gate.set_permission_mode(PermissionMode::Plan);
    assert!(gate.admit(&visit(&access)).await.unwrap_err().reason.contains("plan mode"));
    gate.set_permission_mode(PermissionMode::Ask);
    assert!(
        gate.admit(&visit(&access)).await.unwrap_err().reason.contains("no terminal to ask on")
    );
}

#[tokio::test]
async fn a_question_answered_with_always_is_not_asked_again() {
    for (answer, asked) in [(PermissionAnswer::Always, 1), (PermissionAnswer::Once, 2)] {
        let asker = Arc::new(ScriptedAsker(answer, Mutex::default()));
        let gate = ruled(&[], Some(asker.clone())).unwrap();
        let access = Access::Read("/etc/hosts".into());
        for _ in 0..2 {
            assert_eq!(gate.admit(&visit(&access)).await, Ok(Permit::Unconfined));
        }
        assert_eq!(asker.1.lock().unwrap().len(), asked);
    }
    let asker = Arc::new(ScriptedAsker(PermissionAnswer::No, Mutex::default()));
    let gate = ruled(&[], Some(asker)).unwrap();
    let access = Access::Read("/etc/hosts".into());
    assert_eq!(
        gate.admit(&visit(&access)).await.unwrap_err().reason,
        "denied by the user: read /etc/hosts"
    );
}

#[test]
fn rules_about_hosts_match_only_hosts() {
    let fetch = |host: &str, free| Access::Fetch { host: host.to_owned(), allowed: free };
    let rule = |host: &str, action| {
        let (tool, command, path) = (None, None, None);
        GateRule { tool, command, path, host: Some(host.to_owned()), action }
    };
    let rules = [rule("*.Example.org", GateAction::Allow), rule("evil.*", GateAction::Deny)];
    let gate = ruled(&rules, None).unwrap();
    let judged = |access: Access| gate.judge(&visit(&access)).action;
    assert_eq!(judged(fetch("docs.example.org", false)), GateAction::Allow);
    assert_eq!(judged(fetch("example.org", false)), GateAction::Ask);
    assert_eq!(judged(fetch("example.org", true)), GateAction::Allow);
    assert_eq!(judged(fetch("evil.test", true)), GateAction::Deny);
    assert_eq!(judged(Access::Write("/elsewhere/a.example.org".into())), GateAction::Ask);
}

fn exact(gate: Config) -> Gate {
    Gate::new(&Config { policy: CommandPolicy::CoreExact, ..gate }, None).unwrap()
}

fn runs(line: &str) -> Access {
    Access::Run { line: line.to_owned(), cwd: "/w".into(), confirm_destructive: true }
}

#[test]
fn words_make_the_verdict_stricter_and_the_sandbox_allows_what_is_denied() {
    let gate = exact(Config::default());
    let judged = |access: Access| {
        let verdict = gate.judge(&AccessRequest { tool: "read_file", ..visit(&access) });
        (verdict.action, verdict.sandboxed)
    };
    for (line, action, sandboxed) in [
        ("ls", GateAction::Allow, false),
        ("grep kill x", GateAction::Ask, false),
        ("echo x > /out/y", GateAction::Ask, false),
        ("rm -rf /", GateAction::Ask, true),
        ("cat /etc/shadow", GateAction::Ask, true),
    ] {
        assert_eq!(judged(runs(line)), (action, sandboxed), "{line}");
        let safe = Gate::default().judge(&visit(&runs(line)));
        assert!(!safe.sandboxed, "{line}");
    }
    assert_eq!(judged(Access::Read("/etc/shadow".into())), (GateAction::Deny, false));
    assert_eq!(judged(Access::Read("/w/x".into())), (GateAction::Allow, false));
    assert_eq!(judged(Access::Read("/elsewhere/x".into())), (GateAction::Ask, false));
    let none = exact(Config { forbidden: Some(Vec::new()), ..Config::default() });
    assert_eq!(none.judge(&visit(&runs("mkfs /dev/sda"))).action, GateAction::Deny, "the floor");
}

#[tokio::test]
async fn calls_routed_to_the_sandbox_never_run_elsewhere() {
    let access = runs("dd if=/dev/zero of=x");
    let rules = [rule(Some("write_file"), None, GateAction::Allow)];
    let by_rule = exact(Config { rules: rules.to_vec(), ..Config::default() });
    assert_eq!(by_rule.admit(&visit(&access)).await, Ok(Permit::ScratchSandbox));
    let unattended = exact(Config::default());
    assert_eq!(preapproved(unattended.admit(&visit(&access))).await, Ok(Permit::ScratchSandbox));
    let denied = unattended.admit(&visit(&access)).await.unwrap_err().reason;
    assert!(denied.contains("forbidden_command: dd if=; it would run in the sandbox"), "{denied}");
    let rule: toml::Table = denied.split_once('\n').unwrap().1.parse().unwrap();
    assert_eq!(rule["gate"]["rules"][0]["command"].as_str(), Some("dd if=/dev/zero of=x"));
    let denies = [self::rule(None, None, GateAction::Deny)];
    let denies = exact(Config { rules: denies.to_vec(), ..Config::default() });
    assert!(denies.admit(&visit(&access)).await.is_err());
}

#[tokio::test]
async fn an_unanswered_question_is_denied_as_late() {
    struct SilentAsker;
    impl Asker for SilentAsker {
        fn ask<'a>(&'a self, _: &'a PermissionQuestion) -> BoxFuture<'a, PermissionAnswer> {
            Box::pin(std::future::pending())
        }
    }
    let gate = ruled(&[], Some(Arc::new(SilentAsker))).unwrap();
    assert_eq!(gate.answer_timeout.0, Duration::from_secs(300));
    let gate = Gate { answer_timeout: AnswerTimeout(Duration::from_millis(20)), ..gate };
    let refused = gate.admit(&visit(&runs("rm x"))).await.unwrap_err();
    assert!(refused.timed_out && refused.reason.contains("no answer within"), "{refused:?}");
}
