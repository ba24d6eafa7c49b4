//! Listens, speaks the wire, and ends the host when nobody needs it.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::host::connection::{is_last, lines};
use base::host::place::{self, Place};
use base::host::wire::{Ask, Asked, Fault, FaultKind, Hello, Status, Tell, Told, VERSION};
use base::lock::Lock;

use crate::engine::{self, Command};
use crate::guard::{self, Checked};
use crate::options::Serve;

/// Something that happened to the host.
enum Event {
    Opened(UnixStream),
    Closed(u64),
    Asked(u64, Asked),
    /// A chat was answered to its end.
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
}

/// Serves a model until nobody needs it. `ready` is called once clients can connect.
pub fn run(serve: &Serve, ready: impl FnOnce(&Hello)) -> Result<()> {
    let checked = guard::check(serve)?;
    let (socket, _lock) = place(serve)?;
    let listener =
        place::listen(&socket).or_fail(|| format!("cannot listen at `{}`", socket.display()))?;
    let (events, happened) = channel();
    let (engine, commands) = channel();
    let hello = hello(&checked);
    ready(&hello);
    start_engine(serve, checked, commands, events.clone())?;
    accept(listener, events.clone())?;
    let mut host = Host {
        hello,
        idle: Duration::from_secs(serve.idle),
        engine,
        events,
        writers: Default::default(),
        chats: HashSet::new(),
        next: 1,
        loaded: false,
        quiet_since: Instant::now(),
    };
    let ended = host.run(&happened);
    // Nobody may find a host that is ending: whoever comes now starts the next one.
    let _ = std::fs::remove_file(&socket);
    ended
}

fn place(serve: &Serve) -> Result<(PathBuf, Option<Lock>)> {
    if let Some(socket) = &serve.socket {
        return Ok((socket.clone(), None));
    }
    let place = Place::of(&serve.model)?;
    let lock = Lock::try_take(&place.lock()).or_fail(|| "cannot lock the model host's place")?;
    let Some(lock) = lock else {
        return Err(Failure::refused("another host serves this model already")
            .because(format!("it listens at {}", place.socket().display())));
    };
    Ok((place.socket(), Some(lock)))
}

fn hello(checked: &Checked) -> Hello {
    Hello {
        version: VERSION,
        model: checked.head.name.clone(),
        parameters: checked.head.parameters,
        context: u64::from(checked.context),
        pid: std::process::id(),
    }
}

fn start_engine(
    serve: &Serve,
    checked: Checked,
    commands: Receiver<Command>,
    events: Sender<Event>,
) -> Result<()> {
    let serve = serve.clone();
    let work = move || {
        let loaded = || drop(events.send(Event::Loaded));
        let ended = engine::run(&serve, checked, &commands, loaded);
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
                    self.tell_all(&ended);
                    return ended;
                }
                Event::Asked(connection, asked) if asked.what == Ask::Shutdown => {
                    self.tell(connection, asked.id, Tell::Bye);
                    break;
                }
                Event::Asked(connection, asked) => self.asked(connection, asked),
            }
        }
        self.end(happened)
    }

    /// Lets the engine give its memory and files back.
    fn end(&mut self, happened: &Receiver<Event>) -> Result<()> {
        let _ = self.engine.send(Command::Stop);
        loop {
            match happened.recv() {
                Ok(Event::Ended(ended)) => return ended,
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
    }

    fn open(&mut self, socket: UnixStream) -> io::Result<()> {
        let connection = self.next;
        self.next += 1;
        let reader = socket.try_clone()?;
        let (tell, told) = channel::<Told>();
        let events = self.events.clone();
        thread::Builder::new().name("writer".into()).spawn(move || {
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
            Ask::Cancel { chat } => {
                let _ = self.engine.send(Command::Cancel { connection, chat });
                self.answered(connection, chat);
            }
            Ask::Status => {
                let status = self.status();
                self.tell(connection, id, Tell::Status(status));
            }
            Ask::Shutdown => {} // seen by the caller
        }
    }

    fn status(&self) -> Status {
        let (tell, count) = channel();
        let asked = self.loaded && self.engine.send(Command::Count(tell)).is_ok();
        // The engine answers between two batches.
        let counted = asked.then(|| count.recv().ok()).flatten();
        let (in_memory, on_disk, threads) = counted.unwrap_or_default();
        Status {
            loaded: self.loaded,
            connections: self.writers.len() as u64,
            chats: self.chats.len() as u64,
            in_memory: in_memory as u64,
            on_disk: on_disk as u64,
            threads,
        }
    }

    fn tell(&self, connection: u64, id: u64, what: Tell) {
        if let Some(writer) = self.writers.get(&connection) {
            let _ = writer.send(Told { id, what });
        }
    }

    /// The engine ended by itself: everybody who waits hears why.
    fn tell_all(&self, ended: &Result<()>) {
        let Err(failure) = ended else { return };
        for (connection, id) in &self.chats {
            let mut fault = Fault::new(FaultKind::Rejected, failure.what.clone());
            fault.why.clone_from(&failure.why);
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
