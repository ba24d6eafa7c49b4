//! Decides which targets may be reached: by the allow list, else by an observer, once per target.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::host::{HostList, HostPermit, Target};

/// Decides about targets that are not listed, and learns what was denied.
pub trait ProxyObserver: Send + Sync {
    /// Returns whether a target that is not listed may be reached. It is called once per target.
    fn on_unlisted(&self, target: &Target) -> BoxFuture<'static, bool>;
    /// Learns that a connection was denied for a reason that no answer changes.
    fn on_denied(&self, denial: &Denial);
}

/// A connection that was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The host and the port.
    pub target: Target,
    /// Why, as a clause: "its address … is private".
    pub reason: String,
}

/// Maximum number of targets about which an observer is asked.
const MAX_QUESTIONS: usize = 200;

/// How long a connection waits for a decision. A later one applies to later connections.
const DECISION_TIMEOUT: Duration = Duration::from_secs(120);

/// The allow list and the decisions about other targets.
pub(crate) struct Policy {
    hosts: HostList,
    observer: Box<dyn ProxyObserver>,
    decisions: Mutex<HashMap<Target, Shared<BoxFuture<'static, bool>>>>,
}

impl Policy {
    pub(crate) fn new(hosts: HostList, observer: Box<dyn ProxyObserver>) -> Policy {
        Policy { hosts, observer, decisions: Mutex::default() }
    }

    /// Returns whether the allow list has the target.
    pub(crate) fn is_listed(&self, target: &Target) -> bool {
        self.hosts.permits(target).is_some()
    }

    /// Returns what is permitted for a target; `None` if it may not be reached.
    pub(crate) async fn permit(&self, target: &Target) -> Option<HostPermit> {
        if let Some(permit) = self.hosts.permits(target) {
            return Some(permit);
        }
        let decision = {
            let mut decisions = base::sync::lock(&self.decisions);
            if decisions.len() >= MAX_QUESTIONS && !decisions.contains_key(target) {
                return None;
            }
            let ask = || {
                let decision = self.observer.on_unlisted(target).shared();
                // The question stays open when the connection that caused it is closed.
                tokio::spawn(decision.clone());
                decision
            };
            decisions.entry(target.clone()).or_insert_with(ask).clone()
        };
        let is_allowed = tokio::time::timeout(DECISION_TIMEOUT, decision).await.unwrap_or(false);
        is_allowed.then(|| HostPermit::answered(target))
    }

    pub(crate) fn on_denied(&self, target: &Target, reason: impl Into<String>) {
        self.observer.on_denied(&Denial { target: target.clone(), reason: reason.into() });
    }
}
