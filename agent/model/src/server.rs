//! Listens for clients, implements the protocol, and stops the host when it is no longer used.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::lock::Lock;
use base::model_host::connection::{is_last, lines};
use base::model_host::socket_path::{self, HostPaths};
use base::model_host::wire::{
    Hello, HostFault, HostFaultKind, HostRequest, HostRequestLine, HostResponse, HostResponseLine,
    HostStatus, VERSION,
};

use crate::command::{EmbedRequest, EngineCommand};
use crate::embeddings;
use crate::engine;
use crate::options::Serve;
use crate::preflight::{self, CheckedModel};

/// Interval at which a host that waits for another one to exit checks whether that one is still
/// listening.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time that an exiting host waits for clients to read their last messages.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// An event of the host.
enum ServerEvent {
    Opened(UnixStream),
    Closed(u64),
    Asked(u64, HostRequestLine),
    /// The last line of a chat or an embedding was sent.
    Answered(u64, u64),
    Loaded,
    Ended(Result<()>),
}

/// The host's state: all events are handled in order on one thread.
struct Host {
    hello: Hello,
    idle: Duration,
    engine: Sender<EngineCommand>,
    events: Sender<ServerEvent>,
    writers: std::collections::HashMap<u64, Sender<HostResponseLine>>,
    chats: HashSet<(u64, u64)>,
    next: u64,
    loaded: bool,
    idle_since: Instant,
    socket: PathBuf,
    /// Each writer thread holds a clone of the sender.
    writing: (Sender<()>, Receiver<()>),
}

/// Serves a model until it is no longer used. `ready` is called once clients can connect.
pub fn run(serve: &Serve, ready: impl FnOnce(&Hello)) -> Result<()> {
    // The lock first: a host that is still exiting holds the memory that this one needs.
    let (socket, _lock) = claim(serve)?;
    let checked = preflight::check(serve)?;
    let listener = socket_path::listen(&socket)
        .or_fail(|| format!("cannot listen at `{}`", socket.display()))?;
    let (events, event_rx) = channel();
    let (engine, commands) = channel();
    let hello = hello(&checked);
    ready(&hello);
    let (engine_options, loaded) = (serve.clone(), events.clone());
    let work = move || {
        let loaded = || drop(loaded.send(ServerEvent::Loaded));
        engine::run(&engine_options, checked, &commands, loaded)
    };
    start_engine(work, events.clone())?;
    accept(listener, events.clone())?;
    let mut host = Host::new(hello, Duration::from_secs(serve.idle), engine, events, socket);
    let result = host.run(&event_rx);
    host.finish();
    result
}

fn claim(serve: &Serve) -> Result<(PathBuf, Option<Lock>)> {
    if let Some(socket) = &serve.socket {
        return Ok((socket.clone(), None));
    }
    let paths = HostPaths::of(&serve.model)?;
    let (tx, rx) = channel();
    let lock = paths.lock();
    let take_lock = move || drop(tx.send(Lock::take(&lock)));
    thread::Builder::new()
        .name("lock".into())
        .spawn(take_lock)
        .or_fail(|| "cannot start a thread")?;
    loop {
        match rx.recv_timeout(POLL_INTERVAL) {
            Ok(lock) => {
                let lock = lock.or_fail(|| "cannot lock the model host's place")?;
                return Ok((paths.socket(), Some(lock)));
            }
            // A host that holds the lock and does not listen is about to exit.
            Err(_) if socket_path::connect(&paths.socket()).is_err() => {}
            Err(_) => {
                return Err(Failure::refused("another host serves this model already")
                    .because(format!("it listens at {}", paths.socket().display())));
            }
        }
    }
}

fn hello(checked: &CheckedModel) -> Hello {
    Hello {
        version: VERSION,
        model: checked.head.name.clone(),
        parameters: checked.head.parameters,
        context: u64::from(checked.context),
        pid: std::process::id(),
        embedder: embeddings::name(&checked.head),
    }
}

/// Runs the engine on a separate thread. Its end is reported as an event, even if it panics.
fn start_engine(
    work: impl FnOnce() -> Result<()> + Send + 'static,
    events: Sender<ServerEvent>,
) -> Result<()> {
    let work = move || {
        let result = catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Failure::failed("the model host broke")));
        drop(events.send(ServerEvent::Ended(result)));
    };
    thread::Builder::new().name("engine".into()).spawn(work).or_fail(|| "cannot start a thread")?;
    Ok(())
}

