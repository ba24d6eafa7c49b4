//! The URLs that a browser may open: pages of the web and of this machine, but nothing that reads
//! files, runs scripts or hands out the credentials of a machine.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;

use tools::output::{ToolError, ToolErrorKind};
use tools::web::guarded_client::{self, Resolver, SystemResolver};

/// Timeout of a name lookup, after which the browser resolves the name itself.
const LOOK_UP: Duration = Duration::from_secs(5);

/// Parses a URL. A bare host gets https; a host on this machine and an IP address get http.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let bad = |reason: &str| format!("`{}` {reason}", base::text::head(text, 200));
    if text.is_empty() {
        return Err("the address is empty: give one with http:// or https://".to_owned());
    }
    let url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        _ if is_bare(text) => {
            let plain =
                Url::parse(&format!("http://{text}")).map_err(|error| bad(&error.to_string()))?;
            let secure =
                !is_local(&plain) && guarded_client::host(&plain).parse::<IpAddr>().is_err();
            if secure {
                Url::parse(&format!("https://{text}")).map_err(|error| bad(&error.to_string()))?
            } else {
                plain
            }
        }
        Ok(url) => {
            let reason =
                format!("is refused: only http and https are opened, not {}:", url.scheme());
            return Err(bad(&reason));
        }
        Err(error) => return Err(bad(&format!("is not an address: {error}"))),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("contains a user name or a password, which is not sent"));
    }
    Ok(url)
}

/// Returns whether a text starts with a host, not with a scheme: a port follows the colon.
fn is_bare(text: &str) -> bool {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(_) => authority.rsplit_once("]:").map_or(authority, |(host, _)| host),
        None => authority.rsplit_once(':').map_or(authority, |(host, port)| {
            let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            if is_port { host } else { authority }
        }),
    };
    let is_v6 = host.starts_with('[');
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    !host.is_empty() && (is_v6 || host.chars().all(fits))
}

/// Returns whether a URL is on this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    let host = guarded_client::host(url);
    let is_loopback =
        host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback || host == "localhost" || host.ends_with(".localhost")
}

/// Denies a host with a link-local address, where clouds hand out the credentials of a machine,
/// unless the user has allowed it.
pub(crate) async fn guard(url: &Url, allowed: &[String]) -> Result<(), ToolError> {
    let host = guarded_client::host(url);
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => {
            let looked_up = tokio::time::timeout(LOOK_UP, SystemResolver.resolve(&host)).await;
            // A proxy may know more names; the browser reports a name that cannot be resolved.
            looked_up.ok().and_then(Result::ok).unwrap_or_default()
        }
    };
    let on_link = addresses.iter().find(|address| is_on_link(**address));
    match on_link.filter(|_| !guarded_client::is_allowed(allowed, url)) {
        None => Ok(()),
        Some(address) => Err(ToolError::new(
            ToolErrorKind::Denied,
            format!(
                "denied: `{host}` is {address}, an address on the link, where clouds hand out the \
                 logins of a machine. If the user wants it, they name it in their own \
                 configuration, `[tools.webfetch] allow_hosts`"
            ),
        )),
    }
}

fn is_on_link(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => {
            let parts = v6.segments();
            // fd00:ec2::254 is the same service on IPv6.
            (parts[0] & 0xffc0) == 0xfe80 || parts == [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_host_gets_https_and_a_local_one_http() {
        for (text, meant) in [
            ("example.org", "https://example.org/"),
            (" example.org:8443/a?b#c ", "https://example.org:8443/a?b#c"),
            ("localhost", "http://localhost/"),
            ("localhost:3000/x", "http://localhost:3000/x"),
            ("app.localhost:1", "http://app.localhost:1/"),
            ("127.0.0.1:8000", "http://127.0.0.1:8000/"),
            ("192.168.1.4", "http://192.168.1.4/"),
            ("[::1]:3000/a", "http://[::1]:3000/a"),
            ("HTTP://Example.org", "http://example.org/"),
            ("https://example.org/ä", "https://example.org/%C3%A4"),
        ] {
            assert_eq!(parse(text).unwrap().as_str(), meant, "{text}");
        }
    }

    #[test]
    fn only_web_pages_are_accepted() {
        for text in [
            "",
            "  ",
            "file:///etc/passwd",
            "FILE:///etc/passwd",
            "javascript:alert(1)",
            "java\nscript:alert(1)",
            "data:text/html,x",
            "chrome://settings",
            "about:blank",
            "view-source:http://a",
            "blob:http://a/1",
            "ftp://a/b",
            "//a/b",
            "user:pass@host",
            "http://user:pass@host/",
            "/etc/passwd",
            "http://",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }

    #[tokio::test]
    async fn link_local_addresses_are_denied_in_every_notation() {
        let refused = [
            "http://169.254.169.254/",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
        ];
        for text in refused {
            let url = parse(text).unwrap();
            assert_eq!(guard(&url, &[]).await.unwrap_err().kind, ToolErrorKind::Denied, "{text}");
            assert!(guard(&url, &[guarded_client::host(&url)]).await.is_ok(), "{text}");
        }
        for text in ["http://127.0.0.1/", "http://10.0.0.1/", "http://[::1]/", "localhost:1"] {
            assert!(guard(&parse(text).unwrap(), &[]).await.is_ok(), "{text}");
        }
    }
}
