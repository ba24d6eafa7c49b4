//! The server: who gets an answer, what every answer has, how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ChildStdout;
use std::time::Duration;

use base::process::Running;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::env::until;

use crate::fixtures::{Scene, studio};

/// A running `studio serve`.
pub struct PageServer {
    running: Running,
    stdout: BufReader<ChildStdout>,
    /// The link with the token.
    pub link: String,
    /// The address: `127.0.0.1:PORT`.
    pub host: String,
    cookie: String,
}

/// The answer to a request.
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// The header lines, in lower case.
    pub headers: String,
    /// The body.
    pub body: String,
}

impl HttpAnswer {
    /// Parses the body.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.body))
    }

    /// Asserts the status.
    #[track_caller]
    pub fn is(self, status: u16) -> HttpAnswer {
        assert_eq!(self.status, status, "{}\n{}", self.headers, self.body);
        self
    }
}

impl PageServer {
    /// Starts the server on a free port.
    pub fn start(scene: &Scene) -> PageServer {
        PageServer::start_at(scene, 0)
    }

    /// Starts the server on a port.
    pub fn start_at(scene: &Scene, port: u16) -> PageServer {
        PageServer::start_with(scene, &["--port", &port.to_string()])
    }

    /// Starts the server with arguments.
    pub fn start_with(scene: &Scene, args: &[&str]) -> PageServer {
        let args = [&["serve"], args].concat();
        let mut running = scene.env.start(studio(), scene.repo.path(), args);
        let stdout = running.child.stdout.take().expect("a pipe");
        let mut stdout = BufReader::new(stdout);
        let mut link = String::new();
        stdout.read_line(&mut link).expect("the link");
        let link = link.trim_end().to_owned();
        let host = link.strip_prefix("http://").and_then(|it| it.split('/').next());
        let host = host.unwrap_or_else(|| panic!("no link: {link}")).to_owned();
        PageServer { running, stdout, link, host, cookie: String::new() }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.host.rsplit(':').next().and_then(|it| it.parse().ok()).expect("a port")
    }

    /// Uses the link like a browser, for the requests of this value.
    pub fn log_in(&mut self) -> &mut PageServer {
        let path = self.link.split_once(&self.host).expect("a link").1;
        let answer = self.raw("GET", path, &[("Host", &self.host)], "").is(200);
        let cookie = answer.headers.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.expect("a cookie");
        assert!(cookie.ends_with("; path=/; httponly; samesite=strict"), "{cookie}");
        self.cookie = cookie.split(';').next().expect("a pair").to_owned();
        self
    }

    /// Like `log_in`, with the link that the server printed after the last one was used.
    pub fn log_in_again(&mut self) -> &mut PageServer {
        self.link = self.next_link();
        self
    }

    fn next_link(&mut self) -> String {
        let stderr = self.running.child.stderr.as_mut().expect("a pipe");
        let mut text = Vec::new();
        loop {
            let mut byte = [0];
            stderr.read_exact(&mut byte).expect("another link");
            text.push(byte[0]);
            let line = String::from_utf8_lossy(&text);
            if let Some((_, link)) = line.split_once("for another one: ")
                && let Some(link) = link.strip_suffix('\n')
            {
                return link.to_owned();
            }
        }
    }

    /// Kills the server.
    pub fn kill(mut self) {
        let id = Pid::from_raw(self.running.id().cast_signed()).expect("a process");
        kill_process(id, Signal::KILL).expect("it runs");
        until("the server to end", || self.running.wait_until(None).ok().flatten());
    }

