//! The language servers of a session: each is started when it is first needed, once per root.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use base::config::Config;
use base::config::lsp::Diagnostics;
use base::failure::Result;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::AbortHandle;

use super::client::{self, LspClient};
use super::servers::{self, LanguageServer};
use tools::context::ToolContext;

/// A started server, or why it cannot be used.
pub(crate) type StartedServer = std::result::Result<Arc<LspClient>, Arc<str>>;

/// The configured servers, and those that are running.
#[derive(Default)]
pub struct LspPool {
    languages: Vec<LanguageServer>,
    /// Which servers report errors after an edit.
    pub diagnostics: Diagnostics,
    running: Mutex<HashMap<(String, PathBuf), Slot>>,
}

/// A server that is started once, for all callers.
struct Slot {
    started: Shared<BoxFuture<'static, StartedServer>>,
    task: AbortHandle,
    /// Why it can no longer be used, although it was started.
    broken: Option<Arc<str>>,
}

/// The server for a file, and the root in which it runs.
pub(crate) struct ServerKey<'a> {
    /// The server.
    pub language: &'a LanguageServer,
    /// The protocol's language id of the file.
    pub id: &'a str,
    root: PathBuf,
}

impl LspPool {
    /// Creates a pool of the configured servers.
    pub fn new(config: &Config) -> Result<Arc<LspPool>> {
        let languages = servers::languages(&config.lsp)?;
        let diagnostics = config.tools.lsp.diagnostics;
        Ok(Arc::new(LspPool { languages, diagnostics, running: Mutex::default() }))
    }

    /// Returns the first server for a file of which a program is installed. The error says what the user
    /// can do.
    pub(crate) fn find(
        &self,
        file: &Path,
        context: &ToolContext,
    ) -> std::result::Result<ServerKey<'_>, String> {
        let tree = gate::paths::follow(&context.root).unwrap_or_else(|_| context.root.clone());
        let mut missing = None;
        for language in self.languages.iter().filter(|language| !language.off) {
            let Some(id) = language.id_of(file) else { continue };
            let Some(root) = servers::of(file, language, &tree) else { continue };
            if !language.commands().is_empty() {
                return Ok(ServerKey { language, id, root });
            }
            missing = missing.or(Some(language));
        }
        Err(match missing {
            Some(it) if it.install.is_empty() => {
                format!("The program `{}` of [lsp.{}] is not there", it.command, it.name)
            }
            Some(it) => format!(
                "The language server for {} files is not installed: install `{}` ({}), or name \
                 another program in the configuration as [lsp.{}] command",
                it.language, it.command, it.install, it.name
            ),
            None => format!(
                "No language server for {}: install one and name it in the \
                 configuration as [lsp.NAME] with command and extensions",
                file.file_name().unwrap_or_default().to_string_lossy()
            ),
        })
    }

    fn running(&self) -> MutexGuard<'_, HashMap<(String, PathBuf), Slot>> {
        base::sync::lock(&self.running)
    }

    /// Returns the server, and starts it if it is not running. A server that has failed is not
    /// restarted.
    pub(crate) fn start(
        &self,
        wanted: &ServerKey<'_>,
        context: &ToolContext,
    ) -> Shared<BoxFuture<'static, StartedServer>> {
        let key = (wanted.language.name.clone(), wanted.root.clone());
        let mut running = self.running();
        if let Some(slot) = running.get(&key) {
            return match &slot.broken {
                Some(reason) => std::future::ready(Err(reason.clone())).boxed().shared(),
                None => slot.started.clone(),
            };
        }
        let (language, root) = (wanted.language.clone(), wanted.root.clone());
        let logs = Some(context.session_dir.join("lsp"));
        let sandbox = context.command_sandbox();
        let task =
            tokio::spawn(async move { client::start(&language, &root, logs, &sandbox).await });
        let handle = task.abort_handle();
        let started = async {
            match task.await {
                Ok(Ok(client)) => Ok(Arc::new(client)),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err("its start was cancelled".into()),
            }
        };
        let started = started.boxed().shared();
        let slot = Slot { started: started.clone(), task: handle, broken: None };
        running.insert(key, slot);
        started
    }

    /// Returns the server if it is already running.
    pub(crate) fn running_for(&self, wanted: &ServerKey<'_>) -> Option<Arc<LspClient>> {
        let key = (wanted.language.name.clone(), wanted.root.clone());
        let running = self.running();
        let slot = running.get(&key).filter(|slot| slot.broken.is_none())?;
        slot.started.clone().now_or_never()?.ok()
    }

    /// Marks a server as broken, so that it is not started again.
    pub(crate) fn mark_broken(&self, client: &LspClient, reason: &str) {
        for ((name, _), slot) in self.running().iter_mut() {
            let is_it = matches!(slot.started.peek(), Some(Ok(it)) if std::ptr::eq(&raw const **it, client));
            if is_it {
                tracing::warn!(target: "g3::lsp", server = name, "server lost");
                slot.broken = Some(reason.into());
            }
        }
    }

    /// Shuts all servers down.
    pub(crate) async fn end(&self) {
        let all = std::mem::take(&mut *self.running());
        let end = |slot: Slot| async move {
            slot.task.abort();
            if let Ok(client) = slot.started.await {
                client.close().await;
            }
        };
        futures_util::future::join_all(all.into_values().map(end)).await;
    }
}
