//! A supervisor's relay: the socket that it passes to a sandboxed g3 stays connected while the host
//! behind it is started, exits when idle, or crashes and is restarted.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

use super::connection::{is_last, lines};
use super::find::{self, HostQuery};
use super::wire::{
    HostFault, HostFaultKind, HostRequest, HostRequestLine, HostResponse, HostResponseLine,
};

/// Returns the descriptor to pass down as `G3_MODEL_HOST_FD`. The host is started by the first
/// request; the relay ends when all copies of the descriptor are closed.
pub fn open(wanted: HostQuery) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let reader = ours.try_clone()?;
    let shared = Arc::new(Mutex::new(State { agent: ours, open: BTreeSet::new(), host: None }));
    std::thread::Builder::new().name("model-relay".into()).spawn(move || {
        for asked in lines::<HostRequestLine>(reader) {
            let Ok(asked) = asked else { break };
            forward(&shared, &wanted, asked);
        }
        let state = lock(&shared);
        let _ = state.agent.shutdown(Shutdown::Both);
        if let Some(host) = &state.host {
            let _ = host.shutdown(Shutdown::Both);
        }
    })?;
    Ok(theirs.into())
}

struct State {
    agent: UnixStream,
    /// Requests whose last response is pending.
    open: BTreeSet<u64>,
    host: Option<UnixStream>,
}

fn forward(shared: &Arc<Mutex<State>>, wanted: &HostQuery, asked: HostRequestLine) {
    let connected = lock(shared).host.is_some();
    if !connected && let Err(fault) = connect(shared, wanted) {
        lock(shared).tell(asked.id, HostResponse::Error(fault));
        return;
    }
    let mut state = lock(shared);
    let ended = asked.id == 0 || matches!(asked.what, HostRequest::Cancel { .. });
    if !ended {
        state.open.insert(asked.id);
    }
    let sent = state.host.as_mut().map(|host| write_line(host, &asked));
    if !matches!(sent, Some(Ok(()))) && !ended {
        state.open.remove(&asked.id);
        state.tell(asked.id, HostResponse::Error(gone()));
    }
}

fn connect(shared: &Arc<Mutex<State>>, wanted: &HostQuery) -> Result<(), HostFault> {
    // Kept until the second connection exists: a host may exit with its last connection.
    let (_greeted, _) = find::open(wanted).map_err(HostFault::from)?;
    let host = find::connect(wanted).map_err(HostFault::from)?;
    let broken = |e: io::Error| HostFault::new(HostFaultKind::Broken, e.to_string());
    let reader = host.try_clone().map_err(broken)?;
    lock(shared).host = Some(host);
    let shared = Arc::clone(shared);
    let pump = move || {
        for told in lines::<HostResponseLine>(reader) {
            let Ok(told) = told else { break };
            let mut state = lock(&shared);
            if is_last(&told.what) {
                state.open.remove(&told.id);
            }
            state.tell(told.id, told.what);
        }
        let mut state = lock(&shared);
        state.host = None;
        for id in std::mem::take(&mut state.open) {
            state.tell(id, HostResponse::Error(gone()));
        }
    };
    let name = "model-relay-host".to_owned();
    std::thread::Builder::new().name(name).spawn(pump).map_err(broken)?;
    Ok(())
}

impl State {
    fn tell(&mut self, id: u64, what: HostResponse) {
        // An error means that the agent is gone, which needs no response.
        let _ = write_line(&mut self.agent, &HostResponseLine { id, what });
    }
}

fn write_line(to: &mut UnixStream, value: &impl serde::Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    to.write_all(&bytes)
}

fn gone() -> HostFault {
    HostFault::new(HostFaultKind::Broken, "the model host exited before its reply was complete")
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    crate::sync::lock(shared)
}
