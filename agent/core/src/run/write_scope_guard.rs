//! Detects writes of commands outside a role's write scope, which the command line does not reveal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::session::checkpoint::Checkpoints;
use crate::turn::tool_calls::{ToolJob, Toolbox};
use gate::write_scope::WriteScope;
use provider::ToolDefinition;
use tools::dispatch;
use tools::kind::Effect;
use tools::output::{ToolErrorKind, ToolOutput};
use tools::profile::Profile;
use tools::registry::Registry;

/// A toolbox that checks the effects of commands. Files are not restored, since another process may
/// have changed them in the meantime.
pub(crate) struct WriteScopeGuard<'a> {
    inner: &'a dyn Toolbox,
    profile: Profile,
    registry: &'static Registry,
    fence: Option<&'a WriteScope>,
    session_dir: PathBuf,
    root: PathBuf,
    /// The first snapshot of this turn. Snapshots are taken one at a time.
    first: Mutex<Option<String>>,
}

impl<'a> WriteScopeGuard<'a> {
    /// Wraps the toolbox of a session, if there is a write scope with restrictions.
    pub(crate) fn new(
        inner: &'a dyn Toolbox,
        (profile, registry): (Profile, &'static Registry),
        fence: Option<&'a WriteScope>,
        (session_dir, root): (&Path, &Path),
    ) -> WriteScopeGuard<'a> {
        let fence = fence.filter(|fence| !fence.is_open());
        let (session_dir, root) = (session_dir.to_owned(), root.to_owned());
        WriteScopeGuard {
            inner,
            profile,
            registry,
            fence,
            session_dir,
            root,
            first: Mutex::default(),
        }
    }

    /// Takes a snapshot of the files; `None` if that is not possible.
    async fn picture(&self) -> Option<(Checkpoints, String)> {
        let mut first = self.first.lock().await;
        let (dir, root) = (self.session_dir.clone(), self.root.clone());
        let taken = tokio::task::spawn_blocking(move || {
            let trees = Checkpoints::open(&dir, &root).ok()?;
            let tree = trees.take().ok()?;
            Some((trees, tree))
        });
        let taken = taken.await.ok().flatten()?;
        first.get_or_insert_with(|| taken.1.clone());
        Some(taken)
    }

    /// Describes what a command changed outside the write scope, in sentences. A file restored to
    /// its state at the start of the turn is not a change.
    async fn beyond(&self, fence: &WriteScope, before: &str) -> Vec<String> {
        let Some((trees, after)) = self.picture().await.filter(|(_, after)| after != before) else {
            return Vec::new();
        };
        let first = self.first.lock().await.clone().unwrap_or_default();
        let since = |then: &str| -> BTreeSet<String> {
            let (files, _) = trees.difference(then, &after).unwrap_or_default();
            files.iter().filter_map(|line| line.get(2..).map(str::to_owned)).collect()
        };
        let names = since(before).intersection(&since(&first)).cloned().collect::<Vec<_>>();
        names.iter().filter_map(|name| fence.refuses(&self.root.join(name))).collect()
    }
}

impl Toolbox for WriteScopeGuard<'_> {
    fn offered(&self) -> &[ToolDefinition] {
        self.inner.offered()
    }

    fn touches(&self, name: &str, args: &Value) -> Vec<String> {
        self.inner.touches(name, args)
    }

    fn run<'b>(&'b self, job: ToolJob<'b>) -> BoxFuture<'b, ToolOutput> {
        let call = (job.call.name.as_str(), &job.call.args);
        let spec = dispatch::spec(self.profile, call, self.registry);
        let runs = spec.is_some_and(|spec| spec.effect == Effect::Runs);
        let Some(fence) = self.fence.filter(|_| runs) else { return self.inner.run(job) };
        Box::pin(async move {
            let before = self.picture().await;
            let mut outcome = self.inner.run(job).await;
            let Some((_, before)) = before else { return outcome };
            let beyond = self.beyond(fence, &before).await;
            if !beyond.is_empty() {
                outcome.ok = false;
                outcome.error_kind = Some(ToolErrorKind::Denied);
                outcome.text.push_str(&format!(
                    "\n\n[denied: {}. It was changed while this command ran: put it back as it was]",
                    beyond.join("; ")
                ));
            }
            outcome
        })
    }

    fn hands_over(&self) -> bool {
        self.inner.hands_over()
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn still_open(&self) -> BoxFuture<'_, Option<String>> {
        self.inner.still_open()
    }
}
