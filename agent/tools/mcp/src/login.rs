//! OAuth logins to servers: created once in a browser, stored in a file of the user, and renewed
//! automatically.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use base::config::mcp::{McpServerConfig, expand};
use base::config::trust::hash;
use reqwest::Client;
use rmcp::transport::auth::{
    AuthClient, AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession,
    CredentialStore, OAuthClientConfig, StoredCredentials,
};

use super::http;
use provider::http as door;
use provider::oauth::listen::{CALLBACK_PATH, Callback, Listener};

/// Timeout for the user in the browser.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A login that waits for the user.
pub struct PendingLogin {
    session: AuthorizationSession,
    listener: Listener,
}

/// The stored login of a URL; the file is readable only by its owner.
struct LoginStore(PathBuf);

/// Returns the file of a server's login, or `None` without a home directory.
fn file(server: &McpServerConfig) -> Option<PathBuf> {
    let name = format!("{}.json", hash(server.url.as_deref()?.as_bytes()));
    Some(base::config::layers::directory()?.join("mcp-logins").join(name))
}

/// Whether there is a login for this server.
pub(crate) fn exists(server: &McpServerConfig) -> bool {
    file(server).is_some_and(|file| file.exists())
}

/// Deletes a login. Returns whether there was one.
pub fn forget(server: &McpServerConfig) -> std::io::Result<bool> {
    match file(server).map(std::fs::remove_file) {
        Some(Ok(())) => Ok(true),
        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Some(Err(_)) | None => Ok(false),
    }
}

/// Returns the client of a server with a login.
pub(crate) async fn client(server: &McpServerConfig) -> Result<AuthClient<Client>, String> {
    let url = http::address(server)?;
    let mut manager = manager(server).await?;
    let is_stored = manager.initialize_from_store().await.map_err(|error| login_error(&error))?;
    if !is_stored {
        return Err("its login has expired; run `g3 mcp login`".to_owned());
    }
    if let (Some(id), Some(secret)) = (&server.client_id, client_secret(server)?) {
        // The secret is not stored with the login.
        let config = OAuthClientConfig::new(id.as_str(), url.as_str()).with_client_secret(secret);
        manager.configure_client(config).map_err(|error| login_error(&error))?;
    }
    let client = door::client(&url).map_err(|error| error.to_string())?;
    Ok(AuthClient::new(client, manager))
}

/// Returns the secret of a client that was registered by hand.
fn client_secret(server: &McpServerConfig) -> Result<Option<String>, String> {
    let secret = server.client_secret.as_ref();
    secret.map(|secret| expand(secret.reveal(), &|name| std::env::var(name).ok())).transpose()
}

async fn manager(server: &McpServerConfig) -> Result<AuthorizationManager, String> {
    let url = http::address(server)?;
    // The library's own client uses this TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut manager = AuthorizationManager::new(url).await.map_err(|error| login_error(&error))?;
    let file = file(server).ok_or("no home directory for the login")?;
    manager.set_credential_store(LoginStore(file));
    Ok(manager)
}

fn login_error(error: &AuthError) -> String {
    format!("no login: {error}")
}

/// Starts a login: discovers the authorization server and registers there.
pub async fn begin(server: &McpServerConfig) -> Result<PendingLogin, String> {
    let mut manager = manager(server).await?;
    let metadata = manager.resolve_metadata().await.map_err(|error| login_error(&error))?;
    manager.set_metadata(metadata.metadata);
    let port = server.callback_port.unwrap_or_default();
    let listener = Listener::open(port).await.map_err(|error| error.sentence())?;
    let redirect = format!("{}{CALLBACK_PATH}", listener.address());
    let mut request = AuthorizationRequest::new(redirect)
        .with_client_name("g3")
        .with_scopes(server.scopes.clone());
    if let Some(id) = &server.client_id {
        request = request.with_preregistered_client(id.as_str());
        if let Some(secret) = client_secret(server)? {
            request = request.with_client_secret(secret);
        }
    }
    let session = AuthorizationSession::new(manager, request).await;
    let session = session.map_err(|(_, error)| match error {
        AuthError::RegistrationFailed(_) => format!(
            "{}; register a client by hand, with the redirect URL http://localhost:PORT{CALLBACK_PATH}, \
             and set its `client_id` and `callback_port`",
            login_error(&error)
        ),
        error => login_error(&error),
    })?;
    Ok(PendingLogin { session, listener })
}

impl PendingLogin {
    /// Returns the URL to open in a browser.
    pub fn address(&self) -> &str {
        self.session.get_authorization_url()
    }

    /// Waits for the redirect of the browser, and stores the login.
    pub async fn finish(self) -> Result<(), String> {
        let state = state_of(self.address()).ok_or("the address of the login has no state")?;
        let wait_result =
            tokio::time::timeout(TIMEOUT, self.listener.wait_for_callback(&state)).await;
        let authorization =
            match wait_result.map_err(|_| "timed out after 10 minutes".to_owned())? {
                Callback::Code(authorization) => authorization,
                Callback::Refused(error) => return Err(format!("the login was refused: {error}")),
            };
        let result = self.session.handle_callback_url(&authorization.url).await;
        result.map(drop).map_err(|error| login_error(&error))
    }
}

/// Returns the `state` of a URL, which identifies the redirect that belongs to this login.
fn state_of(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address).ok()?;
    let state = url.query_pairs().find(|(key, _)| key == "state")?.1.into_owned();
    Some(state)
}

fn store_error(error: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for LoginStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        match std::fs::read(&self.0) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(store_error),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(store_error(error)),
        }
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let parent = self.0.parent().unwrap_or(&self.0);
        std::fs::create_dir_all(parent).map_err(store_error)?;
        base::files::replace_json(&self.0, &credentials).map_err(store_error)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(store_error(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
