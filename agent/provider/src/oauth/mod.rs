//! Logins to a workspace, used in place of a key. The user signs in once through the browser (OAuth
//! 2.0 with PKCE). The login is stored below the user's own `~/.g3` and renewed when it expires or
//! is rejected.

pub mod listen;
pub mod service;
pub mod sign_in;
pub mod store;

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use base::clock::Clock;
use base::failure::Failure;
use base::lock::Lock;
use base::secret::{MASK, Secret};

use crate::error::{ProviderError, Refusal};
use service::SignInService;
use store::{OauthTokens, TokenStore};

/// A token that expires within this time is renewed before use.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);
/// Maximum time that g3 waits on exit for a renewal in progress.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The workspace that a login is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabricksWorkspace {
    /// `type.name`, for messages.
    pub reference: String,
    /// The origin, e.g. `https://x.cloud.databricks.com`.
    pub host: String,
    /// Whether plain `http` to other machines is allowed.
    pub allow_http: bool,
}

impl DatabricksWorkspace {
    /// Returns the command that creates a new login.
    pub(crate) fn command(&self) -> String {
        let (kind, name) = self.reference.split_once('.').unwrap_or((&self.reference, ""));
        format!("g3 login {kind} {name}").trim_end().to_owned()
    }
}

/// A login in use. Dropping it waits for renewals in progress, because g3 exits by dropping its
/// values.
pub(crate) struct OauthLogin {
    inner: Arc<Inner>,
    /// One receiver per renewal; it closes when the renewal is over.
    renewals: Mutex<Vec<Receiver<()>>>,
}

/// The state shared by renewals. Processes that share a login renew it one at a time, and each uses
/// the tokens that another process received, because a service may revoke a refresh token that is
/// used twice.
struct Inner {
    workspace: DatabricksWorkspace,
    store: TokenStore,
    tokens: Mutex<OauthTokens>,
    clock: Clock,
}

impl OauthLogin {
    /// Opens the stored login of a workspace. Fails with a hint if there is none.
    pub(crate) fn of(workspace: DatabricksWorkspace) -> Result<OauthLogin, Failure> {
        let store = TokenStore::of(&workspace.host)?;
        let Some(tokens) = store.read()? else {
            return Err(Failure::usage(format!("no login for {}", workspace.host))
                .because(format!("`{}` has use_oauth = true", workspace.reference))
                .hint(workspace.command())
                .hint("or take a token: `token` instead of `use_oauth`"));
        };
        let inner =
            Inner { workspace, store, tokens: Mutex::new(tokens), clock: Clock::from_env() };
        Ok(OauthLogin { inner: Arc::new(inner), renewals: Mutex::default() })
    }

    /// Returns a valid access token.
    pub(crate) async fn token(&self) -> Result<Secret, ProviderError> {
        let tokens = self.inner.tokens();
        if self.inner.is_valid(&tokens) {
            return Ok(tokens.access);
        }
        self.renew(&tokens.access).await
    }

    /// Returns a new token to replace `stale_token`, which was rejected or has expired. A renewal runs on
    /// its own thread and continues if the request is cancelled or g3 exits: the service revokes
    /// the old refresh token, so the new one must not be lost.
    pub(crate) async fn renew(&self, stale_token: &Secret) -> Result<Secret, ProviderError> {
        let (inner, stale_token) = (Arc::clone(&self.inner), stale_token.clone());
        let (tx, rx) = tokio::sync::oneshot::channel();
        let (running, ended) = channel::<()>();
        self.track_renewal(ended);
        thread::spawn(move || {
            let _running = running;
            let runtime = base::runtime::current_thread();
            let renew = runtime
                .map_err(|reason| ProviderError::Broken(reason.to_string()))
                .and_then(|runtime| runtime.block_on(inner.renew(&stale_token)));
            let _ = tx.send(renew);
        });
        rx.await.map_err(|reason| ProviderError::Broken(reason.to_string()))?
    }

