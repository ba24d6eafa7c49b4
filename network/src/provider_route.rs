//! Requests to model services: the proxy adds the key, so that it stays outside of the sandbox.

use std::fmt;
use std::sync::Arc;

use base::secret::Secret;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use reqwest::{Client, Url};
use tokio::sync::Mutex;

/// The header that carries the key of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization: Bearer KEY`.
    Bearer,
    /// `x-api-key: KEY`.
    XApiKey,
    /// `x-goog-api-key: KEY`.
    XGoogApiKey,
}

/// Returns the key of a service, or why there is none. It may block.
pub type KeyLookup = Arc<dyn Fn() -> Result<Secret, String> + Send + Sync>;

/// A model service that a sandbox reaches through the proxy.
pub struct ProviderRoute {
    name: String,
    base: Url,
    key: RouteKey,
    client: Client,
}

/// The key that a route adds.
enum RouteKey {
    /// None.
    Absent,
    /// A key that does not change.
    Fixed(HeaderName, HeaderValue),
    /// A key that is looked up with the first request, and again after the service rejected it.
    Lookup { header: KeyHeader, lookup: KeyLookup, found: Mutex<Option<HeaderValue>> },
}

impl fmt::Debug for ProviderRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderRoute({} -> {})", self.name, self.base)
    }
}

impl KeyHeader {
    fn name(self) -> HeaderName {
        HeaderName::from_static(match self {
            KeyHeader::Bearer => "authorization",
            KeyHeader::XApiKey => "x-api-key",
            KeyHeader::XGoogApiKey => "x-goog-api-key",
        })
    }

