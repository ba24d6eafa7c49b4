//! The network of sessions: what agents and checks reach, what is asked, and where keys are.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::env::{built, until};

use crate::fixtures::Scene;

/// A script that tries to reach every listener, and writes the names of those that it reached.
const PROBE: &str = r#"
import socket, sys
tcp, tcp6, udp, udp6, name = sys.argv[1:6]
def tcp_to(family, host, port):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect((host, int(port)))
def udp_to(family, host, port):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.sendto(b"leak", (host, int(port)))
        s.recv(9)
def abstract(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + name)
def own():
    with socket.create_server(("127.0.0.1", 0)) as server:
        tcp_to(socket.AF_INET, *server.getsockname())
tries = {
    "tcp": lambda: tcp_to(socket.AF_INET, "127.0.0.1", tcp),
    "tcp6": lambda: tcp_to(socket.AF_INET6, "::1", tcp6),
    "udp": lambda: udp_to(socket.AF_INET, "127.0.0.1", udp),
    "udp6": lambda: udp_to(socket.AF_INET6, "::1", udp6),
    "abstract": lambda: abstract(name),
    "own": own,
}
reached = []
for kind, attempt in tries.items():
    try:
        attempt()
        reached.append(kind)
    except OSError:
        pass
open("reached", "w").write(" ".join(reached))
"#;

/// Listeners outside of all sandboxes.
struct Listeners {
    tcp: TcpListener,
    tcp6: TcpListener,
    udp: UdpSocket,
    udp6: UdpSocket,
    _local: UnixListener,
    name: String,
}

impl Listeners {
    fn new() -> Listeners {
        let name = format!("studio-test-{}", base::random::hex::<8>().unwrap());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let udp = [UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap()];
        for socket in &udp {
            let socket = socket.try_clone().unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 16];
                while let Ok((_, from)) = socket.recv_from(&mut bytes) {
                    let _ = socket.send_to(b"seen", from);
                }
            });
        }
        let [udp, udp6] = udp;
        Listeners {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            tcp6: TcpListener::bind("[::1]:0").unwrap(),
            udp,
            udp6,
            _local: UnixListener::bind_addr(&address).unwrap(),
            name,
        }
    }

    /// The step of a script that runs the probe.
    fn probe(&self) -> String {
        let port = |address: std::io::Result<std::net::SocketAddr>| address.unwrap().port();
        format!(
            "sh python3 probe.py {} {} {} {} {}",
            port(self.tcp.local_addr()),
            port(self.tcp6.local_addr()),
            port(self.udp.local_addr()),
            port(self.udp6.local_addr()),
            self.name
        )
    }

    fn was_reached(&self) -> bool {
        self.tcp.set_nonblocking(true).unwrap();
        match self.tcp.accept() {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene.repo.write("probe.py", PROBE);
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-qm", "probe"]);
    scene
}

#[test]
fn an_agent_without_a_network_reaches_no_listener_of_this_machine() {
    let scene = scene();
    let listeners = Listeners::new();
    let reached = |policy: &str| {
        let id = scene.exec(["--network", policy, &listeners.probe()]);
        scene.await_state(&id, "ready");
        scene.worktree(&id).read("reached")
    };
    assert_eq!(reached("off"), "own");
    assert_eq!(reached("allow-list"), "own");
    assert!(!listeners.was_reached());
    // The positive control: the scope of abstract sockets is closed by the sandbox in any case.
    assert_eq!(reached("on"), "tcp tcp6 udp udp6 own");
    assert!(listeners.was_reached());
}

#[test]
fn a_listed_service_of_this_machine_is_reached() {
    let scene = scene();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    scene.configure(&format!("[sandbox]\nhosts = [\"localhost:{port}\"]"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = [0; 4];
        stream.read_exact(&mut text).unwrap();
        stream.write_all(b"pong").unwrap();
        text
    });
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && printf ping >&3 && cat <&3 > answer");
    let id = scene.exec(["--network", "allow-list", &format!("sh bash -c '{line}'")]);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("answer"), "pong");
    assert_eq!(&server.join().unwrap(), b"ping");
}

/// A step that asks the proxy for a tunnel and writes the status of its answer to a file.
fn tunnel(target: &str, file: &str) -> String {
    let line = format!(
        "p=${{HTTPS_PROXY##*:}} && exec 3<>/dev/tcp/127.0.0.1/$p && \
         printf \"CONNECT {target} HTTP/1.1\\r\\n\\r\\n\" >&3 && head -n 1 <&3 > {file}"
    );
    format!("sh bash -c '{line}'")
}