    /// Sends a request as it is.
    pub fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpAnswer {
        let mut stream = TcpStream::connect(&self.host).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        // Version 1.0: the body ends with the connection.
        let mut text = format!("{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).expect("the server reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server answers");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let status = first.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
        let headers = headers.to_ascii_lowercase().replace("\r\n", "\n");
        HttpAnswer { status, headers, body: body.to_owned() }
    }

    /// Reads a path as an own page does.
    pub fn get(&self, path: &str) -> HttpAnswer {
        self.raw("GET", path, &[("Host", &self.host), ("Cookie", &self.cookie)], "")
    }

    /// Sends JSON as an own page does.
    pub fn post(&self, path: &str, body: &Value) -> HttpAnswer {
        let origin = format!("http://{}", self.host);
        let headers = [("Host", self.host.as_str()), ("Cookie", &self.cookie), ("Origin", &origin)];
        self.raw("POST", path, &headers, &body.to_string())
    }

    /// Opens a stream of events; returns its reader after the head.
    pub fn events(&self, path: &str, last: Option<&str>) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.host).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        let (host, cookie) = (&self.host, &self.cookie);
        let head = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nCookie: {cookie}\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).expect("the server reads");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("a head");
        }
        reader
    }

    /// Ends the server like Ctrl-C; returns its exit code and what it wrote to stderr.
    pub fn interrupt(mut self) -> (i32, String) {
        let id = Pid::from_raw(self.running.id().cast_signed()).expect("a process");
        kill_process(id, Signal::INT).expect("it runs");
        let status = until("the server to end", || self.running.wait_until(None).ok().flatten());
        let mut text = String::new();
        let mut stderr = self.running.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut text).expect("its stderr");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("its stdout");
        assert_eq!(rest, "");
        (base::process::exit_code(status), text)
    }
}

/// Reads the next event: its id, its name and its data.
pub fn next_event(reader: &mut impl BufRead) -> (String, String, Value) {
    let mut event = (String::new(), String::new(), Value::Null);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("an event") > 0, "the stream ended");
        let line = line.trim_end_matches('\n');
        match line.split_once(": ") {
            Some(("id", id)) => event.0 = id.to_owned(),
            Some(("event", name)) => event.1 = name.to_owned(),
            Some(("data", data)) => event.2 = serde_json::from_str(data).expect("data is JSON"),
            _ if !event.1.is_empty() => return event,
            _ => {}
        }
    }
}

