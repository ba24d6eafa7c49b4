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
pub fn open(query: HostQuery) -> io::Result<OwnedFd> {
    let (relay_end, agent_end) = UnixStream::pair()?;
    let reader = relay_end.try_clone()?;
    let shared =
        Arc::new(Mutex::new(State { agent: relay_end, open: BTreeSet::new(), host: None }));
    std::thread::Builder::new().name("model-relay".into()).spawn(move || {
        for request in lines::<HostRequestLine>(reader) {
            let Ok(request) = request else { break };
            forward(&shared, &query, request);
        }
        let state = lock(&shared);
        let _ = state.agent.shutdown(Shutdown::Both);
        if let Some(host) = &state.host {
            let _ = host.shutdown(Shutdown::Both);
        }
    })?;
    Ok(agent_end.into())
}

struct State {
    agent: UnixStream,
    /// Requests whose last response is pending.
    open: BTreeSet<u64>,
    host: Option<UnixStream>,
}

fn forward(shared: &Arc<Mutex<State>>, query: &HostQuery, request: HostRequestLine) {
    let connected = lock(shared).host.is_some();
    if !connected && let Err(fault) = connect(shared, query) {
        lock(shared).respond(request.id, HostResponse::Error(fault));
        return;
    }
    let mut state = lock(shared);
    let is_cancel = request.id == 0 || matches!(request.what, HostRequest::Cancel { .. });
    if !is_cancel {
        state.open.insert(request.id);
    }
    let sent = state.host.as_mut().map(|host| write_line(host, &request));
    if !matches!(sent, Some(Ok(()))) && !is_cancel {
        state.open.remove(&request.id);
        state.respond(request.id, HostResponse::Error(host_exited()));
    }
}

fn connect(shared: &Arc<Mutex<State>>, query: &HostQuery) -> Result<(), HostFault> {
    // Kept until the second connection exists: a host may exit with its last connection.
    let (_connection, _) = find::open(query).map_err(HostFault::from)?;
    let host = find::connect(query).map_err(HostFault::from)?;
    let broken = |e: io::Error| HostFault::new(HostFaultKind::Broken, e.to_string());
    let reader = host.try_clone().map_err(broken)?;
    lock(shared).host = Some(host);
    let shared = Arc::clone(shared);
    let forward_responses = move || {
        for response in lines::<HostResponseLine>(reader) {
            let Ok(response) = response else { break };
            let mut state = lock(&shared);
            if is_last(&response.what) {
                state.open.remove(&response.id);
            }
            state.respond(response.id, response.what);
        }
        let mut state = lock(&shared);
        state.host = None;
        for id in std::mem::take(&mut state.open) {
            state.respond(id, HostResponse::Error(host_exited()));
        }
    };
    let name = "model-relay-host".to_owned();
    std::thread::Builder::new().name(name).spawn(forward_responses).map_err(broken)?;
    Ok(())
}

impl State {
    fn respond(&mut self, id: u64, response: HostResponse) {
        // An error means that the agent is gone, which needs no response.
        let _ = write_line(&mut self.agent, &HostResponseLine { id, what: response });
    }
}

fn write_line(to: &mut UnixStream, value: &impl serde::Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    to.write_all(&bytes)
}

fn host_exited() -> HostFault {
    HostFault::new(HostFaultKind::Broken, "the model host exited before its reply was complete")
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    crate::sync::lock(shared)
}