#[test]
fn an_unlisted_host_is_denied_and_the_session_says_so() {
    let scene = scene();
    let id = scene.exec(["--network", "allow-list", &tunnel("unlisted.example:443", "answer")]);
    let ready = scene.await_state(&id, "ready");
    assert!(scene.worktree(&id).read("answer").contains("403"));
    let why = ready["why"].as_str().unwrap();
    assert!(why.contains("connect to unlisted.example:443"), "{why}");
    let hint = "`[sandbox] hosts = [\"unlisted.example\"]` in ~/.config/g3/config.toml adds it";
    scene.studio(["logs", &id]).exits(0).output_contains(hint);
    scene.studio(["status", &id]).exits(0).output_contains("unlisted.example");
}

#[test]
fn an_answer_for_always_applies_to_later_sessions() {
    let scene = scene();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
    let script = tunnel(&target, "answer");
    let id = scene.exec(["--network", "allow-list", "--ask", &script]);
    let waiting = scene.await_state(&id, "waiting");
    let why = waiting["why"].as_str().unwrap();
    assert!(why.contains(&format!("connect to {target}")), "{why}");
    scene.studio(["inbox"]).exits(0).output_contains(&target);
    let answered = scene.studio(["answer", &id, "allow", "--always"]);
    answered.exits(0).output_contains("allowed in all sessions");
    scene.await_state(&id, "ready");
    assert!(scene.worktree(&id).read("answer").contains("200"));

    let later = scene.exec(["--network", "allow-list", &script]);
    scene.await_state(&later, "ready");
    assert!(scene.worktree(&later).read("answer").contains("200"));
    let entries = scene.journal(&later);
    assert!(entries.iter().all(|entry| entry["entry"] != "asked"), "it is not asked again");
}

#[test]
fn the_wait_for_an_answer_about_a_host_is_no_silence_of_the_agent() {
    let scene = scene();
    scene.configure("limits.stall_seconds = 2\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let step = |listener: &TcpListener, file: &str| {
        tunnel(&format!("127.0.0.1:{}", listener.local_addr().unwrap().port()), file)
    };
    let script = format!("{}; {}", step(&listener, "first"), step(&other, "second"));
    let id = scene.exec(["--agent", "talk", "--network", "allow-list", "--ask", &script]);
    for number in ["1", "2"] {
        let question = format!("permission {number}: ");
        until("the question", || {
            let status = scene.status(&id);
            status["why"].as_str().unwrap().starts_with(&question).then_some(())
        });
        let start = Instant::now();
        until("more than the silence that counts", || {
            (start.elapsed() > Duration::from_millis(2500)).then_some(())
        });
        scene.studio(["answer", &id, number, "allow"]).exits(0);
    }
    scene.await_state(&id, "ready");
    let entries = scene.journal(&id);
    assert!(entries.iter().all(|entry| entry["entry"] != "stalled"), "{entries:?}");
}

#[test]
fn a_host_that_is_denied_for_always_is_not_asked_about_again() {
    let scene = scene();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
    let script = tunnel(&target, "answer");
    let ask = || {
        let id = scene.exec(["--network", "allow-list", "--ask", &script]);
        scene.await_state(&id, "waiting");
        id
    };
    let id = ask();
    let hint = format!("studio answer {id} 1 deny --always");
    scene.studio(["inbox"]).exits(0).output_contains(&hint);
    let answered = scene.studio(["answer", &id, "deny", "--always"]);
    answered.exits(0).output_contains("denied in all sessions");
    scene.await_state(&id, "ready");

    let later = scene.exec(["--network", "allow-list", "--ask", &script]);
    scene.await_state(&later, "ready");
    assert!(scene.worktree(&later).read("answer").contains("403"));
    let entries = scene.journal(&later);
    assert!(entries.iter().all(|entry| entry["entry"] != "asked"), "it is not asked again");

    // A later answer replaces it.
    let denied = scene.env.home().join(".local/state/g3/denied-hosts");
    assert!(std::fs::read_to_string(&denied).unwrap().contains(&target));
    std::fs::remove_file(&denied).unwrap();
    let id = ask();
    scene.studio(["answer", &id, "allow", "--always"]).exits(0);
    scene.await_state(&id, "ready");
    assert!(scene.worktree(&id).read("answer").contains("200"));
}

