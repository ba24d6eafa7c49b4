//! The user's own proxy, from the environment of the process outside of the sandbox.

use std::io;

use base64::Engine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::host::{Host, Target};

/// The user's proxies and the hosts that are reached without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamProxies {
    https: Option<UpstreamProxy>,
    http: Option<UpstreamProxy>,
    no_proxy: Vec<String>,
}

/// A proxy of the user.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UpstreamProxy {
    target: Target,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

impl std::fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UpstreamProxy({})", self.target)
    }
}

/// Maximum size of a proxy's answer, in bytes.
const MAX_ANSWER_BYTES: usize = 16 << 10;

impl UpstreamProxies {
    /// Reads the variables. Fails for a proxy of a kind that is not supported.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> io::Result<UpstreamProxies> {
        let variable = |name: &str| {
            let value = get(&name.to_ascii_lowercase()).or_else(|| get(name))?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let all = variable("ALL_PROXY");
        let proxy = |name: &str| {
            let value = variable(name).or_else(|| all.clone());
            value.map(|value| UpstreamProxy::parse(&value)).transpose()
        };
        let no_proxy = variable("NO_PROXY").unwrap_or_default();
        let no_proxy = no_proxy.split(',').map(|host| host.trim().to_ascii_lowercase());
        Ok(UpstreamProxies {
            https: proxy("HTTPS_PROXY")?,
            http: proxy("HTTP_PROXY")?,
            no_proxy: no_proxy.filter(|host| !host.is_empty()).collect(),
        })
    }

    /// Returns the proxy for a target, if there is one.
    pub(crate) fn of(&self, target: &Target) -> Option<&UpstreamProxy> {
        let proxy = if target.port == 80 { &self.http } else { &self.https };
        proxy.as_ref().filter(|_| !self.is_excluded(target))
    }

    fn is_excluded(&self, target: &Target) -> bool {
        let host = target.host.to_string();
        self.no_proxy.iter().any(|entry| {
            let name = entry.trim_start_matches("*.").trim_start_matches('.');
            let is_below =
                |suffix: &str| host.strip_suffix(suffix).is_some_and(|h| h.ends_with('.'));
            entry == "*" || *entry == target.to_string() || host == name || is_below(name)
        })
    }
}

impl UpstreamProxy {
    fn parse(value: &str) -> io::Result<UpstreamProxy> {
        let invalid = |why: &str| io::Error::other(format!("the proxy of the environment {why}"));
        let rest = match value.split_once("://") {
            Some(("http", rest)) => rest,
            Some((scheme, _)) => {
                return Err(invalid(&format!("has the scheme `{scheme}`, not http")));
            }
            None => value,
        };
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, address) = match rest.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, rest),
        };
        let target = Target::parse(address)
            .or_else(|| Some(Target { host: Host::parse(address)?, port: 80 }))
            .ok_or_else(|| invalid("has no valid host"))?;
        let authorization = user.map(|user| {
            let user = percent_decoded(user);
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user))
        });
        Ok(UpstreamProxy { target, authorization })
    }

    /// Connects to a target through the proxy.
    pub(crate) async fn connect(&self, target: &Target) -> io::Result<TcpStream> {
        let host = self.target.host.to_string();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut stream = TcpStream::connect((host, self.target.port)).await?;
        let authorization = self.authorization.iter();
        let authorization = authorization.map(|value| format!("Proxy-Authorization: {value}\r\n"));
        let request = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n",
            authorization.collect::<String>()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // Bytes after the answer belong to the connection, so it is read byte by byte.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_ANSWER_BYTES {
                return Err(io::Error::other("the user's proxy sent a too long answer"));
            }
            answer.push(stream.read_u8().await?);
        }
        let status = answer.split(|b| *b == b' ').nth(1).unwrap_or_default();
        match status {
            [b'2', _, _] => Ok(stream),
            status => Err(io::Error::other(format!(
                "the user's proxy answered {}",
                String::from_utf8_lossy(status)
            ))),
        }
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, value) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> io::Result<UpstreamProxies> {
        UpstreamProxies::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn the_proxy_of_a_target_is_found() {
        let proxies = proxies(&[
            ("https_proxy", "http://user:p%40ss@proxy.example:3128/"),
            ("NO_PROXY", "localhost, .corp.example,10.0.0.1"),
        ])
        .unwrap();
        let of = |target: &str| proxies.of(&Target::parse(target).unwrap());
        let proxy = of("api.example:443").unwrap();
        assert_eq!(proxy.target.to_string(), "proxy.example:3128");
        assert_eq!(proxy.authorization.as_deref(), Some("Basic dXNlcjpwQHNz"));
        assert!(!format!("{proxy:?}").contains("dXNl"));
        for excluded in
            ["git.corp.example:443", "corp.example:443", "10.0.0.1:443", "api.example:80"]
        {
            assert_eq!(of(excluded), None, "{excluded}");
        }
        assert!(of("evilcorp.example:443").is_some());
    }

    #[test]
    fn other_kinds_of_proxies_are_refused() {
        assert!(proxies(&[("ALL_PROXY", "socks5://127.0.0.1:1080")]).is_err());
        assert_eq!(proxies(&[]).unwrap(), UpstreamProxies::default());
    }
}
