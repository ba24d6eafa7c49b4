//! The control socket of a supervisor: one JSON line in, one out, with a token that the box of the
//! agent cannot read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::host::place::with_short_name;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream as Stream};
use tokio::sync::{mpsc, oneshot};

/// Bytes of one request: a text to send may be long.
const LONGEST: u64 = 4 << 20;
/// How long a supervisor may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What can be asked of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Say something to the agent.
    Send {
        /// What is said.
        text: String,
    },
    /// End the session's run.
    Stop,
    /// Decide a request for permission.
    Answer {
        /// Its number; the only open one when absent.
        n: Option<u32>,
        /// Whether it may.
        allow: bool,
        /// Whether that holds for further requests of its kind.
        #[serde(default)]
        always: bool,
    },
    /// Whether it is there.
    Status,
}

/// A request on the wire.
#[derive(Serialize, Deserialize)]
struct Signed {
    token: String,
    #[serde(flatten)]
    request: Request,
}

/// The answer on the wire.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// It was done.
    Done,
    /// The supervisor no longer takes anything in: as good as gone.
    Ending,
    /// It was not done, for this reason.
    Refused(String),
}

/// A request and where its answer goes.
pub type Asked = (Request, oneshot::Sender<std::result::Result<(), String>>);

/// Opens the socket in a session's directory and hands on what comes in.
pub fn serve(dir: &Path, tell: mpsc::UnboundedSender<Asked>) -> io::Result<()> {
    let token = fresh_token()?;
    base::files::replace(&dir.join("token"), token.as_bytes())?;
    let socket = dir.join("control.sock");
    match std::fs::remove_file(&socket) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let listener = with_short_name(&socket, |name| UnixListener::bind(name))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(attend(stream, token.clone(), tell.clone()));
        }
    });
    Ok(())
}

async fn attend(stream: Stream, token: String, tell: mpsc::UnboundedSender<Asked>) {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut read = tokio::io::BufReader::new(read.take(LONGEST));
    let reply = match read.read_line(&mut line).await {
        Ok(_) => match serde_json::from_str::<Signed>(&line) {
            Ok(signed) if signed.token == token => passed_on(signed.request, &tell).await,
            Ok(_) => Reply::Refused("the token is wrong".to_owned()),
            Err(e) => Reply::Refused(format!("the request cannot be read: {e}")),
        },
        Err(e) => Reply::Refused(e.to_string()),
    };
    if let Ok(mut bytes) = serde_json::to_vec(&reply) {
        bytes.push(b'\n');
        let _ = write.write_all(&bytes).await;
    }
}

async fn passed_on(request: Request, tell: &mpsc::UnboundedSender<Asked>) -> Reply {
    let (answer, answered) = oneshot::channel();
    if tell.send((request, answer)).is_err() {
        return Reply::Ending;
    }
    match answered.await {
        Ok(Ok(())) => Reply::Done,
        Ok(Err(why)) => Reply::Refused(why),
        Err(_) => Reply::Ending,
    }
}

/// Asks the supervisor of a session; `false` when nobody listens.
pub fn ask(dir: &Path, request: Request) -> Result<bool> {
    let Ok(token) = std::fs::read_to_string(dir.join("token")) else { return Ok(false) };
    let stream = with_short_name(&dir.join("control.sock"), |name| UnixStream::connect(name));
    let Ok(mut stream) = stream else { return Ok(false) };
    let fail = || "the supervisor does not answer";
    stream.set_read_timeout(Some(PATIENCE)).or_fail(fail)?;
    stream.set_write_timeout(Some(PATIENCE)).or_fail(fail)?;
    let mut line = serde_json::to_vec(&Signed { token, request }).or_fail(fail)?;
    line.push(b'\n');
    stream.write_all(&line).or_fail(fail)?;
    let mut answer = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut answer).or_fail(fail)?;
    if answer.is_empty() {
        return Ok(false);
    }
    match serde_json::from_str(&answer).or_fail(fail)? {
        Reply::Done => Ok(true),
        Reply::Ending => Ok(false),
        Reply::Refused(why) => Err(Failure::refused("the supervisor refused").because(why)),
    }
}

fn fresh_token() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn only_who_knows_the_token_is_heard() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("d".repeat(120));
        std::fs::create_dir(&dir).unwrap();
        assert!(!ask(&dir, Request::Stop).unwrap(), "nobody listens yet");
        let (tell, mut asked) = mpsc::unbounded_channel();
        serve(&dir, tell).unwrap();
        let there = dir.clone();
        let caller = tokio::task::spawn_blocking(move || ask(&there, Request::Stop));
        let (request, answer) = asked.recv().await.unwrap();
        assert_eq!(request, Request::Stop);
        answer.send(Ok(())).unwrap();
        assert!(caller.await.unwrap().unwrap());
        std::fs::write(dir.join("token"), "guessed").unwrap();
        let refused = tokio::task::spawn_blocking(move || ask(&dir, Request::Stop)).await.unwrap();
        assert!(refused.unwrap_err().why.unwrap().contains("token"));
    }
}
