//! HTTP connections to hosted models. There is one client per provider, kept alive between turns.
//! Redirects are disabled because they would forward the key. There is no total timeout, only an
//! idle timeout.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use base::failure::Failure;
use base::secret::Secret;
use oauth2::{HttpRequest, HttpResponse};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};

use crate::error::{ProviderError, Refusal};

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Total timeout of a short exchange.
const SHORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size in bytes of the response of a short exchange.
const MAX_SHORT_BODY: usize = 1 << 20;

/// A URL to post to, with its headers and client.
pub struct Endpoint {
    url: Url,
    headers: HeaderMap,
    key: Option<Secret>,
    idle_timeout: Duration,
    client: OnceLock<Client>,
    /// The host of the service behind studio's proxy.
    service_host: Option<String>,
}

/// A response whose status and headers have arrived and whose body has not been read.
#[derive(Debug)]
pub struct StreamedResponse {
    response: Response,
    idle_timeout: Duration,
}

impl Endpoint {
    /// Creates an endpoint from a configured base URL and a path. Fails for plain `http` to another
    /// machine, unless `allow_http` is set.
    pub fn new(base: &str, path: &str, allow_http: bool) -> Result<Endpoint, Failure> {
        let url = address(base, path, allow_http)?;
        let idle_timeout = Duration::from_secs(120);
        let (headers, client) = (HeaderMap::new(), OnceLock::new());
        let services = std::env::var(base::sandbox::MODEL_SERVICES_VAR).unwrap_or_default();
        let service_host = service_host(&url, &services);
        Ok(Endpoint { url, headers, key: None, idle_timeout, client, service_host })
    }

    /// Adds a header that is not secret.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &'static str) -> Endpoint {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    /// Adds the header that carries the key: `prefix` followed by the key.
    pub fn key(
        mut self,
        name: &'static str,
        prefix: &str,
        key: Secret,
    ) -> Result<Endpoint, Failure> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", key.reveal()))
            .map_err(|_| Failure::usage("the provider's key contains invalid characters"))?;
        value.set_sensitive(true);
        self.headers.insert(HeaderName::from_static(name), value);
        self.key = Some(key);
        Ok(self)
    }

    /// Sets the idle timeout.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Endpoint {
        self.idle_timeout = timeout;
        self
    }

    /// Returns the host, for messages.
    pub fn host(&self) -> &str {
        let host = self.service_host.as_deref().or(self.url.host_str());
        host.unwrap_or_default()
    }

    /// Replaces the key in a text for messages.
    pub fn redact_key(&self, text: &str) -> String {
        match &self.key {
            Some(key) if key.reveal().len() >= 4 => text.replace(key.reveal(), "•••"),
            Some(_) | None => text.to_owned(),
        }
    }

    /// Posts a JSON body, with the token of a login if there is one. Waits for the status and
    /// headers.
    pub async fn post(
        &self,
        body: Vec<u8>,
        token: Option<&Secret>,
    ) -> Result<StreamedResponse, ProviderError> {
        let client = match self.client.get() {
            Some(client) => client,
            None => {
                let new_client =
                    client(&self.url).map_err(|error| tls_error(&innermost(&error)))?;
                self.client.get_or_init(|| new_client)
            }
        };
        let mut request = client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header("content-type", "application/json")
            .body(body);
        if let Some(token) = token {
            request = request.bearer_auth(token.reveal());
        }
        let request = request.send();
        match tokio::time::timeout(self.idle_timeout, request).await {
            Ok(Ok(response)) => Ok(StreamedResponse { response, idle_timeout: self.idle_timeout }),
            Ok(Err(error)) => Err(request_error(&self.url, &error)),
            Err(_) => Err(ProviderError::Broken(timeout_message(self.idle_timeout))),
        }
    }
}

/// Returns the host of the model service that a URL of studio's proxy leads to; `services` has one
/// line for each service, with both URLs.
fn service_host(url: &Url, services: &str) -> Option<String> {
    let service = services.lines().find_map(|line| {
        let (proxy, service) = line.split_once(' ')?;
        let rest = url.as_str().strip_prefix(proxy)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(service)
    });
    Url::parse(service?).ok()?.host_str().map(str::to_owned)
}

/// Sends one request with a short response and reads it to its end. Fails if [`address`] rejects
/// the URL.
pub async fn send_short(
    request: HttpRequest,
    allow_http: bool,
) -> Result<HttpResponse, ProviderError> {
    let url = address(&request.uri().to_string(), "", allow_http)
        .map_err(|failure| ProviderError::rejected(failure.sentence()))?;
    let client = client(&url).map_err(|error| tls_error(&innermost(&error)))?;
    let request =
        request.try_into().map_err(|error: reqwest::Error| request_error(&url, &error))?;
    let send = async {
        let mut received = client.execute(request).await?;
        let mut body = Vec::new();
        while let Some(bytes) = received.chunk().await?
            && body.len() <= MAX_SHORT_BODY
        {
            body.extend_from_slice(&bytes);
        }
        let mut response = HttpResponse::new(body);
        *response.status_mut() = received.status();
        *response.headers_mut() = std::mem::take(received.headers_mut());
        Ok(response)
    };
    match tokio::time::timeout(SHORT_TIMEOUT, send).await {
        Ok(Ok(response)) if response.body().len() > MAX_SHORT_BODY => {
            Err(ProviderError::Broken(format!("{} sends more than 1 MB", authority(&url))))
        }
        Ok(result) => result.map_err(|error| request_error(&url, &error)),
        Err(_) => Err(ProviderError::Broken(timeout_message(SHORT_TIMEOUT))),
    }
}