#[test]
fn a_metadata_service_is_denied_and_noted() {
    let scene = scene();
    scene.configure("[sandbox]\nhosts = [\"169.254.169.254:80\"]");
    let id = scene.exec(["--network", "allow-list", &tunnel("169.254.169.254:80", "answer")]);
    scene.await_state(&id, "ready");
    assert!(scene.worktree(&id).read("answer").contains("403"));
    scene
        .studio(["logs", &id])
        .exits(0)
        .output_contains("its address 169.254.169.254 is on the link");
}

#[test]
fn a_repository_can_only_narrow_the_network() {
    let scene = scene();
    scene.repo.write(
        "g3.toml",
        "[sandbox]\nnetwork = \"off\"\nhosts = [\"evil.example\"]\n\
         [studio]\ncheck_network = \"on\"\n[studio.agents.fake]\nnetwork = \"on\"\n",
    );
    let listeners = Listeners::new();
    let id = scene.exec([&listeners.probe()]);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("reached"), "own");
    let shown = scene.studio(["config", "show"]).exits(0).out.clone();
    assert!(!shown.contains("evil.example"), "{shown}");
}

#[test]
fn checks_have_an_allow_list_and_say_what_was_denied() {
    let scene = scene();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let check = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'");
    let id = scene.exec(["--check", &check, "write a b"]);
    let failed = scene.await_state(&id, "failed");
    let why = failed["why"].as_str().unwrap();
    assert!(why.contains("[sandbox] hosts = [\"localhost:PORT\"]"), "{why}");

    scene.configure("check_network = \"on\"");
    let id = scene.exec(["--check", &check, "write a b"]);
    scene.await_state(&id, "ready");
}

const CANARY: &str = "sk-ant-canary-5d1f0b0f3f";

#[test]
fn the_key_of_a_model_service_stays_outside_of_the_sandbox() {
    let mut scene = scene();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    scene.env.set("ANTHROPIC_API_KEY", CANARY);
    scene.env.set("ANTHROPIC_BASE_URL", &url);
    let fake = built("fake-agent");
    let row = |name: &str, more: &str| {
        format!(
            "[studio.agents.{name}]\nprotocol = \"command\"\n\
             command = [\"{}\", \"{{prompt}}\"]\n\
             env = [\"ANTHROPIC_API_KEY\", \"ANTHROPIC_BASE_URL\"]\nnetwork = \"allow-list\"\n{more}\n",
            fake.display()
        )
    };
    let rows = row("outside", "proxy_keys = [\"anthropic\"]") + &row("inside", "");
    scene.configure(&rows);
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        let mut byte = [0];
        while !received.ends_with(b"{}") && stream.read(&mut byte).unwrap() > 0 {
            received.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nreply").unwrap();
        String::from_utf8(received).unwrap().to_lowercase()
    });
    let request = "u=${ANTHROPIC_BASE_URL#http://} && exec 3<>/dev/tcp/127.0.0.1/$(echo $u | \
                   sed \"s/^[^:]*:\\([0-9]*\\).*/\\1/\") && printf \"POST /${u#*/}/v1/messages \
                   HTTP/1.1\\r\\nHost: x\\r\\nx-api-key: $ANTHROPIC_API_KEY\\r\\n\
                   Connection: close\\r\\nContent-Length: 2\\r\\n\\r\\n{}\" >&3 && cat <&3 > answer";
    let environment = "sh cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' > environment";
    let script = format!("sh bash -c '{request}'\n{environment}");
    let id = scene.exec(["--agent", "outside", &script]);
    scene.await_state(&id, "ready");
    let worktree = scene.worktree(&id);
    assert!(worktree.read("answer").contains("reply"), "{}", worktree.read("answer"));
    let received = service.join().unwrap();
    assert!(received.contains(&format!("x-api-key: {CANARY}\r\n")), "{received}");
    assert!(received.starts_with("post /v1/messages "), "{received}");
    let environment = worktree.read("environment");
    assert!(environment.contains("ANTHROPIC_API_KEY="), "the environment was read");
    assert!(!environment.contains(CANARY));
    for file in ["journal.jsonl", "agent.log", "session.json"] {
        let text = std::fs::read_to_string(scene.session_file(&id, file)).unwrap_or_default();
        assert!(!text.contains(CANARY), "{file}");
    }

    // The positive control: without `proxy_keys`, the agent has the key.
    let id = scene.exec(["--agent", "inside", &format!("write a\n{}", "sh env > environment")]);
    scene.await_state(&id, "ready");
    let environment = scene.worktree(&id).read("environment");
    assert!(environment.contains(CANARY));
}

