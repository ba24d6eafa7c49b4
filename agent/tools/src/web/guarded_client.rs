//! A client for web pages that protects private networks: the host is resolved once, every address
//! is checked, and the connection goes only to these addresses. Hosts that resolve to private
//! addresses are rejected.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use reqwest::{Client, Url};

use crate::output::{ToolError, ToolErrorKind};
use base::address;
use gate::{Access, Gate, PermissionQuestion, hosts};
use provider::http;

/// Resolves host names.
pub trait Resolver: Send + Sync {
    /// Returns all addresses of a host.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((host, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}

/// A client with the allowed hosts and a resolver.
pub struct GuardedClient<'a> {
    /// The hosts in `[tools.webfetch] allow_hosts`.
    pub allowed: &'a [String],
    /// Resolves host names.
    pub resolver: &'a dyn Resolver,
    /// Asks the user about addresses that are not public.
    pub gate: &'a Gate,
    /// Non-public hosts that the user approved, as host and port.
    approved: Mutex<Vec<String>>,
}

/// A host whose addresses were checked.
#[derive(Debug)]
pub struct ResolvedHost {
    /// A client that connects only to the checked addresses and follows no redirects.
    pub client: Client,
    /// The checked addresses.
    pub addresses: Vec<IpAddr>,
}

impl<'a> GuardedClient<'a> {
    /// Creates a client that uses this gate for hosts that are not allowed in the configuration.
    pub fn new(
        allowed: &'a [String],
        resolver: &'a dyn Resolver,
        gate: &'a Gate,
    ) -> GuardedClient<'a> {
        GuardedClient { allowed, resolver, gate, approved: Mutex::default() }
    }

    /// Checks the addresses of a URL's host and creates a client that connects only to them.
    pub async fn open(&self, url: &Url) -> Result<ResolvedHost, ToolError> {
        if std::env::var_os(base::sandbox::NETWORK_VAR).is_some() {
            // studio's proxy resolves the name and checks its addresses.
            let client = http::client(url)
                .map_err(|error| ToolError::failed(format!("cannot make a connection: {error}")))?;
            return Ok(ResolvedHost { client, addresses: Vec::new() });
        }
        let host = host(url);
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolve_host(url, &host).await?,
        };
        let non_public = addresses
            .iter()
            .find_map(|address| Some((*address, address::non_public_reason(*address)?)));
        if let Some((address, reason)) = non_public.filter(|_| !is_allowed(self.allowed, url)) {
            self.ask(url, address, reason).await?;
        }
        let pinned: Vec<SocketAddr> =
            addresses.iter().map(|address| (*address, 0).into()).collect();
        let client = http::pinned_client(url, &pinned)
            .map_err(|error| ToolError::failed(format!("cannot make a connection: {error}")))?;
        Ok(ResolvedHost { client, addresses })
    }

    /// Asks whether a non-public host may be fetched; once per host.
    async fn ask(&self, url: &Url, address: IpAddr, reason: &str) -> Result<(), ToolError> {
        let host_and_port = host_and_port(url);
        let approved = || base::sync::lock(&self.approved);
        if approved().contains(&host_and_port) {
            return Ok(());
        }
        let answer = self.gate.ask(&build_question(url, address, reason)).await;
        answer.map_err(|denied| ToolError::new(ToolErrorKind::Denied, denied.reason))?;
        approved().push(host_and_port);
        Ok(())
    }

    async fn resolve_host(&self, url: &Url, host: &str) -> Result<Vec<IpAddr>, ToolError> {
        let unknown =
            |reason: String| ToolError::failed(format!("cannot find the host of {url}: {reason}"));
        let addresses =
            self.resolver.resolve(host).await.map_err(|error| unknown(error.to_string()))?;
        if addresses.is_empty() {
            Err(unknown("it has no address".to_owned()))
        } else {
            Ok(addresses)
        }
    }
}

/// Returns the host of a URL in lower case, without brackets and without a trailing dot.
pub fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().to_lowercase();
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_owned()
}

/// Returns what fetching a URL accesses, for the gate. It is free for a host that the user allowed
/// in the configuration or permanently. A non-public host is asked about once its address is known.
pub fn access(allowed: &[String], url: &Url) -> Access {
    let host = host(url);
    let is_free = is_allowed(allowed, url) || is_private(url) || hosts::is_always_allowed(&host);
    Access::Fetch { host, allowed: is_free }
}

/// Whether the user allows the host, as `name` or as `name:port`.
pub fn is_allowed(allowed: &[String], url: &Url) -> bool {
    let (host, port) = (host(url), url.port_or_known_default().unwrap_or_default());
    allowed.iter().any(|entry| {
        let entry = entry.trim().to_lowercase();
        let strip_brackets =
            |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
        let with_port =
            entry.rsplit_once(':').map(|(name, port)| (strip_brackets(name), port.to_owned()));
        strip_brackets(&entry) == host || with_port == Some((host.clone(), port.to_string()))
    })
}