/// Parses a URL that may be requested: https, or plain http if it stays on this machine or
/// `allow_http` is set.
pub(crate) fn address(base: &str, path: &str, allow_http: bool) -> Result<Url, Failure> {
    let invalid =
        |reason: &str| Failure::usage(format!("invalid base_url `{base}`")).because(reason);
    let url = Url::parse(&format!("{}{path}", base.trim_end_matches('/')))
        .map_err(|error| invalid(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            invalid("it contains a user name or password").hint("put the key into `api_key`")
        );
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_http || is_loopback(&url) => Ok(url),
        "http" => Err(invalid("plain http would send the key and the code in the open")
            .hint("use https://")
            .hint("or set `allow_http = true` for this provider")),
        other => Err(invalid(&format!("`{other}` is neither https nor http"))),
    }
}

fn authority(url: &Url) -> String {
    let port = url.port_or_known_default().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}

fn request_error(url: &Url, error: &reqwest::Error) -> ProviderError {
    let cause = innermost(error);
    if cause.contains("certificate") {
        return tls_error(&cause);
    }
    if error.is_connect() {
        return ProviderError::Unreachable(format!("cannot reach {}: {cause}", authority(url)));
    }
    ProviderError::Broken(format!("no answer came: {cause}"))
}

impl StreamedResponse {
    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns a header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns the next bytes of the body, or `None` at its end. Waits at most `limit`, or the idle
    /// timeout of the endpoint if that is shorter.
    pub async fn next(&mut self, limit: Option<Duration>) -> Result<Option<Vec<u8>>, String> {
        let idle_timeout = limit.unwrap_or(self.idle_timeout).min(self.idle_timeout);
        match tokio::time::timeout(idle_timeout, self.response.chunk()).await {
            Ok(Ok(bytes)) => Ok(bytes.map(Into::into)),
            Ok(Err(error)) => Err(innermost(&error)),
            Err(_) => Err(timeout_message(idle_timeout)),
        }
    }

    /// Returns the first bytes of the body, at most `max`. Read errors are ignored.
    pub async fn head(mut self, max: usize) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < max
            && let Ok(Some(bytes)) = self.next(Some(Duration::from_secs(5))).await
        {
            body.extend(bytes);
        }
        body.truncate(max);
        body
    }
}

/// Returns the error for an untrusted certificate or missing root certificates. Retrying does not
/// help.
fn tls_error(reason: &str) -> ProviderError {
    Refusal::new(format!("no secure connection: {reason}"))
        .hint("apt-get install ca-certificates")
        .hint("or name a file of trusted certificates: export SSL_CERT_FILE=…")
        .into()
}

fn timeout_message(timeout: Duration) -> String {
    format!("nothing came for {} s", timeout.as_secs_f64())
}

/// Whether an address is on this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the innermost source of an error, which says what happened; the outer errors only say
/// where.
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

/// Creates a client for a URL. It follows no redirects, and for a loopback address it connects only
/// to this machine.
pub fn client(url: &Url) -> reqwest::Result<Client> {
    let mut client = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("g3/", env!("CARGO_PKG_VERSION")));
    if is_loopback(url) {
        client = client.no_proxy();
        if url.scheme() == "http" {
            // Loading the system's certificates takes longer than a turn with a local server.
            return client.tls_backend_preconfigured(tls_without_roots()).build();
        }
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    client.build()
}

/// Creates a client that connects only to these addresses, without a proxy and without redirects.
pub fn pinned_client(url: &Url, addresses: &[SocketAddr]) -> reqwest::Result<Client> {
    let client = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("g3/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .resolve_to_addrs(url.host_str().unwrap_or_default(), addresses);
    if url.scheme() == "http" {
        return client.tls_backend_preconfigured(tls_without_roots()).build();
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    client.build()
}

fn tls_without_roots() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_behind_the_proxy_keeps_its_host() {
        let services = "http://127.0.0.1:9/token/openai https://api.openai.com/v1\n";
        let host = |url: &str| service_host(&Url::parse(url).unwrap(), services);
        let proxied = host("http://127.0.0.1:9/token/openai/chat/completions");
        assert_eq!(proxied.as_deref(), Some("api.openai.com"));
        assert_eq!(host("http://127.0.0.1:9/token/openai"), proxied);
        assert_eq!(host("http://127.0.0.1:9/token/openai-other/x"), None);
        assert_eq!(host("http://127.0.0.1:9/v1/chat/completions"), None);
    }
}
