//! Where and for whom tools work.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::config::agent::{SandboxConfig, ToolsConfig};
use tokio_util::sync::CancellationToken;

use super::client_io::ClientIo;
use super::exec::confinement::{self, CommandBox, Containment, RecentBox};
use super::registry::Registry;
use super::result_limit::MOST;
use super::screen_access::ScreenAccess;
use super::services::{BrowserService, DesktopService, LanguageServers, McpServers, Subagents};
use gate::{Gate, Permit};
use memory::Memory;
use skills::SkillSet;

/// Where and for whom a tool works. Cheap to clone: one per call.
#[derive(Clone)]
pub struct ToolContext {
    /// The tools that a call can mean.
    pub registry: &'static Registry,
    /// Relative paths start here; the shell runs here.
    pub cwd: PathBuf,
    /// Writes stay below this directory unless the gate allows more.
    pub root: PathBuf,
    /// State of this session: todo, long outputs, logs (`sessions/<id>` of the workspace's state).
    pub session_dir: PathBuf,
    /// Hears output while a tool runs.
    pub hear: Arc<dyn Fn(&str) + Send + Sync>,
    /// Set when the user cancels.
    pub cancel: CancellationToken,
    /// Plain short results for small models.
    pub plain: bool,
    /// Bytes of a result that the model reads at most.
    pub result_limit: usize,
    /// Judges every call before it runs.
    pub gate: Arc<Gate>,
    /// Who holds files and terminals besides the machine, e.g. an editor.
    pub outside: Option<Arc<dyn ClientIo>>,
    /// The MCP servers of the session.
    pub mcp: Option<Arc<dyn McpServers>>,
    /// The skills that can be loaded, and those that were.
    pub skills: Arc<SkillSet>,
    /// What outlives the session.
    pub memory: Arc<Memory>,
    /// Who else can be asked.
    pub others: Services,
}

/// Who else can be asked: agents that work, servers that know code, the web as the user allows it.
#[derive(Clone, Default)]
pub struct Services {
    /// Our own provider, as `type.name`, and model, for those that shall ask the same.
    pub asks: Option<(String, String)>,
    /// Those that work within this session.
    pub subagents: Option<Arc<dyn Subagents>>,
    /// Which hosts may be fetched though they are private, and who searches the web.
    pub web: Arc<ToolsConfig>,
    /// The language servers of the session.
    pub lsp: Option<Arc<dyn LanguageServers>>,
    /// The browser of the session.
    pub browser: Option<Arc<dyn BrowserService>>,
    /// What controls the desktop.
    pub desktop: Option<Arc<dyn DesktopService>>,
    /// The screen, mouse and keyboard.
    pub screen: Arc<ScreenAccess>,
    /// What the user opens for the box of commands, and whether there is one.
    pub sandbox: Arc<SandboxConfig>,
    /// The box that the last command ran in.
    pub recent_box: Arc<RecentBox>,
}

impl ToolContext {
    /// A workplace in a directory that hears nothing, with the default gate and nobody to ask.
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
            hear: Arc::new(|_| ()),
            cancel: CancellationToken::new(),
            plain: false,
            result_limit: MOST,
            gate: Arc::new(Gate::default()),
            outside: None,
            mcp: None,
            skills: Arc::default(),
            memory: Arc::default(),
            others: Services::default(),
        }
    }

    /// The box of programs that are started for this session.
    pub fn command_box(&self) -> CommandBox {
        let (sandbox, recent) = (self.others.sandbox.clone(), self.others.recent_box.clone());
        CommandBox::of_session(sandbox, &self.root, &self.session_dir, recent)
    }

    /// What holds a command that the gate let pass. Nothing holds a free one, unless we are in
    /// studio's box, which opens our configuration and logins for us and not for it.
    pub fn hold(&self, pass: Permit) -> io::Result<Option<Containment>> {
        match pass {
            Permit::Free if !confinement::in_studio() => Ok(None),
            Permit::Free | Permit::Confined => self.command_box().hold(),
            Permit::Boxed => self.command_box().hold_tightly().map(Some),
            Permit::Sandboxed => confinement::sandboxed(&self.root).map(Some),
        }
    }
}
