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
fn patience() -> Duration {
    TestHook::LoginMs.number().map_or(Duration::from_secs(120), Duration::from_millis)
}

/// Signs in. `show` receives the URL for the user to open. Returns the path of the stored login.
pub async fn sign_in(
    workspace: &DatabricksWorkspace,
    port: u16,
    show: impl FnOnce(&str),
) -> Result<PathBuf> {
    let told = |error: ProviderError| error.failure();
    let store = TokenStore::of(&workspace.host)?;
    let listener = Listener::open(port).await?;
    let mut service =
        SignInService::of(&workspace.host, workspace.allow_http).await.map_err(told)?;
    let begun = service.begin(&listener.address()).map_err(told)?;
    show(&begun.url);
    let Ok(answer) = tokio::time::timeout(patience(), listener.answer(&begun.state)).await else {
        return Err(Failure::failed("timed out waiting for the browser")
            .because(format!("waited {} s", patience().as_secs_f64()))
            .hint(workspace.command()));
    };
    let code = match answer {
        Callback::Code(visit) => visit.code,
        Callback::Refused(why) => {
            return Err(Failure::failed(format!("{} refused the sign-in", workspace.host))
                .because(printable(&why)));
        }
    };
    let tokens = service.finish(begun, code, Clock::from_env().now()).await.map_err(told)?;
    let locked = tokio::task::spawn_blocking(move || -> Result<PathBuf> {
        let held = store.locked()?;
        store.write(&tokens, &held)?;
        Ok(store.path().to_owned())
    });
    locked.await.or_fail(|| "cannot keep the login")?
}