#[test]
fn a_public_url_is_a_second_address_and_no_other_name_is() {
    let scene = Scene::new();
    for wrong in ["http://box.example", "https://box.example/studio", "box.example"] {
        scene.studio(["serve", "--public-url", wrong]).exits(2).output_contains(wrong);
    }
    let mut server = PageServer::start_with(&scene, &["--public-url", "https://box.example"]);
    let mut link = String::new();
    server.stdout.read_line(&mut link).unwrap();
    let path = link.trim_end().strip_prefix("https://box.example").expect("the second link");
    let path = path.to_owned();
    assert!(server.link.ends_with(&path), "one token: {link}");
    server.raw("GET", &path, &[("Host", "evil.example")], "").is(421);
    let answer = server.raw("GET", &path, &[("Host", "box.example")], "").is(200);
    let cookie = answer.headers.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.expect("a cookie");
    assert!(cookie.ends_with("; path=/; httponly; samesite=strict; secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let board = server.raw("GET", "/", &[("Host", "box.example"), ("Cookie", cookie)], "").is(200);
    assert!(!board.body.contains("127.0.0.1"), "{}", board.body);
    let stop = |host: &str, origin: &str| {
        let headers = [("Host", host), ("Cookie", cookie), ("Origin", origin)];
        server.raw("POST", "/api/v1/sessions/none/stop", &headers, "{}").status
    };
    assert_eq!(stop("box.example", "https://box.example"), 404);
    assert_eq!(stop("box.example", "http://box.example"), 403);
    assert_eq!(stop("box.example", &format!("http://{}", server.host)), 403);
    assert_eq!(stop("other.example", "https://other.example"), 421);
    let own = server.host.clone();
    assert_eq!(stop(&own, &format!("http://{own}")), 404);
    let (code, text) = server.interrupt();
    assert_eq!(code, 0);
    let next = text.lines().filter(|line| line.contains("/login?token=")).count();
    assert_eq!(next, 2, "the next link at both addresses: {text}");
}

#[test]
fn a_link_works_once_and_gives_a_cookie_that_scripts_cannot_read() {
    let scene = Scene::new();
    let mut server = PageServer::start(&scene);
    assert!(server.link.starts_with("http://127.0.0.1:"), "{}", server.link);
    let own = server.host.clone();
    for path in ["/", "/sessions/a", "/api/v1/sessions", "/api/v1/events", "/no-such-page"] {
        let answer = server.raw("GET", path, &[("Host", &own)], "").is(401);
        assert!(answer.body.contains("studio serve"), "{}", answer.body);
    }
    let wrong = "/login?token=0000000000000000000000000000000000000000000000000000000000000000";
    server.raw("GET", wrong, &[("Host", &own)], "").is(403);
    server.raw("GET", "/login", &[("Host", &own)], "").is(403);
    server.log_in();
    assert!(server.get("/").is(200).body.contains("No sessions yet"));
    let used = server.link.split_once(&own).unwrap().1;
    let answer = server.raw("GET", used, &[("Host", &own)], "").is(403);
    assert!(!answer.headers.contains("set-cookie"), "{}", answer.headers);
    let (code, text) = server.interrupt();
    assert_eq!(code, 0);
    assert!(text.contains("for another one: http://127.0.0.1:"), "{text}");
}

#[test]
fn other_names_other_pages_and_other_servers_get_nothing() {
    let scene = Scene::new();
    let mut server = PageServer::start(&scene);
    server.log_in();
    let own = server.host.clone();
    let cookie = server.cookie.clone();
    let origin = format!("http://{own}");
    // Another name leads to the address: DNS rebinding, with a stolen cookie.
    let port = server.port();
    for host in ["evil.example", &format!("evil.example:{port}"), &format!("[::1]:{port}"), ""] {
        server.raw("GET", "/", &[("Host", host), ("Cookie", &cookie)], "").is(421);
    }
    server.raw("GET", "/", &[("Cookie", &cookie)], "").is(421);
    // Another page sends a form with the user's browser.
    let post = |headers: &[(&str, &str)]| {
        let headers = [&[("Host", own.as_str()), ("Cookie", cookie.as_str())], headers].concat();
        server.raw("POST", "/api/v1/undo", &headers, "{}").status
    };
    assert_eq!(post(&[]), 403);
    for other in ["null", "http://evil.example", "http://127.0.0.1:1", "http://127.0.0.1"] {
        assert_eq!(post(&[("Origin", other)]), 403, "{other}");
    }
    assert_eq!(post(&[("Origin", &origin), ("Sec-Fetch-Site", "cross-site")]), 403);
    // Nothing can be undone, which is an answer of the command.
    assert_ne!(post(&[("Origin", &origin)]), 403);
    // The cookie of another server.
    let mut other = PageServer::start(&scene);
    other.log_in();
    let answer = server.raw("GET", "/", &[("Host", &own), ("Cookie", &other.cookie)], "");
    assert_eq!(answer.status, 401);
}

#[test]
fn every_answer_forbids_scripts_of_pages_and_paths_lead_nowhere_else() {
    let scene = Scene::new();
    let mut server = PageServer::start(&scene);
    server.log_in();
    let paths = [
        "/",
        "/style.css",
        "/page.js",
        "/api/v1/sessions",
        "/no-such-page",
        "/sessions/no-such-session",
        "/login",
    ];
    for path in paths {
        let headers = server.get(path).headers;
        let policy =
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'";
        assert!(headers.contains(policy), "{path}: {headers}");
        assert!(!headers.contains("unsafe"), "{headers}");
        for header in ["x-content-type-options: nosniff", "cache-control: no-store"] {
            assert!(headers.contains(header), "{path}: {headers}");
        }
    }
    for path in [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/sessions/..%2f..%2f..%2fconfig",
        "/sessions/%2e%2e",
        "/sessions/a%00b",
        "/sessions/--all",
        "/style.css/../../Cargo.toml",
        "/api/v1/sessions/..%2foperations.jsonl/events",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
    }
    // A word of a request is not parsed as an option of a command.
    let answer = server.post("/api/v1/sessions/--help/stop", &serde_json::json!({}));
    assert_eq!(answer.status, 404, "{}", answer.body);
    let answer = server.post("/api/v1/undo", &serde_json::json!({"operation": "--help"}));
    assert_ne!(answer.status, 200, "{}", answer.body);
}

#[test]
fn ctrl_c_ends_the_server_while_a_page_is_open() {
    let scene = Scene::new();
    let mut server = PageServer::start(&scene);
    server.log_in();
    let mut events = server.events("/api/v1/events", None);
    assert_eq!(next_event(&mut events).1, "start");
    let (code, text) = server.interrupt();
    assert_eq!(code, 0, "{text}");
    // A port that is in use is a failure that says so.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    scene.studio(["serve", "--port", &port]).exits(1).output_contains("cannot listen on port");
}
