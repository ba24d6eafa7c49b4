//! Where a session is: at home, or at a place.

use std::io;
use std::path::PathBuf;

use base::failure::{OrFail, Result};
use base::id::Id;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::session::store::SessionStore;

/// The file of a session with its placement.
const FILE: &str = "placement.json";

/// A job of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedJob {
    /// Its name, by which it is found.
    pub name: String,
    /// Its id; absent until the cluster has told it.
    pub id: Option<String>,
    /// The job that fetches what this one left on its node, if it ended before everything was home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetching: Option<FetchingJob>,
}

/// A job that runs on the node of an earlier one until home has what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchingJob {
    /// Its name.
    pub name: String,
    /// Its id; absent until the cluster has told it.
    pub id: Option<String>,
    /// How many were submitted, this one included.
    pub number: u32,
}

/// Where a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// The name of the place.
    pub place: String,
    /// The host of the place.
    pub host: String,
    /// The job that runs it, or that waits to run it.
    pub job: Option<PlacedJob>,
    /// The number of the delivery; a side that knows a later one refuses an earlier one.
    pub attempt: u32,
    /// Whether the place has the session: then only the place writes its journal.
    pub away: bool,
    /// When the place was last heard of, RFC 3339 in UTC.
    pub heard_at: Option<String>,
    /// Why the session is not connected now, as a clause.
    pub problem: Option<String>,
    /// Why the session no longer runs there, if it did not end by itself.
    pub lost: Option<String>,
    /// The length of the journal here when home gave the run up because it could not reach the place: the
    /// run may go on there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreached: Option<u64>,
    /// Where the place has the state of an earlier delivery that home may not have completely.
    pub set_aside: Option<PathBuf>,
}

impl Placement {
    /// Returns the placement of a session; `None` if it never was at a place.
    pub fn read(store: &SessionStore, id: &Id) -> Option<Placement> {
        serde_json::from_slice(&std::fs::read(path(store, id)).ok()?).ok()
    }

    /// Saves it.
    pub(crate) fn write(&self, store: &SessionStore, id: &Id) -> Result<()> {
        let fail = || format!("cannot save where `{id}` is");
        base::files::replace_json(&path(store, id), self).map_err(io::Error::other).or_fail(fail)
    }

    /// Returns whether the session is at work at its place as far as home knows.
    pub fn is_away(&self) -> bool {
        self.away && self.lost.is_none()
    }

    /// Returns it as JSON.
    pub fn json(&self) -> Value {
        json!({
            "name": self.place,
            "host": self.host,
            "job": self.job.as_ref().and_then(|job| job.id.clone()),
            "attempt": self.attempt,
            "away": self.away,
            "heard_at": self.heard_at,
            "problem": self.problem,
            "lost": self.lost,
            "set_aside": self.set_aside,
        })
    }
}

fn path(store: &SessionStore, id: &Id) -> PathBuf {
    store.file(id, FILE)
}
