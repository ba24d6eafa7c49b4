//! A small site on loopback whose responses a test defines byte by byte.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use testkit::env::TestEnv;

/// A request that the site received.
#[derive(Clone, Debug)]
pub struct SiteRequest {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// A running site; its thread ends with the test.
pub struct Site {
    pub address: SocketAddr,
    pages: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<SiteRequest>>>,
}

/// Returns a response with a status line, headers and a body.
pub fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = format!("content-length: {}\r\n", body.len());
    let mut bytes = format!("HTTP/1.1 {status}\r\n{headers}{length}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

impl Site {
    /// Creates a site without pages.
    pub fn new() -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (pages, asked) = (Arc::default(), Arc::default());
        let site = Site { address, pages: Arc::clone(&pages), asked: Arc::clone(&asked) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (pages, asked) = (Arc::clone(&pages), Arc::clone(&asked));
                std::thread::spawn(move || serve(stream, &pages, &asked));
            }
        });
        site
    }

    /// Answers a path with these bytes; other paths get no response. `PATH NAME` answers only
    /// requests with this user agent.
    pub fn has(&self, path: &str, bytes: Vec<u8>) {
        self.pages.lock().unwrap().insert(path.to_owned(), bytes);
    }

    /// Adds a page of this type.
    pub fn page(&self, path: &str, kind: &str, body: impl AsRef<[u8]>) {
        self.has(path, answer("200 OK", &[&format!("content-type: {kind}")], body));
    }

    /// Adds a redirect.
    pub fn sends(&self, path: &str, status: &str, to: &str) {
        self.has(path, answer(status, &[&format!("location: {to}")], ""));
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests received so far.
    pub fn asked(&self) -> Vec<SiteRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// Writes a user configuration that allows this site.
    pub fn allow(&self, env: &TestEnv, more: &str) {
        env.config(&format!("{more}\n[tools.webfetch]\nallow_hosts = [\"{}\"]\n", self.address));
    }
}

fn serve(
    stream: TcpStream,
    pages: &Mutex<BTreeMap<String, Vec<u8>>>,
    asked: &Mutex<Vec<SiteRequest>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8_lossy(&body).into_owned();
    let agent = headers.get("user-agent").map(String::as_str).unwrap_or_default();
    let for_agent = format!("{path} {}", agent.split('/').next().unwrap_or_default());
    asked.lock().unwrap().push(SiteRequest { path: path.clone(), headers, body });
    let pages = pages.lock().unwrap();
    let page = pages.get(&for_agent).or_else(|| pages.get(&path)).cloned();
    drop(pages);
    match page {
        Some(bytes) => {
            // The client may have disconnected early.
            let _ = (&stream).write_all(&bytes);
        }
        None => {
            // No response until the client disconnects.
            let _ = reader.read(&mut [0; 16]);
        }
    }
}
