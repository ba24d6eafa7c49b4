//! Questions about hosts that the allow list of a session does not contain. They have the numbers
//! and the answers of permission requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use network::Denial;
use network::host::Target;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use crate::exec::network::NetworkRequest;
use crate::exec::runner::SandboxedRunner;
use crate::launch::Decision;
use crate::supervisor::step::PermissionAsk;

/// The open questions.
pub(crate) struct NetworkQuestions {
    numbers: Arc<AtomicU32>,
    open: BTreeMap<u32, OpenQuestion>,
}

struct OpenQuestion {
    entry: String,
    reply: oneshot::Sender<bool>,
}

impl NetworkQuestions {
    /// Receives the requests of these runners. Their numbers follow this one.
    pub(crate) fn new<'r>(
        runners: impl Iterator<Item = &'r SandboxedRunner>,
        last_request: u32,
    ) -> (NetworkQuestions, UnboundedReceiver<NetworkRequest>) {
        let (tx, rx) = unbounded_channel();
        for runner in runners {
            runner.send_network_requests(tx.clone());
        }
        let numbers = Arc::new(AtomicU32::new(last_request));
        (NetworkQuestions { numbers, open: BTreeMap::new() }, rx)
    }

    /// Returns the source of the numbers of all requests of the session.
    pub(crate) fn numbers(&self) -> Arc<AtomicU32> {
        self.numbers.clone()
    }

    /// Returns the request for a host.
    pub(crate) fn ask(
        &mut self,
        target: &Target,
        reply: oneshot::Sender<bool>,
        is_attended: bool,
    ) -> PermissionAsk {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let entry = target.entry();
        let line = format!("`[sandbox] hosts = [\"{entry}\"]` in ~/.config/g3/config.toml");
        let denial = format!("{target} is not on the allow list of the sandbox; {line} adds it");
        self.open.insert(number, OpenQuestion { entry: entry.clone(), reply });
        PermissionAsk {
            number,
            host: Some(entry),
            description: format!("connect to {target}"),
            rule: format!("connect to {target}"),
            futile_reason: (!is_attended).then_some(denial),
        }
    }

    /// Answers a question. Returns whether the number is that of one.
    pub(crate) fn answer(&mut self, number: u32, decision: &Decision) -> bool {
        let Some(question) = self.open.remove(&number) else { return false };
        match (decision.always, decision.allow) {
            (true, true) => base::allowed_hosts::allow_always(&question.entry),
            (true, false) => base::allowed_hosts::deny_always(&question.entry),
            (false, _) => {}
        }
        // The proxy may have ended.
        let _ = question.reply.send(decision.allow);
        true
    }
}

/// Describes a connection that was denied.
pub(crate) fn denial_text(denial: &Denial) -> String {
    format!("the network of the sandbox denied {}: {}", denial.target, denial.reason)
}
