//! A connection to a server: a child process with pipes, or a URL; the handshake, and shutdown.

use std::path::PathBuf;
use std::sync::Arc;

use base::config::mcp::McpServerConfig;
use base::process::{GRACE, find_program};
use futures_util::future::BoxFuture;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, Implementation, ProtocolVersion, ServerNotification, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, Peer,
    RequestContext, RunningService,
};
use rmcp::transport::IntoTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient};
use tokio::process::{ChildStdin, ChildStdout};

use super::http;
use super::user_questions::UserQuestions;
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

/// g3 as a client of a server: it calls tools, and answers no requests but questions to the user.
#[derive(Clone)]
pub(crate) struct G3Client {
    /// Called when the server's tools changed.
    pub on_tools_changed: OnToolsChanged,
    /// Shows the server's questions, if they can be shown.
    pub questions: Option<Arc<UserQuestions>>,
}

impl G3Client {
    /// Connects without a handshake, as since protocol 2026-07-28, or with the one before it.
    pub(crate) async fn connect<T, E, A>(
        self,
        transport: T,
        era: ProtocolEra,
    ) -> Result<RunningService<RoleClient, G3Client>, ClientInitializeError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let on_tools_changed = self.on_tools_changed.clone();
        let lifecycle = match era {
            ProtocolEra::Handshake => ClientLifecycleMode::Initialize,
            ProtocolEra::Stateless => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] }
            }
        };
        let service = self.serve_with_lifecycle(transport, lifecycle).await?;
        if era == ProtocolEra::Stateless {
            tokio::spawn(listen(service.peer().clone(), on_tools_changed));
        }
        Ok(service)
    }
}

/// Receives the notifications of a server to which g3 has to subscribe, until the connection ends.
async fn listen(peer: Peer<RoleClient>, on_tools_changed: OnToolsChanged) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    // A server need not support it.
    let Ok(mut subscription) = peer.listen(filter).await else { return };
    while let Ok(Some(notification)) = subscription.next().await {
        if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
            on_tools_changed(peer.clone()).await;
        }
    }
}

/// How g3 speaks with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolEra {
    /// After a handshake (`initialize`), up to protocol 2025-11-25.
    Handshake,
    /// Each request describes itself, since protocol 2026-07-28.
    Stateless,
}

impl ProtocolEra {
    /// Both, in the order in which they are tried: a server that speaks both loses nothing by a
    /// handshake, and an older one may end at anything else.
    pub(crate) const TRIED: [ProtocolEra; 2] = [ProtocolEra::Handshake, ProtocolEra::Stateless];

    /// Returns whether a server may accept the next one: it answered, and refused this one.
    pub(crate) fn is_refused(self, error: &ClientInitializeError) -> bool {
        self == ProtocolEra::Handshake && matches!(error, ClientInitializeError::JsonRpcError(_))
    }
}

impl ClientHandler for G3Client {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("g3", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.questions.as_ref().map(|_| UserQuestions::capability());
        ClientConfig::new(capabilities, implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        match &self.questions {
            Some(questions) => questions.answer(request).await,
            None => Ok(ElicitResult::new(ElicitationAction::Decline)),
        }
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
    let mut refusal = String::new();
    for era in ProtocolEra::TRIED {
        let (mut program, stdin, stdout) = start(server, part, paths)?;
        let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(MAX_LINE);
        match client.clone().connect(transport, era).await {
            Ok(service) => return Ok(McpConnection { service, program: Some(program) }),
            Err(error) if era.is_refused(&error) => {
                refusal = format!("no handshake: {error}; without one: ");
            }
            Err(
                ClientInitializeError::ConnectionClosed(_)
                | ClientInitializeError::TransportError { .. },
            ) => return Err(refusal + &program.describe_end().await),
            Err(error) if refusal.is_empty() => return Err(format!("no handshake: {error}")),
            Err(error) => return Err(format!("{refusal}{error}")),
        }
    }
    Err(refusal)
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
