//! Which addresses a browser is sent to: pages of the web and of this machine, and nothing that
//! reads files, runs scripts or hands out the logins of a machine.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;

use tools::output::{ToolError, ToolErrorKind};
use tools::web::guarded_client::{self, Resolver, SystemResolver};

/// How long a name is looked up before the browser does it alone.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The address that a text means. A bare host gets https, one of this machine and a number http.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let bad = |why: &str| format!("`{}` {why}", base::text::head(text, 200));
    if text.is_empty() {
        return Err("the address is empty: give one with http:// or https://".to_owned());
    }
    let url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        _ if is_bare(text) => {
            let plain =
                Url::parse(&format!("http://{text}")).map_err(|why| bad(&why.to_string()))?;
            let secure =
                !is_local(&plain) && guarded_client::host(&plain).parse::<IpAddr>().is_err();
            if secure {
                Url::parse(&format!("https://{text}")).map_err(|why| bad(&why.to_string()))?
            } else {
                plain
            }
        }
        Ok(url) => {
            let why = format!("is refused: only http and https are opened, not {}:", url.scheme());
            return Err(bad(&why));
        }
        Err(why) => return Err(bad(&format!("is not an address: {why}"))),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("contains a user name or a password, which is not sent"));
    }
    Ok(url)
}

/// Whether it begins with a host, not with a scheme: what follows a colon is a port.
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

/// Whether it is on this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    let host = guarded_client::host(url);
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|at| at.to_canonical().is_loopback());
    is_loopback || host == "localhost" || host.ends_with(".localhost")
}

/// Refuses a host that leads to an address on the link, where clouds keep the logins of a machine,
/// unless the user names it.
pub(crate) async fn guard(url: &Url, allowed: &[String]) -> Result<(), ToolError> {
    let host = guarded_client::host(url);
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => {
            let looked_up = tokio::time::timeout(LOOK_UP, SystemResolver.resolve(&host)).await;
            // A proxy may know names that we do not; the browser says when nobody does.
            looked_up.ok().and_then(Result::ok).unwrap_or_default()
        }
    };
    let on_link = addresses.iter().find(|at| is_on_link(**at));
    match on_link.filter(|_| !guarded_client::is_allowed(allowed, url)) {
        None => Ok(()),
        Some(at) => Err(ToolError::new(
            ToolErrorKind::Denied,
            format!(
                "denied: `{host}` is {at}, an address on the link, where clouds hand out the \
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
    fn a_bare_host_gets_https_and_one_of_this_machine_http() {
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
    fn everything_but_a_page_is_refused() {
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
    async fn addresses_on_the_link_are_refused_in_every_spelling() {
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
