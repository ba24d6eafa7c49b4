//! Downloads a model file: shows progress, resumes an interrupted download, and installs the file
//! only if its SHA-256 matches the pinned one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::lock::Lock;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode};
use sha2::{Digest, Sha256};

use super::{shows_progress, with_suffix};

/// Timeout for connecting; short, because a person waits at the terminal.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for a transfer that receives no data; the next one resumes it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often an interrupted transfer is resumed automatically.
const MAX_RESUMES: u32 = 3;

/// A file to download.
pub(crate) struct Download<'a> {
    /// Its URL.
    pub url: &'a str,
    /// Its expected SHA-256, in hex.
    pub sha256: &'a str,
    /// Its expected length in bytes.
    pub bytes: u64,
    /// The path to install it at.
    pub target: &'a Path,
}

/// Downloads a file, verifies it and installs it. Fails if another process downloads the same file.
pub(crate) async fn fetch(download: &Download<'_>) -> Result<()> {
    let partial = with_suffix(download.target, ".part");
    let lock = Lock::try_take(&with_suffix(download.target, ".lock"));
    let Some(_lock) = lock.or_fail(|| cannot(download))? else {
        return Err(Failure::refused("this model is already being downloaded")
            .hint("wait for the other `g3 model pull`"));
    };
    let client = client(download.url).or_fail(|| cannot(download))?;
    let bar = bar(download.bytes);
    let mut resumes = 0;
    while length(&partial) < download.bytes {
        let previous_length = length(&partial);
        match transfer(&client, download, &partial, &bar).await {
            Ok(()) => break,
            Err(TransferError::Off(_))
                if length(&partial) > previous_length && resumes < MAX_RESUMES =>
            {
                resumes += 1
            }
            Err(TransferError::Off(error)) => {
                return Err(interrupted_error(download, &partial, &error));
            }
            Err(TransferError::Refused(failure)) => return Err(failure),
        }
    }
    bar.finish_and_clear();
    check(download, &partial)?;
    fs::rename(&partial, download.target).or_fail(|| cannot(download))?;
    let _ = fs::remove_file(with_suffix(download.target, ".lock"));
    Ok(())
}

/// The error of a transfer.
enum TransferError {
    /// The connection failed; another attempt may resume the transfer.
    Off(String),
    /// The server or the disk failed; another attempt would not help.
    Refused(Failure),
}

async fn transfer(
    client: &Client,
    download: &Download<'_>,
    partial: &Path,
    bar: &ProgressBar,
) -> std::result::Result<(), TransferError> {
    let interrupted = |e: reqwest::Error| TransferError::Off(root_cause(&e));
    let failed =
        |e: io::Error| TransferError::Refused(Failure::failed(cannot(download)).because(e));
    let existing = length(partial);
    let mut request = client.get(download.url);
    if existing > 0 {
        request = request.header(RANGE, format!("bytes={existing}-"));
    }
    let sent = tokio::time::timeout(IDLE_TIMEOUT, request.send()).await;
    let response =
        sent.map_err(|_| TransferError::Off("no answer in 30 s".into()))?.map_err(interrupted)?;
    let offset = start(&response, existing)
        .map_err(|error| TransferError::Refused(download_error(download, &error)))?;
    let open = OpenOptions::new().create(true).write(true).truncate(offset == 0).open(partial);
    let mut file = open.map_err(failed)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(offset)).map_err(failed)?;
    bar.set_position(offset);
    let mut position = offset;
    let mut body = response.bytes_stream();
    loop {
        let next = tokio::time::timeout(IDLE_TIMEOUT, body.next()).await;
        let next = next.map_err(|_| TransferError::Off("no data for 30 s".into()))?;
        let Some(chunk) = next.transpose().map_err(interrupted)? else { break };
        position += chunk.len() as u64;
        if position > download.bytes {
            let reason = format!("it is longer than {} bytes", download.bytes);
            let _ = fs::remove_file(partial);
            return Err(TransferError::Refused(download_error(download, &reason)));
        }
        file.write_all(&chunk).map_err(failed)?;
        bar.set_position(position);
    }
    if position < download.bytes {
        return Err(TransferError::Off(format!(
            "the connection closed after {position} of {} bytes",
            download.bytes
        )));
    }
    file.sync_data().map_err(failed)
}

/// Returns the offset in the file at which the body of a response begins.
fn start(response: &Response, existing: u64) -> std::result::Result<u64, String> {
    match response.status() {
        StatusCode::OK => Ok(0),
        StatusCode::PARTIAL_CONTENT => {
            let range = response.headers().get(CONTENT_RANGE).and_then(|it| it.to_str().ok());
            let begin =
                range.and_then(|it| it.strip_prefix("bytes ")?.split('-').next()?.parse().ok());
            match begin {
                Some(begin) if begin <= existing => Ok(begin),
                Some(_) | None => {
                    Err(format!("the server sent another range than requested: {range:?}"))
                }
            }
        }
        // The partial file is at least as long as the file on the server.
        StatusCode::RANGE_NOT_SATISFIABLE => Err("the server does not have this range".into()),
        status => Err(format!("the server answered {status}")),
    }
}

