//! The client side of a host connection: concurrent requests, each with its own stream of
//! responses.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::wire::{
    Hello, HostChat, HostFault, HostFaultKind, HostRequest, HostRequestLine, HostResponse,
    HostResponseLine, LINE_LIMIT, UNEXPECTED, VERSION,
};

/// How often the greeting is tried.
const MAX_HELLO_ATTEMPTS: u32 = 3;

/// A connection to a host. Requests may be made concurrently.
#[derive(Debug)]
pub struct Connection {
    line: Arc<Line>,
    next: AtomicU64,
}

/// The responses to one request, in order. If it is dropped before the last one, a chat or embed
/// request is cancelled.
#[derive(Debug)]
pub struct ResponseStream {
    id: u64,
    line: Arc<Line>,
    rx: UnboundedReceiver<HostResponse>,
    finished: bool,
}

#[derive(Debug)]
struct Line {
    writer: Mutex<UnixStream>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    by_id: HashMap<u64, UnboundedSender<HostResponse>>,
    closed: bool,
}

impl Connection {
    /// Creates a connection on a connected socket.
    pub fn new(socket: UnixStream) -> io::Result<Connection> {
        let reader = socket.try_clone()?;
        let line = Arc::new(Line { writer: Mutex::new(socket), waiting: Mutex::default() });
        let shared = Arc::downgrade(&line);
        std::thread::Builder::new().name("model-host".into()).spawn(move || {
            for response in lines::<HostResponseLine>(reader) {
                let (Ok(response), Some(line)) = (response, shared.upgrade()) else { break };
                line.deliver(response);
            }
            if let Some(line) = shared.upgrade() {
                line.close();
            }
        })?;
        Ok(Connection { line, next: AtomicU64::new(1) })
    }

    /// Asks the host for its identity. If a host exits before it answers, a relay starts another,
    /// so the request is repeated; on a closed connection each attempt fails immediately.
    pub fn hello(&self) -> Result<Hello, HostFault> {
        for _ in 1..MAX_HELLO_ATTEMPTS {
            match self.try_hello() {
                Err(fault) if fault.kind == HostFaultKind::Broken => {}
                answer => return answer,
            }
        }
        self.try_hello()
    }

    fn try_hello(&self) -> Result<Hello, HostFault> {
        let mut responses = self.ask(HostRequest::Hello { version: VERSION });
        match responses.wait() {
            HostResponse::Hello(hello) if hello.version == VERSION => Ok(hello),
            HostResponse::Hello(hello) => {
                let what = format!(
                    "the running model host has protocol version {}, this g3 has version {VERSION}",
                    hello.version
                );
                let mut fault = HostFault::new(HostFaultKind::Rejected, what);
                fault.next.push(format!("kill {} (it is restarted automatically)", hello.pid));
                Err(fault)
            }
            HostResponse::Error(fault) => Err(fault),
            HostResponse::Text { .. }
            | HostResponse::Call { .. }
            | HostResponse::Progress { .. }
            | HostResponse::Done { .. }
            | HostResponse::Status(_)
            | HostResponse::Vectors(_) => Err(HostFault::new(HostFaultKind::Broken, UNEXPECTED)),
        }
    }

    /// Requests the next reply of a conversation.
    pub fn chat(&self, chat: HostChat) -> ResponseStream {
        self.ask(HostRequest::Chat(chat))
    }

    /// Sends a request. On a closed connection the response is a `Broken` fault.
    pub fn ask(&self, request: HostRequest) -> ResponseStream {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = unbounded_channel();
        let is_streamed = matches!(request, HostRequest::Chat(_) | HostRequest::Embed { .. });
        let mut waiting = lock(&self.line.waiting);
        if waiting.closed {
            let _ = tx.send(HostResponse::Error(broken()));
        } else {
            waiting.by_id.insert(id, tx);
        }
        drop(waiting);
        if self.line.send(&HostRequestLine { id, what: request }).is_err() {
            self.line.close();
        }
        ResponseStream { id, line: Arc::clone(&self.line), rx, finished: !is_streamed }
    }

    /// Returns whether the other end is closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.line.waiting).closed
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // This also ends the reader thread.
        let _ = lock(&self.line.writer).shutdown(std::net::Shutdown::Both);
    }
}

impl ResponseStream {
    /// Returns the next response; a `Broken` fault if the connection is lost.
    pub async fn next(&mut self) -> HostResponse {
        let response = self.rx.recv().await;
        self.record(response)
    }

    /// Like [`ResponseStream::next`], for callers outside a runtime.
    pub fn wait(&mut self) -> HostResponse {
        // Not `blocking_recv`: it panics on a thread that drives a runtime, which is where g3 opens
        // its provider.
        let response = block_on(self.rx.recv());
        self.record(response)
    }

