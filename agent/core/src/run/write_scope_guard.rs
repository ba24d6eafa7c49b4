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
    write_scope: Option<&'a WriteScope>,
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
        write_scope: Option<&'a WriteScope>,
        (session_dir, root): (&Path, &Path),
    ) -> WriteScopeGuard<'a> {
        let write_scope = write_scope.filter(|write_scope| !write_scope.is_unrestricted());
        let (session_dir, root) = (session_dir.to_owned(), root.to_owned());
        WriteScopeGuard {
            inner,
            profile,
            registry,
            write_scope,
            session_dir,
            root,
            first: Mutex::default(),
        }
    }

    /// Takes a snapshot of the files; `None` if that is not possible.
    async fn take_snapshot(&self) -> Option<(Checkpoints, String)> {
        let mut first = self.first.lock().await;
        let (dir, root) = (self.session_dir.clone(), self.root.clone());
        let snapshot = tokio::task::spawn_blocking(move || {
            let checkpoints = Checkpoints::open(&dir, &root).ok()?;
            let tree = checkpoints.take_snapshot().ok()?;
            Some((checkpoints, tree))
        });
        let snapshot = snapshot.await.ok().flatten()?;
        first.get_or_insert_with(|| snapshot.1.clone());
        Some(snapshot)
    }

    /// Describes what a command changed outside the write scope, in sentences. A file restored to
    /// its state at the start of the turn is not a change.
    async fn changes_outside_scope(&self, write_scope: &WriteScope, before: &str) -> Vec<String> {
        let Some((checkpoints, after)) =
            self.take_snapshot().await.filter(|(_, after)| after != before)
        else {
            return Vec::new();
        };
        let first = self.first.lock().await.clone().unwrap_or_default();
        let changed_since = |tree: &str| -> BTreeSet<String> {
            let (files, _) = checkpoints.difference(tree, &after).unwrap_or_default();
            files.iter().filter_map(|line| line.get(2..).map(str::to_owned)).collect()
        };
        let names =
            changed_since(before).intersection(&changed_since(&first)).cloned().collect::<Vec<_>>();
        names.iter().filter_map(|name| write_scope.write_denial(&self.root.join(name))).collect()
    }
}

impl Toolbox for WriteScopeGuard<'_> {
    fn offered(&self) -> &[ToolDefinition] {
        self.inner.offered()
    }

    fn resource_keys(&self, name: &str, args: &Value) -> Vec<String> {
        self.inner.resource_keys(name, args)
    }

    fn run<'b>(&'b self, job: ToolJob<'b>) -> BoxFuture<'b, ToolOutput> {
        let call = (job.call.name.as_str(), &job.call.args);
        let spec = dispatch::spec(self.profile, call, self.registry);
        let runs = spec.is_some_and(|spec| spec.effect == Effect::Runs);
        let Some(write_scope) = self.write_scope.filter(|_| runs) else {
            return self.inner.run(job);
        };
        Box::pin(async move {
            let before = self.take_snapshot().await;
            let mut outcome = self.inner.run(job).await;
            let Some((_, before)) = before else { return outcome };
            let changes_outside_scope = self.changes_outside_scope(write_scope, &before).await;
            if !changes_outside_scope.is_empty() {
                outcome.ok = false;
                outcome.error_kind = Some(ToolErrorKind::Denied);
                outcome.text.push_str(&format!(
                    "\n\n[denied: {}. It was changed while this command ran: put it back as it was]",
                    changes_outside_scope.join("; ")
                ));
            }
            outcome
        })
    }

    fn wants_handover(&self) -> bool {
        self.inner.wants_handover()
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn open_work(&self) -> BoxFuture<'_, Option<String>> {
        self.inner.open_work()
    }
}
