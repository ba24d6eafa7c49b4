//! `[studio] notify`: one notification for each settled session and each open question.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;

use base::process::{Pty, Running, Stream};
use testkit::env::until;

use crate::fixtures::{Scene, studio};

/// Writes a line with id, state and reason for each notification.
const NOTIFY: &str = "notify = ['sh', '-c', 'printf \"%s %s %s\\n\" \"$STUDIO_ID\" \"$1\" \"$STUDIO_REASON\" >> \"$HOME/pings\"', 'sh', '{state}']";

fn pings(scene: &Scene) -> Vec<String> {
    let text = std::fs::read_to_string(scene.env.home().join("pings")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until there are this many notifications, and returns the last one.
fn last_of(scene: &Scene, count: usize) -> String {
    until("a notification", || (pings(scene).len() >= count).then_some(()));
    assert_eq!(pings(scene).len(), count, "{:?}", pings(scene));
    pings(scene).pop().unwrap_or_default()
}

#[test]
fn each_settled_session_sends_one_notification() {
    let scene = Scene::new();
    scene.configure(NOTIFY);
    let ready = scene.ready("write a 1");
    assert_eq!(
        last_of(&scene, 1),
        format!("{ready} ready the agent finished; no checks are configured")
    );
    let failed = scene.exec(["exit 3"]);
    assert_eq!(last_of(&scene, 2), format!("{failed} failed the agent exited with code 3"));

    // It settles again, and lands.
    scene.await_free(&ready);
    scene.studio(["send", &ready, "write b 1"]).exits(0);
    assert!(last_of(&scene, 3).starts_with(&format!("{ready} ready ")));
    let landed = scene.exec(["--accept", "write c 1"]);
    assert!(last_of(&scene, 4).starts_with(&format!("{landed} accepted landed as ")));
    scene.await_free(&landed);
    assert_eq!(pings(&scene).len(), 4);
}

#[test]
fn each_question_sends_one_notification_and_turns_send_none() {
    let scene = Scene::new();
    scene.configure(NOTIFY);
    let id = scene.exec(["--agent", "talk", "--ask", "say hello; ask one; say there; ask two"]);
    assert_eq!(last_of(&scene, 1), format!("{id} waiting permission 1: one"));
    scene.studio(["answer", &id, "1", "allow", "--always"]).exits(0);
    assert_eq!(last_of(&scene, 2), format!("{id} waiting permission 2: two"));
    scene.studio(["answer", &id, "2", "deny"]).exits(0);
    assert!(last_of(&scene, 3).starts_with(&format!("{id} ready ")));

    // Without anybody to ask, a question is denied and sends none.
    let unattended = scene.exec(["--agent", "talk", "ask one"]);
    assert!(last_of(&scene, 4).starts_with(&format!("{unattended} ready ")), "{:?}", pings(&scene));
}

#[test]
fn a_notification_that_cannot_be_sent_does_not_affect_the_session() {
    let scene = Scene::new();
    scene.configure("notify = ['/nonexistent', '{id}']");
    scene.ready("write a 1");
    scene.configure("notify = ['sh', '-c', 'sleep 10']");
    let id = scene.ready("write b 1");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Add b"]).exits(0);
}

/// Adds a program to the front of `PATH` that writes its arguments, one a line, to a file.
fn with_program(scene: &Scene, name: &str) -> String {
    let bin = scene.env.home().join("bin");
    fs::create_dir_all(&bin).expect("the home is writable");
    let log = scene.env.home().join("desktop");
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >> '{}'\n", log.display());
    fs::write(bin.join(name), script).expect("the home is writable");
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn the_desktop_shows_one_notification_for_each_settled_session() {
    let scene = Scene::new();
    scene.configure("notify = 'desktop'");
    let path = with_program(&scene, "notify-send");
    let run = |task: &str| {
        let job = scene.env.command(studio(), scene.repo.path()).env("PATH", &path);
        scene.env.run_command(job.args(["run", "--agent", "talk", task]))
    };
    run("say one; say two; write a 1").exits(0);
    let log = scene.env.home().join("desktop");
    let shown = || fs::read_to_string(&log).unwrap_or_default();
    until("a notification", || (shown().lines().count() >= 4).then_some(()));
    let lines: Vec<String> = shown().lines().map(str::to_owned).collect();
    assert_eq!((lines.len(), lines[1].as_str()), (4, "--"), "{lines:?}");
    assert!(lines[2].ends_with(" is ready"), "{lines:?}");
    assert_eq!(lines[3], "the agent finished; no checks are configured");
    // What an agent says is not markup.
    run("fail <b>&bad</b>").exits(1);
    until("the second notification", || (shown().lines().count() >= 8).then_some(()));
    assert!(shown().contains("&lt;b&gt;&amp;bad&lt;/b&gt;"), "{}", shown());
}

/// A private D-Bus session and a monitor of its messages. Both end on drop.
struct PrivateBus {
    address: String,
    _daemon: Running,
    monitor: Running,
}

impl PrivateBus {
    fn start(scene: &Scene) -> PrivateBus {
        let mut daemon = scene.env.start(
            "dbus-daemon",
            scene.repo.path(),
            ["--session", "--nofork", "--print-address"],
        );
        let mut address = String::new();
        let stdout = daemon.child.stdout.take().expect("its stdout is a pipe");
        BufReader::new(stdout).read_line(&mut address).expect("it prints its address");
        let address = address.trim().to_owned();
        let monitor = scene
            .env
            .command("dbus-monitor", scene.repo.path())
            .args(["--address", &address, "interface='org.freedesktop.Notifications'"])
            .stdin(Stream::Piped)
            .spawn()
            .expect("it can be started");
        PrivateBus { address, _daemon: daemon, monitor }
    }
}

#[test]
fn without_notify_send_the_desktop_is_called_over_dbus() {
    let scene = Scene::new();
    scene.configure("notify = ['bell', 'desktop']");
    let mut bus = PrivateBus::start(&scene);
    let mut lines = BufReader::new(bus.monitor.child.stdout.take().expect("a pipe")).lines();
    // The monitor is connected when it has shown its own name.
    lines.next().expect("the monitor starts").expect("it is text");
    let job = scene.env.command(studio(), scene.repo.path());
    let job = job.env("DBUS_SESSION_BUS_ADDRESS", &bus.address);
    scene.env.run_command(job.args(["run", "write a 1"])).exits(0);
    let mut message = Vec::new();
    for line in lines.map_while(Result::ok) {
        message.push(line);
        if message.iter().any(|line| line.contains("the agent finished")) {
            break;
        }
    }
    let message = message.join("\n");
    assert!(
        message.contains("member=Notify") && message.contains("string \"studio\""),
        "{message}"
    );
    assert!(message.contains("is ready\""), "{message}");
}

#[test]
fn the_bell_rings_once_for_each_settled_session_and_question() {
    let scene = Scene::new();
    scene.configure("notify = 'bell'");
    let pty = Pty::open().expect("a terminal can be made");
    let stream = || Stream::File(fs::File::from(pty.terminal.try_clone().expect("it is open")));
    let job = scene.env.command(studio(), scene.repo.path()).env("TERM", "xterm");
    let job = job.args(["run", "--agent", "talk", "say one; ask two; write a 1"]);
    let job = job.stdin(stream()).stdout(stream()).stderr(stream());
    let terminal = pty.terminal.try_clone().expect("it is open");
    let mut running = job.on_terminal(terminal).spawn().expect("it can be started");
    drop(pty.terminal);
    let mut controller = fs::File::from(pty.controller);
    let mut seen = Vec::new();
    let mut answered = false;
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = controller.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..n]);
        if !answered && String::from_utf8_lossy(&seen).contains("[y] allow") {
            assert_eq!(bells(&seen), 1);
            controller.write_all(b"y").expect("it can be written");
            answered = true;
        }
    }
    running.wait_until(None).expect("it ends");
    assert_eq!(bells(&seen), 2, "{}", String::from_utf8_lossy(&seen));

    scene.configure("notify = 'beep'");
    scene.studio(["list"]).exits(2).output_contains("\"bell\", \"desktop\"");
}

fn bells(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == 7).count()
}