/// Whether a URL is recognizably non-public without a lookup.
fn is_private(url: &Url) -> bool {
    let host = host(url);
    let is_local = host == "localhost" || host.ends_with(".localhost");
    is_local
        || host.parse::<IpAddr>().is_ok_and(|address| address::non_public_reason(address).is_some())
}

/// Returns host and port.
fn host_and_port(url: &Url) -> String {
    let (host, port) = (host(url), url.port_or_known_default().unwrap_or_default());
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn build_question(url: &Url, address: IpAddr, reason: &str) -> PermissionQuestion {
    let host = host(url);
    let subject =
        if host == address.to_string() { String::new() } else { format!(" is {address}, which") };
    PermissionQuestion {
        tool: "webfetch".to_owned(),
        what: format!("fetch {url}"),
        reason: format!(
            "`{host}`{subject} is {reason}, and only the public web is fetched unasked"
        ),
        rule: format!(
            "[tools.webfetch]\nallow_hosts = [{}]",
            toml::Value::from(host_and_port(url))
        ),
        host: None,
        writes: None,
        details: None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Returns the next scripted answer on each lookup.
    struct Scripted(Mutex<Vec<Vec<&'static str>>>);

    impl Scripted {
        fn new(answers: &[&[&'static str]]) -> Scripted {
            Scripted(Mutex::new(answers.iter().rev().map(|answer| answer.to_vec()).collect()))
        }

        fn left(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    impl Resolver for Scripted {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            let next = self.0.lock().unwrap().pop();
            let next = next.ok_or_else(|| io::Error::other("asked once too often"));
            Box::pin(std::future::ready(
                next.map(|all| all.iter().map(|address| address.parse().unwrap()).collect()),
            ))
        }
    }

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[tokio::test]
    async fn divergence_27_a_name_that_resolves_to_a_private_address_is_rejected_on_every_lookup() {
        let rebinds = Scripted::new(&[&["93.184.216.34"], &["127.0.0.1"], &["1.1.1.1", "::1"]]);
        let gate = Gate::default();
        let door = GuardedClient::new(&[], &rebinds, &gate);
        let way = door.open(&url("http://rebind.test/")).await.unwrap();
        assert_eq!(way.addresses, ["93.184.216.34".parse::<IpAddr>().unwrap()]);
        for _ in 0..2 {
            let why = door.open(&url("http://rebind.test/")).await.unwrap_err();
            assert_eq!(why.kind, ToolErrorKind::Denied);
            assert!(why.text.contains("allow_hosts = [\"rebind.test:80\"]"), "{}", why.text);
        }
    }

    #[tokio::test]
    async fn numeric_addresses_in_every_form_are_checked_without_a_lookup() {
        let no_hosts = Scripted::new(&[]);
        let gate = Gate::default();
        let door = GuardedClient::new(&[], &no_hosts, &gate);
        for host in ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::ffff:7f00:1]", "[fe80::1]"]
        {
            let why = door.open(&url(&format!("http://{host}/"))).await.unwrap_err();
            assert_eq!(why.kind, ToolErrorKind::Denied, "{host}");
        }
    }

    #[tokio::test]
    async fn the_connection_goes_to_the_address_that_was_checked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        // A second lookup would return another address.
        let rebinds = Scripted::new(&[&["127.0.0.1"], &["10.0.0.1"]]);
        let allowed = [format!("pinned.test:{port}")];
        let gate = Gate::default();
        let door = GuardedClient::new(&allowed, &rebinds, &gate);
        let page = url(&format!("http://pinned.test:{port}/x"));
        let way = door.open(&page).await.unwrap();
        assert_eq!(way.client.get(page).send().await.unwrap().text().await.unwrap(), "hi");
        assert_eq!(rebinds.left(), 1, "the name was looked up twice");
        assert!(served.join().unwrap().contains("host: pinned.test"));
    }

    #[test]
    fn a_host_is_allowed_by_name_or_by_name_and_port() {
        let allows = |entry: &str, address: &str| is_allowed(&[entry.to_owned()], &url(address));
        assert!(allows("Docs.internal", "https://docs.internal/x"));
        assert!(allows("docs.internal", "http://docs.internal.:8080/"));
        assert!(allows("127.0.0.1:80", "http://127.0.0.1/"));
        assert!(allows("[::1]:80", "http://[::1]/") && allows("::1", "http://[::1]:9/"));
        assert!(!allows("127.0.0.1:80", "http://127.0.0.1:81/"));
        assert!(!allows("docs.internal", "http://x.docs.internal/"));
        assert!(!allows("", "http://a/") && !allows("1:80", "http://[::1]:80/"));
    }
}
