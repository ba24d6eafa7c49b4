//! A connection to a server: a child process with pipes, or a URL; the handshake, and shutdown.

use std::path::PathBuf;
use std::sync::Arc;

use base::config::mcp::McpServerConfig;
use base::process::{GRACE, find_program};
use futures_util::future::BoxFuture;
use rmcp::model::{ClientConfig, Implementation};
use rmcp::service::{ClientInitializeError, NotificationContext, Peer, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use tokio::process::{ChildStdin, ChildStdout};

use super::http;
use tools::child_server::{self, ServerProcess, ServerStart};
use tools::exec::confinement::CommandSandbox;

/// Maximum size of a message in bytes.
const MAX_LINE: usize = 64 << 20;

/// The directories of a server.
#[derive(Clone, Debug)]
pub struct ServerPaths {
    /// The working directory.
    pub cwd: PathBuf,
    /// The directory of its stderr log; none if absent.
    pub logs: Option<PathBuf>,
    /// Its sandbox, unless its configuration disables it.
    pub sandbox: CommandSandbox,
}

/// Reads the tools of a server that reports that they changed.
pub(crate) type OnToolsChanged =
    Arc<dyn Fn(Peer<RoleClient>) -> BoxFuture<'static, ()> + Send + Sync>;

/// g3 as a client of a server: it calls tools and answers no requests.
#[derive(Clone)]
pub(crate) struct G3Client {
    /// Called when the server's tools changed.
    pub on_tools_changed: OnToolsChanged,
}

impl ClientHandler for G3Client {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("g3", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(Default::default(), implementation)
    }

    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        (self.on_tools_changed)(context.peer).await;
    }
}

/// An open connection. Dropping it kills the server's processes.
pub(crate) struct McpConnection {
    service: RunningService<RoleClient, G3Client>,
    program: Option<ServerProcess>,
}

/// Opens a connection and performs the handshake. `part` names the stderr log.
pub(crate) async fn open(
    server: &McpServerConfig,
    part: &str,
    paths: &ServerPaths,
    client: G3Client,
) -> Result<McpConnection, String> {
    if server.url.is_some() {
        return Ok(McpConnection { service: http::open(server, client).await?, program: None });
    }
    let (mut program, stdin, stdout) = start(server, part, paths)?;
    let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MAX_LINE);
    match client.serve(transport).await {
        Ok(service) => Ok(McpConnection { service, program: Some(program) }),
        Err(
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. },
        ) => Err(program.describe_end().await),
        Err(error) => Err(format!("no handshake: {error}")),
    }
}

fn start(
    server: &McpServerConfig,
    part: &str,
    paths: &ServerPaths,
) -> Result<(ServerProcess, ChildStdin, ChildStdout), String> {
    let home = base::user_dirs::home_dir().unwrap_or_default();
    let cwd = server.cwd.as_deref().map(|cwd| base::config::studio::expand_tilde(cwd, &home));
    let cwd = cwd.map_or_else(|| paths.cwd.clone(), |cwd| paths.cwd.join(cwd));
    let log = paths.logs.as_deref().map(|logs| (logs, part));
    // A g3 that serves its tools sandboxes their commands itself, and needs its configuration.
    let sandbox = paths.sandbox.clone().with_read_access(&server.command);
    let is_sandboxed = server.sandbox && !is_g3(&server.command);
    let containment_result = is_sandboxed.then(|| sandbox.containment_if_supported()).transpose();
    let containment = containment_result.map_err(|error| error.to_string())?.flatten();
    child_server::start(&ServerStart {
        command: &server.command,
        env: &server.env,
        cwd: &cwd,
        log,
        containment,
    })
}

/// Whether a command is our own program.
fn is_g3(command: &[String]) -> bool {
    let found_and_named = command.first().map(|name| (find_program(name), PathBuf::from(name)));
    let file = found_and_named.map(|(program, name)| program.unwrap_or(name));
    let canonical = |path: PathBuf| path.canonicalize().ok();
    let own_program = std::env::current_exe().ok().and_then(canonical);
    own_program.is_some() && file.and_then(canonical) == own_program
}

impl McpConnection {
    /// Returns the server.
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether the connection is usable.
    pub(crate) fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.peer().is_transport_closed()
    }

    /// Describes how the program ended, with the end of its stderr, after the connection broke.
    pub(crate) async fn exit_reason(&mut self) -> Option<String> {
        Some(self.program.as_mut()?.describe_end().await)
    }

    /// Closes stdin, and kills the server if it does not exit.
    pub(crate) async fn close(mut self) {
        let _ = self.service.close_with_timeout(GRACE).await;
        if let Some(program) = &mut self.program {
            program.close().await;
        }
    }
}