    fn value(self, key: &Secret) -> Result<HeaderValue, String> {
        let text = match self {
            KeyHeader::Bearer => format!("Bearer {}", key.reveal()),
            KeyHeader::XApiKey | KeyHeader::XGoogApiKey => key.reveal().to_owned(),
        };
        let value = HeaderValue::from_str(&text);
        let mut value = value.map_err(|_| "the key has invalid characters".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// The headers that may carry a key or belong to one connection only.
const DROPPED_HEADERS: [&str; 16] = [
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "cookie",
    "host",
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
];

impl ProviderRoute {
    /// Creates a route with this name to the service at a base URL. Without a key, requests are
    /// forwarded without one.
    pub fn new(
        name: &str,
        base_url: &str,
        key: Option<(KeyHeader, &Secret)>,
    ) -> Result<ProviderRoute, String> {
        let base = Url::parse(base_url).map_err(|error| format!("invalid base URL: {error}"))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err("invalid base URL: it is neither http nor https".to_owned());
        }
        let key = match key {
            Some((header, key)) => RouteKey::Fixed(header.name(), header.value(key)?),
            None => RouteKey::Absent,
        };
        let client = client(&base).map_err(|error| error.to_string())?;
        Ok(ProviderRoute { name: name.to_owned(), base, key, client })
    }

    /// Creates a route whose key is looked up when a request needs it.
    pub fn with_lookup(
        name: &str,
        base_url: &str,
        header: KeyHeader,
        lookup: KeyLookup,
    ) -> Result<ProviderRoute, String> {
        let key = RouteKey::Lookup { header, lookup, found: Mutex::default() };
        Ok(ProviderRoute { key, ..ProviderRoute::new(name, base_url, None)? })
    }

    /// Returns its name, the second part of its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client that keeps connections to the service.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the URL of the service for the rest of a request's path and its query; `None` if it
    /// leaves the base URL.
    pub(crate) fn url(&self, rest: &str, query: Option<&str>) -> Option<Url> {
        let is_parent = |part: &str| {
            let part = part.to_ascii_lowercase().replace("%2e", ".");
            matches!(part.as_str(), "." | "..") || part.contains("%2f") || part.contains('\\')
        };
        if rest.split('/').any(is_parent) {
            return None;
        }
        let mut url = self.base.clone();
        url.set_path(&format!("{}{rest}", self.base.path().trim_end_matches('/')));
        // Some services accept the key in the query.
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let kept: Vec<&str> = pairs.filter(|pair| !pair.starts_with("key=")).collect();
        url.set_query(Some(kept.join("&")).as_deref().filter(|query| !query.is_empty()));
        Some(url)
    }

    /// Returns the header with the key, or why there is none. Requests that need a key at the same
    /// time wait for one lookup.
    pub(crate) async fn key(&self) -> Result<Option<(HeaderName, HeaderValue)>, String> {
        match &self.key {
            RouteKey::Absent => Ok(None),
            RouteKey::Fixed(name, value) => Ok(Some((name.clone(), value.clone()))),
            RouteKey::Lookup { header, lookup, found } => {
                let mut found = found.lock().await;
                if let Some(value) = &*found {
                    return Ok(Some((header.name(), value.clone())));
                }
                let lookup = lookup.clone();
                let key = tokio::task::spawn_blocking(move || lookup()).await;
                let value = header.value(&key.map_err(|error| error.to_string())??)?;
                *found = Some(value.clone());
                Ok(Some((header.name(), value)))
            }
        }
    }

    /// Forgets a key that the service rejected, unless another one has been found since.
    pub(crate) async fn forget_key(&self, rejected: &HeaderValue) {
        if let RouteKey::Lookup { found, .. } = &self.key {
            found.lock().await.take_if(|value| value == rejected);
        }
    }

    /// Returns the headers of the request to the service, with this key.
    pub(crate) fn headers(
        &self,
        received: &HeaderMap,
        key: Option<&(HeaderName, HeaderValue)>,
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in received {
            if !DROPPED_HEADERS.contains(&name.as_str()) {
                headers.append(name.clone(), value.clone());
            }
        }
        if let Some((name, value)) = key {
            headers.insert(name.clone(), value.clone());
        }
        headers
    }
}

/// Creates a client that follows no redirects, which would forward the key, and that changes no
/// body. It uses the user's own proxy, if there is one.
fn client(base: &Url) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .connect_timeout(std::time::Duration::from_secs(20))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_gzip();
    let host = base.host_str().unwrap_or_default();
    let is_loopback = crate::host::Host::parse(host).is_some_and(|host| host.is_loopback());
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    if base.scheme() == "http" {
        // Loading the system's certificates takes time.
        return builder.tls_backend_preconfigured(tls_without_roots()).build();
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder.build()
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

    fn route() -> ProviderRoute {
        let key = Secret::new("real");
        let base = "https://api.example/v1/";
        ProviderRoute::new("openai", base, Some((KeyHeader::Bearer, &key))).unwrap()
    }

    #[tokio::test]
    async fn the_key_replaces_every_key_of_the_sandbox() {
        let mut received = HeaderMap::new();
        for name in ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "host"] {
            received.insert(name, HeaderValue::from_static("placeholder"));
        }
        received.insert("accept", HeaderValue::from_static("text/event-stream"));
        let key = route().key().await.unwrap();
        let headers = route().headers(&received, key.as_ref());
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["authorization"], "Bearer real");
        assert!(!format!("{headers:?}").contains("real"));
        assert!(!format!("{:?}", route()).contains("real"));
    }

    #[test]
    fn a_path_stays_below_the_base_url() {
        let route = route();
        let url = |rest: &str, query| route.url(rest, query).map(String::from);
        let base = "https://api.example/v1";
        assert_eq!(url("/models", None), Some(format!("{base}/models")));
        assert_eq!(url("/m", Some("alt=sse&key=p")), Some(format!("{base}/m?alt=sse")));
        assert_eq!(url("//evil.example/x", None), Some(format!("{base}//evil.example/x")));
        for rest in ["/../admin", "/a/%2E%2e/b", "/..%2fadmin", "/..\\admin"] {
            assert_eq!(url(rest, None), None, "{rest}");
        }
        assert!(ProviderRoute::new("x", "file:///etc/passwd", None).is_err());
    }
}
