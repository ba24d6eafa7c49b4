//! The context in which tools run.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::config::agent::{SandboxConfig, ToolsConfig};
use tokio_util::sync::CancellationToken;

use super::client_io::ClientIo;
use super::exec::confinement::{self, CommandSandbox, Containment, SandboxCache};
use super::registry::Registry;
use super::result_limit::MAX_BYTES;
use super::screen_access::ScreenAccess;
use super::services::{BrowserService, DesktopService, LanguageServers, McpServers, Subagents};
use gate::{Gate, Permit};
use memory::Memory;
use skills::SkillSet;

/// The context in which a tool runs. Cheap to clone: one per call.
#[derive(Clone)]
pub struct ToolContext {
    /// The available tools.
    pub registry: &'static Registry,
    /// The working directory: the base of relative paths and the directory of commands.
    pub cwd: PathBuf,
    /// Writes outside of this directory need permission.
    pub root: PathBuf,
    /// The directory of the session's state: todo list, long outputs, logs (`sessions/<id>` of the
    /// workspace's state).
    pub session_dir: PathBuf,
    /// Receives output while a tool runs.
    pub on_output: Arc<dyn Fn(&str) + Send + Sync>,
    /// Set when the user cancels.
    pub cancel: CancellationToken,
    /// Whether results are short and plain, for small models.
    pub plain: bool,
    /// Maximum size of a result in bytes.
    pub result_limit: usize,
    /// Checks every call before it runs.
    pub gate: Arc<Gate>,
    /// The client that provides files and terminals, e.g. an editor.
    pub client_io: Option<Arc<dyn ClientIo>>,
    /// The MCP servers of the session.
    pub mcp: Option<Arc<dyn McpServers>>,
    /// The available and the active skills.
    pub skills: Arc<SkillSet>,
    /// Data that outlives the session.
    pub memory: Arc<Memory>,
    /// The services.
    pub services: Services,
}

/// Services for tools: subagents, language servers, the web and others.
#[derive(Clone, Default)]
pub struct Services {
    /// The session's own provider, as `type.name`, and model, for subagents that use the same.
    pub model: Option<(String, String)>,
    /// The subagents of this session.
    pub subagents: Option<Arc<dyn Subagents>>,
    /// The configuration of web tools: private hosts that may be fetched, and search services.
    pub web: Arc<ToolsConfig>,
    /// The language servers of the session.
    pub lsp: Option<Arc<dyn LanguageServers>>,
    /// The browser of the session.
    pub browser: Option<Arc<dyn BrowserService>>,
    /// The desktop helper.
    pub desktop: Option<Arc<dyn DesktopService>>,
    /// The screen, mouse and keyboard.
    pub screen: Arc<ScreenAccess>,
    /// The configuration of the command sandbox.
    pub sandbox: Arc<SandboxConfig>,
    /// The sandbox of the last command.
    pub sandbox_cache: Arc<SandboxCache>,
}

impl ToolContext {
    /// Creates a context for a directory without listeners, with the default gate and without a
    /// user to ask.
    pub fn quiet(
        registry: &'static Registry,
        cwd: impl Into<PathBuf>,
        session_dir: impl Into<PathBuf>,
    ) -> ToolContext {
        let cwd = cwd.into();
        ToolContext {
            registry,
            root: cwd.clone(),
            cwd,
            session_dir: session_dir.into(),
            on_output: Arc::new(|_| ()),
            cancel: CancellationToken::new(),
            plain: false,
            result_limit: MAX_BYTES,
            gate: Arc::new(Gate::default()),
            client_io: None,
            mcp: None,
            skills: Arc::default(),
            memory: Arc::default(),
            services: Services::default(),
        }
    }

    /// Returns the sandbox of programs that are started for this session.
    pub fn command_sandbox(&self) -> CommandSandbox {
        let (sandbox, cache) = (self.services.sandbox.clone(), self.services.sandbox_cache.clone());
        CommandSandbox::of_session(sandbox, &self.root, &self.session_dir, cache)
    }

    /// Returns the restrictions of a command that the gate permitted. A `Free` command has none,
    /// unless g3 runs in studio's sandbox, which gives g3, but not the command, access to its
    /// configuration and logins.
    pub fn containment(&self, permit: Permit) -> io::Result<Option<Containment>> {
        match permit {
            Permit::Unconfined if !confinement::in_studio() => Ok(None),
            Permit::Unconfined | Permit::CommandSandbox => self.command_sandbox().containment(),
            Permit::StrictSandbox => self.command_sandbox().strict_containment().map(Some),
            Permit::ScratchSandbox => confinement::scratch_sandbox(&self.root).map(Some),
        }
    }
}
