//! Listens, speaks the wire, and ends the host when nobody needs it.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::host::connection::{is_last, lines};
use base::host::place::{self, Place};
use base::host::wire::{Ask, Asked, Fault, FaultKind, Hello, Status, Tell, Told, VERSION};
use base::lock::Lock;

use crate::command::{Command, Wish};
use crate::embed;
use crate::engine;
use crate::guard::{self, Checked};
use crate::options::Serve;

/// How often a host that waits for another's end looks whether that one answers after all.
const LOOK: Duration = Duration::from_millis(200);
/// So long an ending host waits for clients to take what was said to them.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Something that happened to the host.
enum Event {
    Opened(UnixStream),
    Closed(u64),
    Asked(u64, Asked),
    /// A chat or an embed was answered to its end.
    Answered(u64, u64),
    Loaded,
    Ended(Result<()>),
}

/// The host's state: everything is decided on one thread, in the order of the events.
struct Host {
    hello: Hello,
    idle: Duration,
    engine: Sender<Command>,
    events: Sender<Event>,
    writers: std::collections::HashMap<u64, Sender<Told>>,
    chats: HashSet<(u64, u64)>,
    next: u64,
    loaded: bool,
    quiet_since: Instant,
    socket: PathBuf,
    /// Each thread that writes holds a copy of the sender.
    writing: (Sender<()>, Receiver<()>),
}

/// Serves a model until nobody needs it. `ready` is called once clients can connect.
pub fn run(serve: &Serve, ready: impl FnOnce(&Hello)) -> Result<()> {
    // First the place: a host that still ends has the memory that this one is about to need.
    let (socket, _lock) = place(serve)?;
    let checked = guard::check(serve)?;
    let listener =
        place::listen(&socket).or_fail(|| format!("cannot listen at `{}`", socket.display()))?;
    let (events, happened) = channel();
    let (engine, commands) = channel();
    let hello = hello(&checked);
    ready(&hello);
    let (told, loaded) = (serve.clone(), events.clone());
    let work = move || {
        let loaded = || drop(loaded.send(Event::Loaded));
        engine::run(&told, checked, &commands, loaded)
    };
    start_engine(work, events.clone())?;
    accept(listener, events.clone())?;
    let mut host = Host::new(hello, Duration::from_secs(serve.idle), engine, events, socket);
    let ended = host.run(&happened);
    host.finish();
    ended
}

fn place(serve: &Serve) -> Result<(PathBuf, Option<Lock>)> {
    if let Some(socket) = &serve.socket {
        return Ok((socket.clone(), None));
    }
    let place = Place::of(&serve.model)?;
    let (tell, taken) = channel();
    let lock = place.lock();
    let take = move || drop(tell.send(Lock::take(&lock)));
    thread::Builder::new().name("lock".into()).spawn(take).or_fail(|| "cannot start a thread")?;
    loop {
        match taken.recv_timeout(LOOK) {
            Ok(lock) => {
                let lock = lock.or_fail(|| "cannot lock the model host's place")?;
                return Ok((place.socket(), Some(lock)));
            }
            // Whoever holds the lock and does not listen is about to end.
            Err(_) if place::connect(&place.socket()).is_err() => {}
            Err(_) => {
                return Err(Failure::refused("another host serves this model already")
                    .because(format!("it listens at {}", place.socket().display())));
            }
        }
    }
}

fn hello(checked: &Checked) -> Hello {
    Hello {
        version: VERSION,
        model: checked.head.name.clone(),
        parameters: checked.head.parameters,
        context: u64::from(checked.context),
        pid: std::process::id(),
        embedder: embed::name(&checked.head),
    }
}

/// Works on a thread of its own; its end is heard of, also when it panics.
fn start_engine(
    work: impl FnOnce() -> Result<()> + Send + 'static,
    events: Sender<Event>,
) -> Result<()> {
    let work = move || {
        let ended = catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Failure::failed("the model host broke")));
        drop(events.send(Event::Ended(ended)));
    };
    thread::Builder::new().name("engine".into()).spawn(work).or_fail(|| "cannot start a thread")?;
    Ok(())
}

