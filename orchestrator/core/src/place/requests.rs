//! Requests to the supervisor of a session at a place: saved first, then carried out there once,
//! however often the connection breaks.

use std::path::PathBuf;

use base::failure::{OrFail, Result};
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::session::store::SessionStore;
use crate::supervisor::control::ControlRequest;

/// The requests of a session that were not carried out yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Requests {
    /// The number of the last request.
    last: u64,
    /// Those that wait, the oldest first.
    pub waiting: Vec<NumberedRequest>,
}

/// A request with its number, which tells a repeated one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NumberedRequest {
    /// The number.
    pub number: u64,
    /// The request.
    pub request: ControlRequest,
}

/// What the place did with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestResult {
    /// It was carried out, now or before.
    Done,
    /// The supervisor refused it, for this reason.
    Refused(String),
    /// No supervisor of the session runs.
    NotRunning,
}

impl Requests {
    /// Reads the requests of a session.
    pub(crate) fn read(store: &SessionStore, id: &Id) -> Requests {
        let bytes = std::fs::read(path(store, id)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Saves a new request and returns its number.
    pub(crate) fn add(
        &mut self,
        store: &SessionStore,
        id: &Id,
        request: ControlRequest,
    ) -> Result<u64> {
        self.last += 1;
        self.waiting.push(NumberedRequest { number: self.last, request });
        self.write(store, id)?;
        Ok(self.last)
    }

    /// Removes a request that was carried out.
    pub(crate) fn remove(&mut self, store: &SessionStore, id: &Id, number: u64) -> Result<()> {
        self.waiting.retain(|waiting| waiting.number != number);
        self.write(store, id)
    }

    fn write(&self, store: &SessionStore, id: &Id) -> Result<()> {
        let fail = || format!("cannot save a request to `{id}`");
        base::files::replace_json(&path(store, id), self).or_fail(fail)
    }
}

fn path(store: &SessionStore, id: &Id) -> PathBuf {
    store.file(id, "requests.json")
}