    fn track_renewal(&self, renewal: Receiver<()>) {
        let mut renewals = base::sync::lock(&self.renewals);
        renewals.retain(|renewal| renewal.try_recv() == Err(TryRecvError::Empty));
        renewals.push(renewal);
    }

    /// Removes the tokens from a text for messages.
    pub(crate) fn redact_tokens(&self, text: &str) -> String {
        let tokens = self.inner.tokens();
        let secrets = [Some(&tokens.access), tokens.refresh.as_ref()];
        let secrets = secrets.into_iter().flatten().filter(|secret| secret.reveal().len() >= 4);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), MASK))
    }
}

impl Drop for OauthLogin {
    fn drop(&mut self) {
        let renewals = self.renewals.get_mut().unwrap_or_else(PoisonError::into_inner);
        for renewal in renewals {
            // The channel carries no value; it closes.
            let _ = renewal.recv_timeout(RENEWAL_TIMEOUT);
        }
    }
}

impl Inner {
    async fn renew(&self, stale_token: &Secret) -> Result<Secret, ProviderError> {
        let lock = self.take_lock().await?;
        let stored = self
            .store
            .read()
            .map_err(|failure| self.login_invalid(Refusal::new(failure.sentence())))?;
        let stored = stored.ok_or_else(|| self.login_invalid(Refusal::new("it was removed")))?;
        if stored.access != *stale_token && self.is_valid(&stored) {
            return Ok(self.store_tokens(stored));
        }
        let Some(refresh) = &stored.refresh else {
            return Err(self.login_invalid(Refusal::new("it has run out and cannot be renewed")));
        };
        let reserved = self.store.reserve(&lock).map_err(|failure| cannot_renew(&failure))?;
        let DatabricksWorkspace { host, allow_http, .. } = &self.workspace;
        let service = SignInService::of(host, *allow_http).await?;
        let renewed = match service.renew(refresh, self.clock.now()).await {
            Ok(renewed) => renewed,
            Err(ProviderError::Rejected(reason)) => return Err(self.login_invalid(reason)),
            Err(error) => return Err(error),
        };
        let renewed = OauthTokens { refresh: renewed.refresh.or(stored.refresh), ..renewed };
        let saved = self.store.write_reserved(reserved, &renewed);
        drop(lock);
        saved.map_err(|failure| self.login_invalid(Refusal::new(failure.sentence())))?;
        Ok(self.store_tokens(renewed))
    }

    async fn take_lock(&self) -> Result<Lock, ProviderError> {
        let store = self.store.clone();
        let result = tokio::task::spawn_blocking(move || store.take_lock()).await;
        let result = result.map_err(|error| ProviderError::Broken(error.to_string()))?;
        result.map_err(|failure| cannot_renew(&failure))
    }

    fn is_valid(&self, tokens: &OauthTokens) -> bool {
        tokens.expires.is_none_or(|end| {
            Duration::try_from(end.duration_since(self.clock.now()))
                .is_ok_and(|remaining| remaining > EXPIRY_MARGIN)
        })
    }

    fn tokens(&self) -> OauthTokens {
        base::sync::lock(&self.tokens).clone()
    }

    fn store_tokens(&self, tokens: OauthTokens) -> Secret {
        let access = tokens.access.clone();
        *base::sync::lock(&self.tokens) = tokens;
        access
    }

    fn login_invalid(&self, refusal: Refusal) -> ProviderError {
        let text =
            format!("the login for {} is not valid any more: {refusal}", self.workspace.host);
        Refusal { text, ..refusal }.hint(self.workspace.command()).into()
    }
}

/// Returns the error for a login whose renewal could not be saved on this machine. No tokens were
/// requested.
fn cannot_renew(failure: &Failure) -> ProviderError {
    Refusal::new(format!("cannot renew the login: {}", failure.sentence()))
        .hint("free disk space, or check the permissions of that file")
        .into()
}