fn accept(listener: UnixListener, events: Sender<Event>) -> Result<()> {
    let work = move || {
        for socket in listener.incoming().flatten() {
            if events.send(Event::Opened(socket)).is_err() {
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
        engine: Sender<Command>,
        events: Sender<Event>,
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
            quiet_since: Instant::now(),
            socket,
            writing: channel(),
        }
    }

    fn run(&mut self, happened: &Receiver<Event>) -> Result<()> {
        loop {
            let event = if self.chats.is_empty() && !self.idle.is_zero() {
                match happened.recv_timeout(self.idle.saturating_sub(self.quiet_since.elapsed())) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            } else {
                match happened.recv() {
                    Ok(event) => event,
                    Err(_) => break,
                }
            };
            match event {
                Event::Opened(socket) => drop(self.open(socket)),
                Event::Closed(connection) => {
                    self.close(connection);
                    if self.idle.is_zero() && self.writers.is_empty() {
                        break;
                    }
                }
                Event::Answered(connection, id) => self.answered(connection, id),
                Event::Loaded => self.loaded = true,
                Event::Ended(ended) => {
                    self.hide();
                    self.tell_all(&ended, happened);
                    return ended;
                }
                Event::Asked(connection, asked) => self.asked(connection, asked),
            }
        }
        self.end(happened)
    }

    /// Nobody may find a host that is ending: whoever comes now starts the next one, which waits
    /// for our lock.
    fn hide(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Lets the engine give its memory and files back.
    fn end(&mut self, happened: &Receiver<Event>) -> Result<()> {
        self.hide();
        let _ = self.engine.send(Command::Stop);
        loop {
            match happened.recv() {
                Ok(Event::Ended(ended)) => return ended,
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Waits until all that was said is written, but not for clients that take nothing.
    fn finish(self) {
        let Host { writers, engine, writing: (writing, written), .. } = self;
        drop((writers, engine, writing));
        let _ = written.recv_timeout(LAST_WORDS); // an error: no thread is left that writes
    }

    fn open(&mut self, socket: UnixStream) -> io::Result<()> {
        let connection = self.next;
        self.next += 1;
        let reader = socket.try_clone()?;
        let (tell, told) = channel::<Told>();
        let events = self.events.clone();
        let writing = self.writing.0.clone();
        thread::Builder::new().name("writer".into()).spawn(move || {
            let _writing = writing;
            write_lines(socket, &told, |id| drop(events.send(Event::Answered(connection, id))));
        })?;
        let events = self.events.clone();
        thread::Builder::new().name("reader".into()).spawn(move || {
            for asked in lines::<Asked>(reader) {
                // What is no request ends the connection: its sender is not one of ours.
                let Ok(asked) = asked else { break };
                if events.send(Event::Asked(connection, asked)).is_err() {
                    return;
                }
            }
            drop(events.send(Event::Closed(connection)));
        })?;
        self.writers.insert(connection, tell);
        Ok(())
    }

    fn close(&mut self, connection: u64) {
        self.writers.remove(&connection);
        self.chats.retain(|(owner, _)| *owner != connection);
        self.quiet_since = Instant::now();
        let _ = self.engine.send(Command::Closed(connection));
    }

    fn answered(&mut self, connection: u64, id: u64) {
        self.chats.remove(&(connection, id));
        self.quiet_since = Instant::now();
    }

    fn asked(&mut self, connection: u64, asked: Asked) {
        self.quiet_since = Instant::now();
        let id = asked.id;
        match asked.what {
            Ask::Hello { version: VERSION } => {
                self.tell(connection, id, Tell::Hello(self.hello.clone()))
            }
            Ask::Hello { version } => {
                let what = format!("the host speaks version {VERSION}, not {version}");
                self.tell(connection, id, Tell::Error(Fault::new(FaultKind::Rejected, what)));
            }
            Ask::Chat(chat) => {
                let Some(hears) = self.writers.get(&connection).cloned() else { return };
                self.chats.insert((connection, id));
                let chat = Box::new(chat);
                let _ = self.engine.send(Command::Chat { connection, id, chat, hears });
            }
            Ask::Embed { texts } => {
                let Some(hears) = self.writers.get(&connection).cloned() else { return };
                self.chats.insert((connection, id));
                let wish = Wish { connection, id, texts, hears };
                let _ = self.engine.send(Command::Embed(wish));
            }
            Ask::Unknown => {
                let what = "the model host is of an earlier version and does not know this request";
                self.tell(connection, id, Tell::Error(Fault::new(FaultKind::Rejected, what)));
            }
            Ask::Cancel { chat } => {
                let _ = self.engine.send(Command::Cancel { connection, chat });
                self.answered(connection, chat);
            }
            Ask::Status => {
                let status = self.status();
                self.tell(connection, id, Tell::Status(status));
            }
        }
    }

    fn status(&self) -> Status {
        let (tell, count) = channel();
        let asked = self.loaded && self.engine.send(Command::Count(tell)).is_ok();
        // The engine answers between two batches.
        let counted = asked.then(|| count.recv().ok()).flatten();
        let chats = counted.map_or(self.chats.len(), |count| count.chats);
        let counted = counted.unwrap_or_default();
        Status {
            loaded: self.loaded,
            connections: self.writers.len() as u64,
            chats: chats as u64,
            in_memory: counted.in_memory as u64,
            on_disk: counted.on_disk as u64,
            embeds: counted.embeds as u64,
            threads: counted.threads,
        }
    }

    fn tell(&self, connection: u64, id: u64, what: Tell) {
        if let Some(writer) = self.writers.get(&connection) {
            let _ = writer.send(Told { id, what });
        }
    }

    /// The engine ended by itself: everybody who waits hears why, and who asked just now too.
    fn tell_all(&mut self, ended: &Result<()>, happened: &Receiver<Event>) {
        let Err(failure) = ended else { return };
        for event in happened.try_iter() {
            if let Event::Asked(connection, Asked { id, what }) = event
                && matches!(what, Ask::Chat(_) | Ask::Embed { .. })
            {
                self.chats.insert((connection, id));
            }
        }
        // What cannot be loaded will not be loaded next time; what was loaded may work again.
        let kind = if self.loaded { FaultKind::Broken } else { FaultKind::Rejected };
        for (connection, id) in &self.chats {
            let mut fault = Fault::new(kind, failure.what.clone());
            fault.why = failure.reason();
            fault.next.clone_from(&failure.next);
            self.tell(*connection, *id, Tell::Error(fault));
        }
    }
}

fn write_lines(mut socket: UnixStream, told: &Receiver<Told>, answered: impl Fn(u64)) {
    let mut gone = false;
    for told in told {
        let last = is_last(&told.what);
        let Ok(mut line) = serde_json::to_vec(&told) else { continue };
        line.push(b'\n');
        // Once the client is gone the rest is only counted.
        gone = gone || socket.write_all(&line).is_err();
        if last {
            answered(told.id);
        }
    }
    let _ = socket.shutdown(std::net::Shutdown::Both);
}

#[cfg(test)]
mod tests;
