//! Benchmarks of `studio serve`: the board with many sessions, a large review in a browser, the memory
//! of the server and its CPU time while a page is open.
//!
//! Run by `./benches/run`. `BENCH_STUDIO` names the release binary; chromium and chromedriver draw the
//! pages. `BENCH_SESSIONS` (1,000) sets the largest number of sessions.

#[allow(dead_code, reason = "shared by all benchmarks, each of which uses a part")]
mod common {
    pub mod bench_repo;
    pub mod measure;
    pub mod table;
    pub mod webdriver;
}

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base::process::{Running, Stream};
use common::bench_repo::Bench;
use common::measure::{Sample, adopt_orphans, process_cpu, process_memory, reap_orphans};
use common::table::{Row, head};
use common::webdriver::Browser;
use testkit::env::until;

/// An agent that does nothing.
const AGENTS: &str = "[studio]\npool = 0\n[studio.agents.idle]\nprotocol = \"command\"\n\
    command = [\"true\"]\n";

/// The number of measured requests and pages.
const ROUNDS: usize = 11;

/// Notes when lines of the first hunk are in the window.
const NOTE_FIRST_HUNK: &str = "const look = () => { \
    const row = document.querySelector('.hunk table tr'); \
    if (row && row.getBoundingClientRect().top < innerHeight) window.firstHunk = performance.now(); \
    else requestAnimationFrame(look); }; requestAnimationFrame(look);";

fn main() {
    adopt_orphans();
    head();
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|it| it == name);
    let most = std::env::var("BENCH_SESSIONS").ok().and_then(|text| text.parse().ok());
    for sessions in [10, 100, most.unwrap_or(1000)] {
        if is_chosen("board") {
            board(sessions);
        }
    }
    if is_chosen("review") {
        review("a diff of one line", 1, 2);
        review("a diff of 20,000 lines in 300 files", 300, 20_000);
    }
}

/// Measures the board with many sessions, the memory of its server, and the CPU time of the server
/// while a browser shows the board and nothing changes.
fn board(sessions: usize) {
    let bench = Bench::new(3, AGENTS);
    bench.start(sessions, "idle");
    let mut server = Server::start(&bench);
    let cookie = server.log_in();
    let name = format!("first byte of the board, {sessions} sessions");
    let mut row = Row::new(&name, ["studio serve"]);
    // The first answer follows the comparison of all sessions.
    server.read_board(&cookie);
    for _ in 0..ROUNDS {
        row.add(0, server.read_board(&cookie));
    }
    row.add_memory(0, process_memory(server.id()));
    row.print();
    let browser = Browser::start(bench.place.path());
    browser.goto(&server.next_link());
    until("the board", || {
        (browser.script("return document.querySelectorAll('.row').length > 0") == true)
            .then_some(())
    });
    server.wait(Duration::from_secs(5));
    let (cpu, begin) = (server.cpu(), Instant::now());
    server.wait(Duration::from_secs(30));
    let name = format!("an open board in which nothing changes, {sessions} sessions, 30 s");
    let mut row = Row::new(&name, ["studio serve"]);
    row.add(0, Sample { wall: begin.elapsed(), cpu: server.cpu() - cpu });
    row.add_memory(0, process_memory(server.id()));
    row.print();
}

/// Measures the time from the start of a navigation until a review is painted and lines of its first
/// hunk are in the window.
fn review(what: &str, files: usize, lines: usize) {
    let (bench, id) = Bench::with_large_change(files, lines);
    let server = Server::start(&bench);
    let browser = Browser::start(bench.place.path());
    browser.goto(&server.link);
    until("the board", || {
        (browser.script("return document.querySelectorAll('.row').length > 0") == true)
            .then_some(())
    });
    browser.before_each_page(NOTE_FIRST_HUNK);
    let mut first = Row::new(
        &format!("open the review of {what} for the first time"),
        ["first contentful paint", "first hunk in the window"],
    );
    let mut again = Row::new(
        &format!("open the review of {what} again"),
        ["first contentful paint", "first hunk in the window"],
    );
    for round in 0..=ROUNDS {
        let row = if round == 0 { &mut first } else { &mut again };
        let cpu = server.cpu();
        browser.goto(&format!("http://{}/sessions/{id}/review", server.host));
        let times = until("the first hunk", || {
            let script = "const paint = performance.getEntriesByName('first-contentful-paint')[0]; \
                return paint && window.firstHunk ? [paint.startTime, window.firstHunk] : null";
            browser.script(script).as_array().cloned()
        });
        let cpu = server.cpu() - cpu;
        for (column, time) in times.iter().enumerate() {
            let wall = Duration::from_secs_f64(time.as_f64().expect("a time") / 1000.0);
            row.add(column, Sample { wall, cpu });
            row.add_memory(column, process_memory(server.id()));
        }
    }
    first.print();
    again.print();
}

/// A running `studio serve`. It ends on drop.
struct Server {
    running: Running,
    link: String,
    host: String,
}

impl Server {
    fn start(bench: &Bench) -> Server {
        let job = bench.studio(["serve"]).stdout(Stream::Piped).stderr(Stream::Piped);
        let mut running = job.spawn().expect("the server can be started");
        let mut link = String::new();
        let stdout = running.child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut link).expect("the link");
        let link = link.trim_end().to_owned();
        let host = link.split('/').nth(2).expect("a link").to_owned();
        Server { running, link, host }
    }

    fn id(&self) -> u32 {
        self.running.id()
    }

    fn cpu(&self) -> Duration {
        process_cpu(self.id())
    }

    fn wait(&mut self, time: Duration) {
        let ended = self.running.wait_until(Some(Instant::now() + time));
        assert!(ended.expect("it is our child").is_none(), "the server ended");
    }

    /// Uses the link; returns the cookie.
    fn log_in(&self) -> String {
        let path = self.link.split_once(&self.host).expect("a link").1;
        let mut answer = String::new();
        self.request(path, "").read_to_string(&mut answer).expect("an answer");
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        cookie.and_then(|it| it.split(';').next()).expect("a cookie").to_owned()
    }

    /// Returns the link for another browser.
    fn next_link(&mut self) -> String {
        let stderr = self.running.child.stderr.as_mut().expect("a pipe");
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut links =
            lines.filter_map(|line| Some(line.split_once("for another one: ")?.1.to_owned()));
        links.next().expect("another link")
    }

    fn request(&self, path: &str, cookie: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).expect("the server listens");
        let head =
            format!("GET {path} HTTP/1.0\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n", self.host);
        stream.write_all(head.as_bytes()).expect("the server reads");
        stream
    }

    /// Reads the board; the wall time ends with the first byte.
    fn read_board(&self, cookie: &str) -> Sample {
        let (cpu, begin) = (self.cpu(), Instant::now());
        let mut stream = self.request("/", cookie);
        let mut answer = vec![0];
        stream.read_exact(&mut answer).expect("an answer");
        let wall = begin.elapsed();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.0 200"), "{}", String::from_utf8_lossy(&answer));
        Sample { wall, cpu: self.cpu() - cpu }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.running.end(Duration::from_secs(2));
        reap_orphans();
    }
}