fn accept(listener: UnixListener, events: Sender<ServerEvent>) -> Result<()> {
    let work = move || {
        for socket in listener.incoming().flatten() {
            if events.send(ServerEvent::Opened(socket)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("accept".into()).spawn(work).or_fail(|| "cannot start a thread")?;
    Ok(())
}

impl Host {
    fn new(
        hello: Hello,
        idle: Duration,
        engine: Sender<EngineCommand>,
        events: Sender<ServerEvent>,
        socket: PathBuf,
    ) -> Host {
        Host {
            hello,
            idle,
            engine,
            events,
            writers: Default::default(),
            chats: HashSet::new(),
            next: 1,
            loaded: false,
            idle_since: Instant::now(),
            socket,
            writing: channel(),
        }
    }

    fn run(&mut self, event_rx: &Receiver<ServerEvent>) -> Result<()> {
        loop {
            let event = if self.chats.is_empty() && !self.idle.is_zero() {
                match event_rx.recv_timeout(self.idle.saturating_sub(self.idle_since.elapsed())) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            } else {
                match event_rx.recv() {
                    Ok(event) => event,
                    Err(_) => break,
                }
            };
            match event {
                ServerEvent::Opened(socket) => drop(self.open(socket)),
                ServerEvent::Closed(connection) => {
                    self.close(connection);
                    if self.idle.is_zero() && self.writers.is_empty() {
                        break;
                    }
                }
                ServerEvent::Answered(connection, id) => self.handle_answered(connection, id),
                ServerEvent::Loaded => self.loaded = true,
                ServerEvent::Ended(result) => {
                    self.remove_socket();
                    self.fail_all_clients(&result, event_rx);
                    return result;
                }
                ServerEvent::Asked(connection, asked) => self.handle_request(connection, asked),
            }
        }
        self.end(event_rx)
    }

    /// Removes the socket of a host that is exiting. New clients start the next host, which waits
    /// for the lock.
    fn remove_socket(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Lets the engine release its memory and files.
    fn end(&mut self, event_rx: &Receiver<ServerEvent>) -> Result<()> {
        self.remove_socket();
        let _ = self.engine.send(EngineCommand::Stop);
        loop {
            match event_rx.recv() {
                Ok(ServerEvent::Ended(ended)) => return ended,
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Waits until all messages are written, but not for clients that do not read.
    fn finish(self) {
        let Host { writers, engine, writing: (writing_tx, written_rx), .. } = self;
        drop((writers, engine, writing_tx));
        let _ = written_rx.recv_timeout(WRITE_TIMEOUT); // an error means that all writer threads have ended
    }

    fn open(&mut self, socket: UnixStream) -> io::Result<()> {
        let connection = self.next;
        self.next += 1;
        let reader = socket.try_clone()?;
        let (tx, rx) = channel::<HostResponseLine>();
        let events = self.events.clone();
        let writing = self.writing.0.clone();
        thread::Builder::new().name("writer".into()).spawn(move || {
            let _writing = writing;
            write_lines(socket, &rx, |id| drop(events.send(ServerEvent::Answered(connection, id))));
        })?;
        let events = self.events.clone();
        thread::Builder::new().name("reader".into()).spawn(move || {
            for request_line in lines::<HostRequestLine>(reader) {
                // An invalid request ends the connection: the client is not one of ours.
                let Ok(request_line) = request_line else { break };
                if events.send(ServerEvent::Asked(connection, request_line)).is_err() {
                    return;
                }
            }
            drop(events.send(ServerEvent::Closed(connection)));
        })?;
        self.writers.insert(connection, tx);
        Ok(())
    }

    fn close(&mut self, connection: u64) {
        self.writers.remove(&connection);
        self.chats.retain(|(owner, _)| *owner != connection);
        self.idle_since = Instant::now();
        let _ = self.engine.send(EngineCommand::Closed(connection));
    }

    fn handle_answered(&mut self, connection: u64, id: u64) {
        self.chats.remove(&(connection, id));
        self.idle_since = Instant::now();
    }

    fn handle_request(&mut self, connection: u64, request_line: HostRequestLine) {
        self.idle_since = Instant::now();
        let id = request_line.id;
        match request_line.what {
            HostRequest::Hello { version: VERSION } => {
                self.send(connection, id, HostResponse::Hello(self.hello.clone()))
            }
            HostRequest::Hello { version } => {
                let what = format!("the host speaks version {VERSION}, not {version}");
                self.send(
                    connection,
                    id,
                    HostResponse::Error(HostFault::new(HostFaultKind::Rejected, what)),
                );
            }
            HostRequest::Chat(chat) => {
                let Some(reply_tx) = self.writers.get(&connection).cloned() else { return };
                self.chats.insert((connection, id));
                let chat = Box::new(chat);
                let _ = self.engine.send(EngineCommand::Chat { connection, id, chat, reply_tx });
            }
            HostRequest::Embed { texts } => {
                let Some(reply_tx) = self.writers.get(&connection).cloned() else { return };
                self.chats.insert((connection, id));
                let request = EmbedRequest { connection, id, texts, reply_tx };
                let _ = self.engine.send(EngineCommand::Embed(request));
            }
            HostRequest::Unknown => {
                let what = "the model host is of an earlier version and does not know this request";
                self.send(
                    connection,
                    id,
                    HostResponse::Error(HostFault::new(HostFaultKind::Rejected, what)),
                );
            }
            HostRequest::Cancel { chat } => {
                let _ = self.engine.send(EngineCommand::Cancel { connection, chat });
                self.handle_answered(connection, chat);
            }
            HostRequest::Status => {
                let status = self.status();
                self.send(connection, id, HostResponse::Status(status));
            }
        }
    }

    fn status(&self) -> HostStatus {
        let (tx, rx) = channel();
        let is_sent = self.loaded && self.engine.send(EngineCommand::Count(tx)).is_ok();
        // The engine answers between two batches.
        let load = is_sent.then(|| rx.recv().ok()).flatten();
        let chats = load.map_or(self.chats.len(), |load| load.chats);
        let load = load.unwrap_or_default();
        HostStatus {
            loaded: self.loaded,
            connections: self.writers.len() as u64,
            chats: chats as u64,
            in_memory: load.in_memory as u64,
            on_disk: load.on_disk as u64,
            embeds: load.embeds as u64,
            threads: load.threads,
        }
    }

    fn send(&self, connection: u64, id: u64, what: HostResponse) {
        if let Some(writer) = self.writers.get(&connection) {
            let _ = writer.send(HostResponseLine { id, what });
        }
    }

    /// Reports the failure of the engine to all waiting clients, including those that sent a
    /// request just now.
    fn fail_all_clients(&mut self, result: &Result<()>, event_rx: &Receiver<ServerEvent>) {
        let Err(failure) = result else { return };
        for event in event_rx.try_iter() {
            if let ServerEvent::Asked(connection, HostRequestLine { id, what }) = event
                && matches!(what, HostRequest::Chat(_) | HostRequest::Embed { .. })
            {
                self.chats.insert((connection, id));
            }
        }
        // A model that failed to load will fail again; one that was loaded may work again.
        let kind = if self.loaded { HostFaultKind::Broken } else { HostFaultKind::Rejected };
        for (connection, id) in &self.chats {
            let mut fault = HostFault::new(kind, failure.what.clone());
            fault.why = failure.reason();
            fault.next.clone_from(&failure.hints);
            self.send(*connection, *id, HostResponse::Error(fault));
        }
    }
}

fn write_lines(mut socket: UnixStream, rx: &Receiver<HostResponseLine>, on_answered: impl Fn(u64)) {
    let mut is_closed = false;
    for response_line in rx {
        let last = is_last(&response_line.what);
        let Ok(mut line) = serde_json::to_vec(&response_line) else { continue };
        line.push(b'\n');
        // After the client disconnected, the rest is only counted.
        is_closed = is_closed || socket.write_all(&line).is_err();
        if last {
            on_answered(response_line.id);
        }
    }
    let _ = socket.shutdown(std::net::Shutdown::Both);
}

#[cfg(test)]
mod tests;