/// Asks the first provider of the configuration three times; writes the configuration and the
/// statuses of the answers.
const ASK: &str = r#"
import json, os, urllib.error, urllib.request
config = os.read(int(os.environ["STUDIO_CONFIG_FD"]), 1 << 20).decode()
open("copy", "w").write(config)
path = ["providers", "openai", "main", "base_url"]
url = [value for name, value in json.loads(config)["overrides"] if name == path][0]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def ask():
    request = urllib.request.Request(url + "/chat", b"{}", {"Authorization": "Bearer placeholder"})
    try:
        return opener.open(request).status
    except urllib.error.HTTPError as error:
        return error.code
open("answers", "w").write(" ".join(str(ask()) for _ in range(3)))
"#;

/// Accepts one request for each answer; returns the requests.
fn serve(listener: TcpListener, answers: &'static [&'static str]) -> JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let serve_one = |status: &&str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            let mut byte = [0];
            while !received.ends_with(b"{}") && stream.read(&mut byte).unwrap() > 0 {
                received.push(byte[0]);
            }
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nreply");
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(received).unwrap().to_lowercase()
        };
        answers.iter().map(serve_one).collect()
    })
}

#[test]
fn the_keys_of_g3s_configuration_stay_outside_of_the_sandbox() {
    let mut scene = scene();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    scene.env.set("G3_PROVIDERS__GEMINI__OTHER__API_KEY", CANARY);
    let runs = scene.env.home().join("runs");
    let fake = built("fake-agent");
    let row = |name: &str, more: &str| {
        format!(
            "[studio.agents.{name}]\nprotocol = \"command\"\n\
             command = [\"{}\", \"{{prompt}}\"]\nread = [\"~/.config/g3\"]\n\
             env = [\"G3_PROVIDERS__GEMINI__OTHER__API_KEY\", \"OTHER_KEY={CANARY}\"]\n\
             network = \"allow-list\"\n{more}\n",
            fake.display()
        )
    };
    let outside = row("outside", "proxy_keys = [\"providers\"]")
        .replace(&format!("OTHER_KEY={CANARY}"), "PLAIN=x");
    scene.configure(&format!(
        "[providers.openai.main]\nmodel = \"kept\"\nbase_url = \"{url}\"\n\
         api_key_command = \"echo run >> {}; echo {CANARY}\"\n\
         [providers.anthropic.other]\napi_key = \"{CANARY}\"\n{outside}{}",
        runs.display(),
        row("inside", "")
    ));
    let service = serve(listener, &["200 OK", "401 Unauthorized", "200 OK"]);
    scene.repo.write("ask.py", ASK);
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-qm", "ask"]);
    let look = "sh cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' > environment\n\
                sh ls -A ~/.config/g3 > names 2>&1\nsh cat ~/.config/g3/config.toml > file 2> error";
    let id = scene.exec(["--agent", "outside", &format!("{look}\nsh python3 ask.py 2> asked")]);
    scene.await_state(&id, "ready");
    let worktree = scene.worktree(&id);
    assert_eq!(worktree.read("answers"), "200 401 200", "{}", worktree.read("asked"));
    for received in service.join().unwrap() {
        assert!(received.contains(&format!("authorization: bearer {CANARY}\r\n")), "{received}");
        assert!(received.starts_with("post /v1/chat "), "{received}");
    }
    // The command runs when a key is needed, and again when the service rejected it.
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\nrun\n");
    let copy = worktree.read("copy");
    assert!(copy.contains("kept") && copy.contains("placeholder"), "{copy}");
    for file in ["copy", "environment", "file", "names", "answers"] {
        let text = worktree.read(file);
        assert!(!text.contains(CANARY) && !text.contains("config.toml"), "{file}: {text}");
    }
    assert!(!worktree.read("error").is_empty(), "the file cannot be read");

    // The positive control: without `proxy_keys`, the agent has all keys.
    let id = scene.exec(["--agent", "inside", &format!("write a\n{look}")]);
    scene.await_state(&id, "ready");
    let worktree = scene.worktree(&id);
    for (file, count) in [("environment", 2), ("file", 2)] {
        assert!(worktree.read(file).matches(CANARY).count() >= count, "{file}");
    }
}