fn check(download: &Download<'_>, partial: &Path) -> Result<()> {
    let hash = sha256(partial).or_fail(|| cannot(download))?;
    if hash == download.sha256 {
        return Ok(());
    }
    let _ = fs::remove_file(partial);
    Err(Failure::failed("the downloaded file is not the expected model and was deleted")
        .because(format!("its SHA-256 is {hash}, expected {}", download.sha256))
        .hint("g3 model pull    downloads it again"))
}

/// Returns the SHA-256 of a file, in hex.
pub(crate) fn sha256(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
    }
    Ok(base::text::hex(&hash.finalize()))
}

fn client(url: &str) -> reqwest::Result<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let local_prefixes = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let mut client = Client::builder().connect_timeout(CONNECT_TIMEOUT);
    if local_prefixes.iter().any(|start| url.starts_with(start)) {
        client = client.no_proxy();
    }
    client.user_agent(concat!("g3/", env!("CARGO_PKG_VERSION"))).build()
}

fn bar(bytes: u64) -> ProgressBar {
    let target =
        if shows_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(style).expect("the template is a constant");
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn cannot(download: &Download<'_>) -> String {
    format!("cannot download {}", download.url)
}

fn download_error(download: &Download<'_>, reason: &str) -> Failure {
    with_alternatives(Failure::failed(cannot(download)).because(reason))
}

fn interrupted_error(download: &Download<'_>, partial: &Path, reason: &str) -> Failure {
    let failure = Failure::failed(cannot(download)).because(reason);
    match length(partial) {
        0 => with_alternatives(failure),
        existing => {
            failure.hint(format!("g3 model pull    resumes at {} MB", existing / 1_000_000))
        }
    }
}

fn with_alternatives(failure: Failure) -> Failure {
    failure
        .hint("download the file on another machine, then: g3 model add FILE --name NAME")
        .hint("another URL of the same file: g3 model pull --from URL")
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    const CONTENT: &[u8] = b"GGUF and some more bytes of a model";

    /// Starts a server that answers each connection with the next response. Returns its URL and a
    /// channel with the request heads.
    fn server(answers: Vec<String>) -> (String, std::sync::mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/model.gguf", listener.local_addr().unwrap());
        let (send, asked) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut socket, _) = listener.accept().unwrap();
                let head: Vec<String> = BufReader::new(socket.try_clone().unwrap())
                    .lines()
                    .map_while(|line| line.ok().filter(|line| !line.is_empty()))
                    .collect();
                send.send(head.join("\n").to_lowercase()).unwrap();
                let _ = socket.write_all(answer.as_bytes());
            }
        });
        (url, asked)
    }

    fn ok(body: &str, length: usize) -> String {
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    fn text() -> &'static str {
        std::str::from_utf8(CONTENT).unwrap()
    }

    async fn pull(url: &str, target: &Path, sha256: &str) -> Result<()> {
        fetch(&Download { url, sha256, bytes: CONTENT.len() as u64, target }).await
    }

    fn pinned() -> String {
        base::text::hex(&Sha256::digest(CONTENT))
    }

    #[tokio::test]
    async fn an_interrupted_download_resumes_where_it_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model.gguf");
        let rest = &text()[10..];
        let partial = format!(
            "HTTP/1.1 206 Partial Content\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-range: bytes 10-{}/{}\r\n\r\n{rest}",
            rest.len(),
            CONTENT.len() - 1,
            CONTENT.len()
        );
        let (url, asked) = server(vec![ok(&text()[..10], CONTENT.len()), partial]);
        pull(&url, &target, &pinned()).await.unwrap();
        assert_eq!(fs::read(&target).unwrap(), CONTENT);
        assert!(!asked.recv().unwrap().contains("range:"));
        assert!(asked.recv().unwrap().contains("range: bytes=10-"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file is left");
    }

    #[tokio::test]
    async fn a_server_without_range_support_restarts_the_download() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model.gguf");
        fs::write(dir.path().join("model.gguf.part"), "some other bytes").unwrap();
        let (url, _asked) = server(vec![ok(text(), CONTENT.len())]);
        pull(&url, &target, &pinned()).await.unwrap();
        assert_eq!(fs::read(&target).unwrap(), CONTENT);
    }

    #[tokio::test]
    async fn a_file_with_a_wrong_hash_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model.gguf");
        let (url, _asked) = server(vec![ok(text(), CONTENT.len())]);
        let failure = pull(&url, &target, &"0".repeat(64)).await.unwrap_err();
        assert!(failure.to_string().contains("its SHA-256 is"), "{failure}");
        assert!(!target.exists() && !dir.path().join("model.gguf.part").exists());
    }

    #[tokio::test]
    async fn redirects_are_followed_and_a_missing_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model.gguf");
        let (url, _asked) = server(vec![ok(text(), CONTENT.len())]);
        let moved = format!(
            "HTTP/1.1 302 Found\r\nconnection: close\r\ncontent-length: 0\r\nlocation: {url}\r\n\r\n"
        );
        let missing = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let (first, _asked) = server(vec![moved, missing.to_owned()]);
        pull(&first, &target, &pinned()).await.unwrap();
        let failure = pull(&first, &dir.path().join("b"), &pinned()).await.unwrap_err();
        assert!(failure.to_string().contains("404"), "{failure}");
        assert!(!failure.hints.is_empty());
    }
}
