//! Servers at a URL: the client, its headers, and hints if a login is required.

use std::collections::HashMap;

use base::config::mcp::{McpServerConfig, expand};
use base::process::{Command, OutputLimits};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::connect::{G3Client, ProtocolEra};
use super::login;
use provider::http as door;

/// Connects to a server at a URL. The error says what is wrong, with a hint.
pub(crate) async fn open(
    server: &McpServerConfig,
    client_handler: G3Client,
) -> Result<RunningService<RoleClient, G3Client>, String> {
    let url = address(server)?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers(server)?);
    let token = token(server).await?;
    let is_logged_in = token.is_none() && login::exists(server);
    if let Some(token) = token {
        config = config.auth_header(token);
    }
    let mut refusal = String::new();
    for era in ProtocolEra::TRIED {
        let (handler, config) = (client_handler.clone(), config.clone());
        let result = if is_logged_in {
            let client = login::client(server).await?;
            handler.connect(StreamableHttpClientTransport::with_client(client, config), era).await
        } else {
            let client = door::client(&url).map_err(|error| error.to_string())?;
            handler.connect(StreamableHttpClientTransport::with_client(client, config), era).await
        };
        match result {
            Ok(service) => return Ok(service),
            Err(error) if era.is_refused(&error) => {
                refusal = format!("{}; without a handshake: ", explain(&error));
            }
            Err(error) => return Err(refusal + &explain(&error)),
        }
    }
    Err(refusal)
}

/// Returns the URL. Plain `http` to another machine is rejected.
pub(crate) fn address(server: &McpServerConfig) -> Result<Url, String> {
    let text = server.url.as_deref().unwrap_or_default();
    let url = Url::parse(text).map_err(|error| format!("`{text}` is not an address: {error}"))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if server.allow_http || door::is_loopback(&url) => Ok(url),
        "http" => Err(format!(
            "`{text}` is plain http, which would be sent unencrypted; use https, or \
             set `allow_http = true`"
        )),
        other => Err(format!("`{other}` is neither https nor http")),
    }
}

fn headers(server: &McpServerConfig) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let variable = |name: &str| std::env::var(name).ok();
    let header = |(name, value): (&String, &base::secret::Secret)| {
        let invalid = |_| format!("the header `{name}` cannot be sent");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid(()))?;
        let text = expand(value.reveal(), &variable)?;
        let mut value = HeaderValue::from_str(&text).map_err(|_| invalid(()))?;
        value.set_sensitive(true);
        Ok((key, value))
    };
    server.headers.iter().map(header).collect()
}

/// Returns the output of `bearer_token_command`.
async fn token(server: &McpServerConfig) -> Result<Option<String>, String> {
    let Some(command) = &server.bearer_token_command else { return Ok(None) };
    let failure = |error: String| format!("`bearer_token_command` failed: {error}");
    let argv = command.argv();
    let Some((program, args)) = argv.split_first() else {
        return Err(failure("it is empty".to_owned()));
    };
    let result =
        Command::new(program, "/").args(args).output_async(OutputLimits::seconds(60)).await;
    let output = result.map_err(|error| failure(error.to_string()))?;
    match output.text().trim() {
        token if output.ok() && !token.is_empty() => Ok(Some(token.to_owned())),
        _ if output.ok() => Err(failure("it printed nothing".to_owned())),
        _ => Err(failure(format!("it ended with code {}: {}", output.code(), output.error_text()))),
    }
}

/// Explains why there is no connection, with a hint.
fn explain(error_source: &ClientInitializeError) -> String {
    if error_source.is_authorization_required() || error_source.auth_challenge().is_some() {
        return "it requires a login: run `g3 mcp login NAME`; or let \
                `bearer_token_command` print a token"
            .to_owned();
    }
    let mut innermost: &dyn std::error::Error = error_source;
    if let ClientInitializeError::TransportError { error, .. } = error_source {
        innermost = error.error.as_ref();
    }
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    format!("no connection: {innermost}")
}
