//! Files and terminals of the editor, where the editor offers them.

use std::io;
use std::path::Path;
use std::time::Duration;

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, CreateTerminalRequest, KillTerminalRequest, ReadTextFileRequest,
    ReleaseTerminalRequest, SessionNotification, SessionUpdate, Terminal, TerminalId,
    TerminalOutputRequest, ToolCallContent, ToolCallUpdate, ToolCallUpdateFields,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use futures_util::future::BoxFuture;

use super::updates::SessionName;
use agent_core::current_call::call_id;
use tools::client_io::{ClientIo, TerminalCommand, TerminalOutput};

/// Maximum number of bytes of output that the editor keeps.
const OUTPUT: u64 = 1 << 20;
/// How long a killed terminal may take to report its exit.
const GRACE: Duration = Duration::from_secs(5);

/// The editor of a session.
pub(crate) struct EditorIo {
    client: ConnectionTo<Client>,
    session: SessionName,
    able: ClientCapabilities,
}

impl EditorIo {
    /// Creates the access to what this editor offers to this session.
    pub(crate) fn new(
        client: ConnectionTo<Client>,
        session: SessionName,
        able: ClientCapabilities,
    ) -> EditorIo {
        EditorIo { client, session, able }
    }

    fn session(&self) -> Option<String> {
        self.session.get().cloned()
    }

    async fn in_terminal(
        &self,
        session: &str,
        command: TerminalCommand<'_>,
    ) -> io::Result<TerminalOutput> {
        let broken = |error: agent_client_protocol::Error| io::Error::other(error.message);
        let request = CreateTerminalRequest::new(session.to_owned(), "sh")
            .args(vec!["-c".to_owned(), command.line.to_owned()])
            .cwd(command.cwd.to_owned())
            .output_byte_limit(OUTPUT);
        let response = self.client.send_request(request).block_task().await.map_err(broken)?;
        let id = response.terminal_id;
        self.show(session, &id);
        let wait = WaitForTerminalExitRequest::new(session.to_owned(), id.clone());
        let exit = self.client.send_request(wait).block_task();
        tokio::pin!(exit);
        let over = async {
            match command.timeout {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let (mut timed_out, mut cancelled) = (false, false);
        let by_itself = tokio::select! {
            exit = &mut exit => Some(exit.map_err(broken)?),
            () = over => { timed_out = true; None }
            () = command.cancel.cancelled() => { cancelled = true; None }
        };
        let status = match by_itself {
            Some(exit) => Some(exit.exit_status),
            None => {
                let kill = KillTerminalRequest::new(session.to_owned(), id.clone());
                let _ = self.client.send_request(kill).block_task().await;
                let ended = tokio::time::timeout(GRACE, exit).await;
                ended.ok().and_then(Result::ok).map(|exit| exit.exit_status)
            }
        };
        let asked = TerminalOutputRequest::new(session.to_owned(), id.clone());
        let output = self.client.send_request(asked).block_task().await.map_err(broken)?;
        let release = ReleaseTerminalRequest::new(session.to_owned(), id);
        let _ = self.client.send_request(release).block_task().await;
        let code = status.and_then(|status| status.exit_code);
        let code = code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-1);
        let mark = if output.truncated { "[the beginning is cut]\n" } else { "" };
        Ok(TerminalOutput {
            output: format!("{mark}{}", output.output),
            code,
            timed_out,
            cancelled,
        })
    }

    /// Shows the terminal as the content of the tool call.
    fn show(&self, session: &str, id: &TerminalId) {
        let content = ToolCallContent::Terminal(Terminal::new(id.clone()));
        let fields = ToolCallUpdateFields::new().content(vec![content]);
        let update = SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call_id(), fields));
        // The connection itself reports that the editor has exited.
        let _ = self.client.send_notification(SessionNotification::new(session.to_owned(), update));
    }
}

impl ClientIo for EditorIo {
    fn read<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let session = self.session().filter(|_| self.able.fs.read_text_file)?;
            let asked = ReadTextFileRequest::new(session, file);
            let read = self.client.send_request(asked).block_task().await;
            read.ok().map(|read| read.content)
        })
    }

    fn write<'a>(&'a self, file: &'a Path, text: &'a str) -> BoxFuture<'a, Option<io::Result<()>>> {
        Box::pin(async move {
            let session = self.session().filter(|_| self.able.fs.write_text_file)?;
            let asked = WriteTextFileRequest::new(session, file, text);
            let written = self.client.send_request(asked).block_task().await;
            Some(written.map(drop).map_err(|error| io::Error::other(error.message)))
        })
    }

    fn run<'a>(
        &'a self,
        command: TerminalCommand<'a>,
    ) -> BoxFuture<'a, Option<io::Result<TerminalOutput>>> {
        Box::pin(async move {
            let session = self.session().filter(|_| self.able.terminal)?;
            Some(self.in_terminal(&session, command).await)
        })
    }
}