    fn record(&mut self, response: Option<HostResponse>) -> HostResponse {
        let response = response.unwrap_or_else(|| HostResponse::Error(broken()));
        self.finished |= is_last(&response);
        response
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if !self.finished {
            lock(&self.line.waiting).by_id.remove(&self.id);
            let _ = self
                .line
                .send(&HostRequestLine { id: 0, what: HostRequest::Cancel { chat: self.id } });
        }
    }
}

impl Line {
    fn send(&self, request: &HostRequestLine) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(request)?;
        bytes.push(b'\n');
        lock(&self.writer).write_all(&bytes)
    }

    fn deliver(&self, response: HostResponseLine) {
        let mut waiting = lock(&self.waiting);
        let last = is_last(&response.what);
        if let Some(listener) = waiting.by_id.get(&response.id) {
            let _ = listener.send(response.what);
        }
        if last {
            waiting.by_id.remove(&response.id);
        }
    }

    fn close(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        waiting.by_id.clear();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Returns whether this response is the last one of its request.
pub fn is_last(response: &HostResponse) -> bool {
    match response {
        HostResponse::Text { .. } | HostResponse::Call { .. } | HostResponse::Progress { .. } => {
            false
        }
        HostResponse::Hello(_) | HostResponse::Done { .. } | HostResponse::Error(_) => true,
        HostResponse::Status(_) | HostResponse::Vectors(_) => true,
    }
}

/// Parses the JSON lines of a stream, up to its end. A line longer than [`LINE_LIMIT`] is an error
/// and ends it.
pub fn lines<T: serde::de::DeserializeOwned>(
    stream: impl Read,
) -> impl Iterator<Item = io::Result<T>> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    std::iter::from_fn(move || {
        loop {
            line.clear();
            let limit = LINE_LIMIT as u64 + 1;
            match reader.by_ref().take(limit).read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(n) if n > LINE_LIMIT => {
                    return Some(Err(io::Error::other("a line is too long")));
                }
                Ok(_) if line.last() != Some(&b'\n') => return None, // the stream ended within a line
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Some(Err(e)),
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Some(serde_json::from_slice(&line).map_err(io::Error::from));
        }
    })
}

fn broken() -> HostFault {
    HostFault::new(HostFaultKind::Broken, "the model host exited before its reply was complete")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    crate::sync::lock(mutex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_host::wire::{HostStopReason, ReplyUsage, ToolCallMode};

    /// Starts a host that answers each request as the script says.
    fn host(
        answer: impl Fn(HostRequestLine) -> Vec<HostResponseLine> + Send + 'static,
    ) -> Connection {
        let (ours, host_end) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut writer = host_end.try_clone().unwrap();
            for request in lines::<HostRequestLine>(host_end) {
                for response in answer(request.unwrap()) {
                    writeln!(writer, "{}", serde_json::to_string(&response).unwrap()).unwrap();
                }
            }
        });
        Connection::new(ours).unwrap()
    }

    fn chat() -> HostChat {
        HostChat {
            conversation: "c".into(),
            mode: ToolCallMode::Free,
            max_tokens: 1,
            ..HostChat::default()
        }
    }

    #[test]
    fn responses_are_matched_to_their_requests() {
        let end =
            || HostResponse::Done { stop: HostStopReason::Done, usage: ReplyUsage::default() };
        let connection = host(move |request| {
            let text = request.id.to_string();
            vec![
                HostResponseLine { id: 99, what: end() },
                HostResponseLine { id: request.id, what: HostResponse::Text { text } },
                HostResponseLine { id: request.id, what: end() },
            ]
        });
        let (mut one, mut two) = (connection.chat(chat()), connection.chat(chat()));
        assert_eq!(two.wait(), HostResponse::Text { text: "2".into() });
        assert_eq!(one.wait(), HostResponse::Text { text: "1".into() });
        assert_eq!((one.wait(), two.wait()), (end(), end()));
    }

    #[test]
    fn a_dropped_chat_is_cancelled_and_a_lost_host_is_a_fault() {
        let (ours, host_end) = UnixStream::pair().unwrap();
        let connection = Connection::new(ours).unwrap();
        drop(connection.chat(chat()));
        let mut request = lines::<HostRequestLine>(host_end.try_clone().unwrap());
        assert!(matches!(request.next().unwrap().unwrap().what, HostRequest::Chat(_)));
        assert_eq!(request.next().unwrap().unwrap().what, HostRequest::Cancel { chat: 1 });
        drop(connection.ask(HostRequest::Embed { texts: vec!["x".into()] }));
        assert!(matches!(request.next().unwrap().unwrap().what, HostRequest::Embed { .. }));
        assert_eq!(request.next().unwrap().unwrap().what, HostRequest::Cancel { chat: 2 });
        let mut waiting = connection.chat(chat());
        host_end.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(
            matches!(waiting.wait(), HostResponse::Error(f) if f.kind == HostFaultKind::Broken)
        );
        assert!(matches!(connection.chat(chat()).wait(), HostResponse::Error(_)));
        assert!(connection.is_closed());
    }
}
