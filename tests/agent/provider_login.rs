//! Tests of signing in to a workspace through the browser, and of using the login.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base::process::{OutputLimits, Running};
use rustix::process::{Pid, Signal};
use testkit::env::{CommandRun, TestEnv, until};
use testkit::model_server::gate::ReplyGate;
use testkit::workspace::{TestDir, visit};

use crate::agent_env::G3;

struct LoginScene {
    env: TestEnv,
    work: TestDir,
}

/// A sign-in that waits for the browser.
struct SignIn {
    g3: Running,
    err: BufReader<std::process::ChildStderr>,
    url: String,
}

impl LoginScene {
    /// Creates a user whose workspace's tokens are valid for this many seconds.
    fn new(life: u64) -> LoginScene {
        let (env, work) = (TestEnv::new(), TestDir::start(life));
        env.config(&work.config_toml());
        LoginScene { env, work }
    }

    fn g3<const N: usize>(&self, args: [&str; N]) -> CommandRun {
        self.env.run(G3, self.env.home(), args)
    }

    fn ask(&self) -> CommandRun {
        let job = self.env.command(G3, self.env.home()).args(["complete"]).input("Hello?");
        self.env.run_command(job)
    }

    fn begin(&self) -> SignIn {
        let args = ["login", "databricks", "--port", "0"];
        let mut g3 = self.env.start(G3, self.env.home(), args);
        let mut err = BufReader::new(g3.child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.trim_start().starts_with("http") {
            line.clear();
            assert!(err.read_line(&mut line).unwrap() > 0, "no address was shown");
        }
        SignIn { g3, err, url: line.trim().to_owned() }
    }

    fn signed_in(self) -> LoginScene {
        let sign_in = self.begin();
        let (status, location, _) = visit(&sign_in.url);
        assert_eq!(status, 302);
        let (status, _, page) = visit(&location.unwrap());
        assert!(status == 200 && page.contains("You are signed in"), "{page}");
        let (code, said) = sign_in.end();
        assert!(code == 0 && said.contains("signed in to http://127.0.0.1"), "{said}");
        self
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.env.home().join(".g3/oauth")) else {
            return Vec::new();
        };
        let all = entries.map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|ext| ext == "json")).collect()
    }
}

impl SignIn {
    fn end(mut self) -> (i32, String) {
        let mut said = String::new();
        self.err.read_to_string(&mut said).unwrap();
        let status = self.g3.wait_until(None).unwrap().unwrap();
        (base::process::exit_code(status), said)
    }
}

#[test]
fn a_browser_login_is_stored_used_and_removed() {
    let desk = LoginScene::new(3600);
    let ran = desk.ask();
    ran.exits(2).output_contains("no login for").output_contains("try: g3 login databricks work");

    let desk = desk.signed_in();
    let file = desk.files().remove(0);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(desk.ask().ok(), "hi");
    let question = &desk.work.questions()[0];
    assert_eq!(question.path, "/serving-endpoints/claude/invocations");
    assert_eq!(question.header("authorization"), Some("Bearer access-2"));
    assert_eq!(desk.work.renewals(), 0);

    // A whole run leaves no token behind, wherever it writes.
    let repo = desk.env.repo();
    let ran = desk.env.run(G3, repo.path(), ["--json", "greet"]);
    ran.ok();
    let all = walk(repo.path()) + &ran.out + &ran.err;
    for token in desk.work.good_tokens() {
        assert!(!all.contains(&token), "{token} is written down");
    }

    desk.g3(["login", "databricks", "--remove"]).output_contains("removed the login").ok();
    assert!(desk.files().is_empty());
    desk.g3(["login", "databricks", "work", "--remove"]).output_contains("no login for").ok();
    desk.ask().exits(2);
}

/// Returns the text of all files below a directory.
fn walk(dir: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &walk(&path);
        } else {
            text += &String::from_utf8_lossy(&std::fs::read(&path).unwrap());
        }
    }
    text
}

