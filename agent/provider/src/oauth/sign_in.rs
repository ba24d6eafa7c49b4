//! Runs a sign-in: discovery, browser, code, tokens, file.

use std::path::PathBuf;
use std::time::Duration;

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::test_hooks::TestHook;
use base::text::printable;

use super::DatabricksWorkspace;
use super::listen::{Callback, Listener};
use super::service::SignInService;
use super::store::TokenStore;
use crate::error::ProviderError;

/// The port that the client is registered with.
pub const PORT: u16 = 8020;

/// Returns the timeout for the user in the browser.
fn timeout() -> Duration {
    TestHook::LoginMs.number().map_or(Duration::from_secs(120), Duration::from_millis)
}

/// Signs in. `show_url` receives the URL for the user to open. Returns the path of the stored login.
pub async fn sign_in(
    workspace: &DatabricksWorkspace,
    port: u16,
    show_url: impl FnOnce(&str),
) -> Result<PathBuf> {
    let to_failure = |error: ProviderError| error.failure();
    let store = TokenStore::of(&workspace.host)?;
    let listener = Listener::open(port).await?;
    let mut service =
        SignInService::of(&workspace.host, workspace.allow_http).await.map_err(to_failure)?;
    let pending = service.begin(&listener.address()).map_err(to_failure)?;
    show_url(&pending.url);
    let Ok(callback) =
        tokio::time::timeout(timeout(), listener.wait_for_callback(&pending.state)).await
    else {
        return Err(Failure::failed("timed out waiting for the browser")
            .because(format!("waited {} s", timeout().as_secs_f64()))
            .hint(workspace.command()));
    };
    let code = match callback {
        Callback::Code(authorization) => authorization.code,
        Callback::Refused(reason) => {
            return Err(Failure::failed(format!("{} refused the sign-in", workspace.host))
                .because(printable(&reason)));
        }
    };
    let tokens =
        service.finish(pending, code, Clock::from_env().now()).await.map_err(to_failure)?;
    let written = tokio::task::spawn_blocking(move || -> Result<PathBuf> {
        let lock = store.take_lock()?;
        store.write(&tokens, &lock)?;
        Ok(store.path().to_owned())
    });
    written.await.or_fail(|| "cannot keep the login")?
}
