//! OAuth logins to servers: created once in a browser, stored in a file of the user, and renewed
//! automatically.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use base::config::mcp::McpServerConfig;
use base::config::trust::hash;
use reqwest::Client;
use rmcp::transport::auth::{
    AuthClient, AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession,
    CredentialStore, StoredCredentials,
};

use super::http;
use provider::http as door;
use provider::oauth::listen::{Callback, Listener};

/// Timeout for the user in the browser.
const PATIENCE: Duration = Duration::from_secs(600);

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
pub(crate) fn is_there(server: &McpServerConfig) -> bool {
    file(server).is_some_and(|file| file.exists())
}

/// Deletes a login. Returns whether there was one.
pub fn forget(server: &McpServerConfig) -> std::io::Result<bool> {
    match file(server).map(std::fs::remove_file) {
        Some(Ok(())) => Ok(true),
        Some(Err(why)) if why.kind() != std::io::ErrorKind::NotFound => Err(why),
        Some(Err(_)) | None => Ok(false),
    }
}

/// Returns the client of a server with a login.
pub(crate) async fn client(server: &McpServerConfig) -> Result<AuthClient<Client>, String> {
    let url = http::address(server)?;
    let mut manager = manager(server).await?;
    let known = manager.initialize_from_store().await.map_err(|why| lost(&why))?;
    if !known {
        return Err("its login has expired; run `g3 mcp login`".to_owned());
    }
    let client = door::client(&url).map_err(|why| why.to_string())?;
    Ok(AuthClient::new(client, manager))
}

async fn manager(server: &McpServerConfig) -> Result<AuthorizationManager, String> {
    let url = http::address(server)?;
    // The library's own client uses this TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut manager = AuthorizationManager::new(url).await.map_err(|why| lost(&why))?;
    let file = file(server).ok_or("no home directory for the login")?;
    manager.set_credential_store(LoginStore(file));
    Ok(manager)
}

fn lost(why: &AuthError) -> String {
    format!("no login: {why}")
}

/// Starts a login: discovers the authorization server and registers there.
pub async fn begin(server: &McpServerConfig) -> Result<PendingLogin, String> {
    let mut manager = manager(server).await?;
    let found = manager.resolve_metadata().await.map_err(|why| lost(&why))?;
    manager.set_metadata(found.metadata);
    let listener = Listener::open(0).await.map_err(|why| why.sentence())?;
    let redirect = format!("{}/", listener.address());
    let request = AuthorizationRequest::new(redirect).with_client_name("g3");
    let session = AuthorizationSession::new(manager, request).await;
    let session = session.map_err(|(_, why)| lost(&why))?;
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
        let waited = tokio::time::timeout(PATIENCE, self.listener.answer(&state)).await;
        let visit = match waited.map_err(|_| "timed out after 10 minutes".to_owned())? {
            Callback::Code(visit) => visit,
            Callback::Refused(why) => return Err(format!("the login was refused: {why}")),
        };
        let done = self.session.handle_callback_url(&visit.url).await;
        done.map(drop).map_err(|why| lost(&why))
    }
}

/// Returns the `state` of a URL, which identifies the redirect that belongs to this login.
fn state_of(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address).ok()?;
    let state = url.query_pairs().find(|(key, _)| key == "state")?.1.into_owned();
    Some(state)
}

fn broken(why: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(why.to_string())
}

#[async_trait]
impl CredentialStore for LoginStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        match std::fs::read(&self.0) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(broken),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(broken(why)),
        }
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let parent = self.0.parent().unwrap_or(&self.0);
        std::fs::create_dir_all(parent).map_err(broken)?;
        base::files::replace_json(&self.0, &credentials).map_err(broken)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        match std::fs::remove_file(&self.0) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(broken(why)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