/// Installs a program in place of the desktop's URL opener; it records what it should open.
fn with_a_screen(desk: &mut LoginScene) -> PathBuf {
    let (bin, opened) = (desk.env.home().join("bin"), desk.env.home().join("opened"));
    std::fs::create_dir_all(&bin).unwrap();
    let program = bin.join("xdg-open");
    let script =
        format!("#!/bin/sh\nprintf '%s' \"$1\" > {0}.new && mv {0}.new {0}\n", opened.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    desk.env.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    desk.env.set("DISPLAY", ":9");
    opened
}

#[test]
fn the_browser_opens_automatically_on_a_terminal() {
    let mut desk = LoginScene::new(3600);
    let opened = with_a_screen(&mut desk);
    let desk = desk.signed_in();
    assert!(!opened.exists(), "a browser was opened without a terminal");

    let line = format!("{G3} login databricks --port 0");
    let job = desk.env.command("script", desk.env.home()).args(["-qec", &line, "/dev/null"]);
    let job = job.env("SHELL", "/bin/sh").input("");
    let ran = std::thread::spawn(move || {
        CommandRun::from(job.output(OutputLimits::seconds(60)).unwrap())
    });
    let url = until("the browser is opened", || std::fs::read_to_string(&opened).ok());
    let (_, location, _) = visit(&url);
    assert_eq!(visit(&location.unwrap()).0, 200);
    ran.join().unwrap().exits(0).output_contains("signed in");
}

#[test]
fn only_the_redirect_of_this_sign_in_is_accepted() {
    let desk = LoginScene::new(3600);
    let sign_in = desk.begin();
    let (_, location, _) = visit(&sign_in.url);
    let location = location.unwrap();
    let at = location.find("state=").unwrap();
    for wrong in [format!("{}state=other", &location[..at]), location.replace("/?", "/x?")] {
        let (status, _, page) = visit(&wrong);
        assert!(status == 400 && page.contains("not the sign-in"), "{wrong}: {page}");
    }
    assert_eq!(visit(&location).0, 200);
    assert_eq!(sign_in.end().0, 0);
    assert_eq!(desk.ask().ok(), "hi");
}

#[test]
fn a_refusal_an_invalid_code_and_a_timeout_are_reported() {
    let mut desk = LoginScene::new(3600);
    let back = |sign_in: &SignIn, answer: &str| {
        let (_, location, _) = visit(&sign_in.url);
        let location = location.unwrap();
        let (address, query) = location.split_once("/?").unwrap();
        let state = query.split('&').find(|pair| pair.starts_with("state=")).unwrap();
        assert_eq!(visit(&format!("{address}/?{answer}&{state}")).0, 200);
    };
    let sign_in = desk.begin();
    back(&sign_in, "error=access_denied&error_description=not+you");
    let (code, said) = sign_in.end();
    assert!(code == 1 && said.contains("access_denied: not you"), "{said}");

    let sign_in = desk.begin();
    back(&sign_in, "code=made-up");
    let (code, said) = sign_in.end();
    assert!(code == 1 && said.contains("invalid_grant"), "{said}");
    assert!(desk.files().is_empty());

    desk.env.set("G3_TEST_LOGIN_MS", 50);
    let ran = desk.g3(["login", "databricks", "--port", "0"]);
    ran.exits(1)
        .output_contains("timed out waiting for the browser")
        .output_contains("try: g3 login databricks work");

    let host = format!("[providers.databricks.x]\nhost = \"{}/nothing\"\n", desk.work.server.url());
    desk.env.config(&host);
    desk.g3(["login", "databricks", "--port", "0"]).exits(1).output_contains("offers no sign-in");
    desk.env.config("[providers.databricks.x]\nhost = \"http://example.com\"\n");
    desk.g3(["login", "databricks", "--port", "0"]).exits(2).output_contains("plain http");
}

#[test]
fn an_expiring_token_is_renewed_before_use() {
    let desk = LoginScene::new(30).signed_in();
    for renewals in 1..=3 {
        assert_eq!(desk.ask().ok(), "hi");
        assert_eq!((desk.work.renewals(), desk.work.questions().len()), (renewals, renewals));
    }
}

#[test]
fn a_revoked_token_is_renewed_once() {
    let desk = LoginScene::new(3600).signed_in();
    desk.work.take_back();
    assert_eq!(desk.ask().ok(), "hi");
    assert_eq!((desk.work.renewals(), desk.work.questions().len()), (1, 2));
    assert_eq!(desk.ask().ok(), "hi");
    assert_eq!(desk.work.renewals(), 1, "what was renewed is kept");

    desk.work.end_login();
    let ran = desk.ask();
    ran.exits(1)
        .output_contains("is not valid any more")
        .output_contains("try: g3 login databricks work");
    assert_eq!(desk.work.renewals(), 2, "asked once, not again and again");
}

#[test]
fn concurrent_renewals_share_one_new_token() {
    let desk = LoginScene::new(30).signed_in();
    desk.work.tokens_live(3600);
    let start = || {
        let job = desk.env.command(G3, desk.env.home()).args(["complete"]).input("Hello?");
        std::thread::spawn(move || CommandRun::from(job.output(OutputLimits::seconds(60)).unwrap()))
    };
    let all: Vec<_> = (0..6).map(|_| start()).collect();
    for one in all {
        assert_eq!(one.join().unwrap().ok(), "hi");
    }
    assert_eq!(desk.work.renewals(), 1);
    assert_eq!(desk.ask().ok(), "hi");
}

#[test]
fn a_login_and_a_token_cannot_be_combined() {
    let desk = LoginScene::new(3600);
    desk.env.config(&format!("{}token = \"t\"\n", desk.work.config_toml()));
    desk.ask().exits(2).output_contains("has use_oauth and a token");
}

#[test]
fn an_interrupt_during_a_renewal_does_not_lose_the_login() {
    for args in [&["complete"][..], &["hello"]] {
        let desk = LoginScene::new(30).signed_in();
        let gate = ReplyGate::new();
        desk.work.hold_renewals(&gate);
        desk.work.tokens_live(3600);
        let mut g3 = desk.env.start(G3, desk.env.home(), args);
        g3.child.stdin.take().unwrap().write_all(b"Hello?").unwrap();
        gate.wait_until_reached(1);

        // The service has revoked the old token; its response is still on the way.
        let pid = Pid::from_raw(g3.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let moment = Instant::now() + Duration::from_millis(500);
        let left = g3.wait_until(Some(moment)).unwrap();
        gate.open_all();

        assert_eq!(left, None, "{args:?}: it did not wait for the answer");
        let status = g3.wait_until(None).unwrap().unwrap();
        assert_eq!(base::process::exit_code(status), 130, "{args:?}");
        assert_eq!(desk.ask().ok(), "hi");
        assert_eq!(desk.work.renewals(), 1, "{args:?}");
    }
}

/// These tests need a separate mount namespace (unshare -rm).
mod needs_mount_namespace {
    use super::*;

    #[test]
    #[ignore = "needs a mount namespace of its own (unshare -rm)"]
    fn a_login_that_cannot_be_saved_is_not_renewed() {
        let desk = LoginScene::new(30).signed_in();
        let directory = desk.env.home().join(".g3/oauth");
        let job =
            desk.env.command("unshare", desk.env.home()).args(["-rm", "sh", "-c", FULL_DISK, "sh"]);
        let ran = desk.env.run_command(job.arg(&directory).arg(G3));
        ran.exits(1).output_contains("cannot renew the login").output_contains("No space left");
        assert_eq!(desk.work.renewals(), 0, "the token for renewal is still good");
        assert_eq!(desk.ask().ok(), "hi");
    }
}

/// Turns the login's directory into a full file system for one request.
const FULL_DISK: &str = "cp -r \"$1\" kept; mount -t tmpfs -o size=64k none \"$1\" || exit 99
    cp kept/* kept/.gitignore \"$1\"; dd if=/dev/zero of=\"$1/filler\" 2>/dev/null
    echo Hello | \"$2\" complete";
