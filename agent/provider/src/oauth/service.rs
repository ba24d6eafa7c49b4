//! The sign-in service of a workspace: discovers its endpoints, exchanges a code for tokens, and
//! renews them. The protocol comes from the `oauth2` crate; requests use our own client.

use std::time::Duration;

use base::secret::Secret;
use base::text::{head, printable};
use jiff::Timestamp;
use oauth2::basic::{BasicClient, BasicTokenResponse};
use oauth2::http::{Method, StatusCode};
use oauth2::{
    AuthUrl, AuthorizationCode, ClientId, CsrfToken, EndpointNotSet, EndpointSet, HttpRequest,
    HttpResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken,
    RequestTokenError, Scope, TokenResponse, TokenUrl,
};
use serde::Deserialize;

use super::store::OauthTokens;
use crate::error::{ProviderError, Refusal};
use crate::http;

/// The public client id that every workspace accepts; it has no secret.
pub(crate) const CLIENT_ID: &str = "databricks-cli";
const SCOPES: [&str; 2] = ["all-apis", "offline_access"];
/// Path of the workspace's endpoint metadata (RFC 8414).
const METADATA_PATH: &str = "/oidc/.well-known/oauth-authorization-server";

type Client = BasicClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointSet>;

/// The sign-in service of a workspace.
pub(crate) struct SignInService {
    client: Client,
    allow_http: bool,
}

/// A sign-in that waits for its code.
pub(crate) struct PendingSignIn {
    /// The URL for the user to open.
    pub url: String,
    /// The state that the redirect must carry.
    pub state: String,
    verifier: PkceCodeVerifier,
}

#[derive(Deserialize)]
struct Addresses {
    authorization_endpoint: String,
    token_endpoint: String,
}

impl SignInService {
    /// Discovers the sign-in service of a workspace.
    pub(crate) async fn of(host: &str, allow_http: bool) -> Result<SignInService, ProviderError> {
        let uri = format!("{host}{METADATA_PATH}");
        let unavailable = |reason: String| -> ProviderError {
            Refusal::new(format!("{host} offers no sign-in: {reason}"))
                .hint("check `host`: a workspace's address")
                .into()
        };
        let mut request = HttpRequest::new(Vec::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() =
            uri.parse().map_err(|_| unavailable("its address makes no sense".into()))?;
        let response = send(request, allow_http).await?;
        if response.status() != StatusCode::OK {
            return Err(unavailable(format!("HTTP {}", response.status().as_u16())));
        }
        let endpoints: Addresses = serde_json::from_slice(response.body())
            .map_err(|_| unavailable("its answer names no addresses".to_owned()))?;
        for address in [&endpoints.authorization_endpoint, &endpoints.token_endpoint] {
            http::address(address, "", allow_http)
                .map_err(|failure| unavailable(failure.sentence()))?;
        }
        let invalid_url = |error: oauth2::url::ParseError| unavailable(error.to_string());
        let client = BasicClient::new(ClientId::new(CLIENT_ID.to_owned()))
            .set_auth_uri(AuthUrl::new(endpoints.authorization_endpoint).map_err(invalid_url)?)
            .set_token_uri(TokenUrl::new(endpoints.token_endpoint).map_err(invalid_url)?);
        Ok(SignInService { client, allow_http })
    }

    /// Starts a sign-in that redirects to `redirect`.
    pub(crate) fn begin(&mut self, redirect: &str) -> Result<PendingSignIn, ProviderError> {
        let redirect = RedirectUrl::new(redirect.to_owned())
            .map_err(|error| ProviderError::rejected(error.to_string()))?;
        self.client = self.client.clone().set_redirect_uri(redirect);
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let (url, state) = self
            .client
            .authorize_url(CsrfToken::new_random)
            .add_scopes(SCOPES.map(|scope| Scope::new(scope.to_owned())))
            .set_pkce_challenge(challenge)
            .url();
        Ok(PendingSignIn { url: url.into(), state: state.into_secret(), verifier })
    }

    /// Exchanges the code of a sign-in for tokens.
    pub(crate) async fn finish(
        &self,
        pending: PendingSignIn,
        code: String,
        now: Timestamp,
    ) -> Result<OauthTokens, ProviderError> {
        let allow_http = self.allow_http;
        let http = |request| send(request, allow_http);
        let result = self
            .client
            .exchange_code(AuthorizationCode::new(code))
            .set_pkce_verifier(pending.verifier)
            .request_async(&http)
            .await;
        result.map(|response| tokens(&response, now)).map_err(error)
    }

    /// Exchanges a refresh token for new tokens.
    pub(crate) async fn renew(
        &self,
        refresh: &Secret,
        now: Timestamp,
    ) -> Result<OauthTokens, ProviderError> {
        let allow_http = self.allow_http;
        let http = |request| send(request, allow_http);
        let refresh = RefreshToken::new(refresh.reveal().to_owned());
        let result = self.client.exchange_refresh_token(&refresh).request_async(&http).await;
        result.map(|response| tokens(&response, now)).map_err(error)
    }
}

/// Sends a request. An overload of the service is not reported as a refusal.
async fn send(request: HttpRequest, allow_http: bool) -> Result<HttpResponse, ProviderError> {
    let response = http::send_short(request, allow_http).await?;
    match response.status().as_u16() {
        429 => Err(ProviderError::RateLimited { after: None }),
        status @ 500.. => {
            Err(ProviderError::Overloaded(format!("HTTP {status} from the sign-in service")))
        }
        _ => Ok(response),
    }
}

fn tokens(response: &BasicTokenResponse, now: Timestamp) -> OauthTokens {
    let expiry = |lifetime: Duration| now.checked_add(lifetime).ok();
    OauthTokens {
        access: Secret::new(response.access_token().secret().as_str()),
        refresh: response.refresh_token().map(|token| Secret::new(token.secret().as_str())),
        expires: response.expires_in().and_then(expiry),
    }
}

type OauthErrorBody = RequestTokenError<ProviderError, oauth2::basic::BasicErrorResponse>;

/// Converts an error. Omits a body that could not be parsed, since it may contain a token.
fn error(failed: OauthErrorBody) -> ProviderError {
    match failed {
        RequestTokenError::Request(error) => error,
        RequestTokenError::ServerResponse(body) => {
            let kind = body.error().to_string();
            let description = body.error_description().map(|text| head(text, 200));
            let text = description.map_or_else(|| kind.clone(), |text| format!("{kind}: {text}"));
            ProviderError::rejected(format!("the sign-in service says {}", printable(&text)))
        }
        RequestTokenError::Parse(..) | RequestTokenError::Other(_) => {
            ProviderError::Broken("the sign-in service's answer cannot be read".to_owned())
        }
    }
}
