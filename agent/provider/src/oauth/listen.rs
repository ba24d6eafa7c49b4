//! Listens on this machine for the browser redirect of a sign-in.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use base::failure::{Failure, Result};
use oauth2::url::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Maximum size in bytes of a request head.
const MAX_REQUEST: usize = 16 << 10;
/// Timeout of a connection that sends no request; browsers open some in advance.
const VISIT_TIMEOUT: Duration = Duration::from_secs(130);

/// A listener on the loopback addresses.
pub struct Listener {
    sockets: Vec<TcpListener>,
    port: u16,
}

/// The redirect of the service.
#[derive(Clone, PartialEq, Eq)]
pub enum Callback {
    /// An authorization code.
    Code(AuthorizationCode),
    /// The user or the service refused; the text says why.
    Refused(String),
}

/// An authorization code from the redirect.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorizationCode {
    /// The code to exchange for tokens.
    pub code: String,
    /// The full URL of the redirect.
    pub url: String,
}

/// The path to which a browser returns, where the service does not require another.
pub const CALLBACK_PATH: &str = "/callback";

impl Listener {
    /// Listens on a port of this machine; 0 picks a free one. Listens on IPv4 and IPv6, since
    /// `localhost` may resolve to either.
    pub async fn open(port: u16) -> Result<Listener> {
        let cannot_listen = |error: std::io::Error| {
            Failure::failed(format!("cannot listen on port {port} of this machine"))
                .because(error)
                .hint("end the program that uses it, or choose another: --port N")
        };
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(cannot_listen)?;
        let port = first.local_addr().map_err(cannot_listen)?.port();
        let second = TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).await;
        Ok(Listener { sockets: std::iter::once(first).chain(second).collect(), port })
    }

    /// Returns the redirect URL.
    pub fn address(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    /// Waits for the redirect with this state. Other requests get an error page.
    pub async fn wait_for_callback(&self, state: &str) -> Callback {
        let mut requests: JoinSet<Option<Callback>> = JoinSet::new();
        loop {
            tokio::select! {
                stream = accept(&self.sockets) => {
                    let state = state.to_owned();
                    requests.spawn(async move {
                        tokio::time::timeout(VISIT_TIMEOUT, handle_request(stream, &state)).await.ok()?
                    });
                }
                Some(result) = requests.join_next() => {
                    if let Ok(Some(callback)) = result {
                        return callback;
                    }
                }
            }
        }
    }
}

async fn accept(sockets: &[TcpListener]) -> TcpStream {
    let accepts = sockets.iter().map(|socket| {
        Box::pin(async move {
            loop {
                if let Ok((stream, _)) = socket.accept().await {
                    return stream;
                }
                // Probably out of file descriptors; retry shortly.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    });
    futures_util::future::select_all(accepts).await.0
}

/// Answers one request. Returns the callback if it carries the state.
async fn handle_request(mut stream: TcpStream, state: &str) -> Option<Callback> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut bytes = [0; 2048];
        let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(&bytes[..count]);
        if head.len() > MAX_REQUEST {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head);
    let callback =
        request_target(&head).and_then(|request_target| parse_callback(request_target, state));
    let (status, text) = match &callback {
        Some(Callback::Code(_)) => ("200 OK", "You are signed in. You can close this page."),
        Some(Callback::Refused(_)) => ("200 OK", "The sign-in was refused. g3 says more."),
        None => ("400 Bad Request", "This is not the sign-in that g3 waits for."),
    };
    let page = format!("<!DOCTYPE html><title>g3</title><p>{text}</p>\n");
    let reply = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    // The sign-in does not depend on whether the browser shows the page.
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
    callback
}

/// Returns the target in the first line of a request.
fn request_target(head: &str) -> Option<&str> {
    head.strip_prefix("GET ")?.split(' ').next()
}

/// Parses a target that carries our state.
fn parse_callback(request_target: &str, state: &str) -> Option<Callback> {
    let url = Url::parse("http://localhost").ok()?.join(request_target).ok()?;
    let param = |key: &str| url.query_pairs().find(|(k, _)| k == key).map(|(_, v)| v.into_owned());
    let is_ours = matches!(url.path(), "/" | CALLBACK_PATH);
    if !is_ours || param("state").as_deref() != Some(state) {
        return None;
    }
    if let Some(error) = param("error") {
        let description = param("error_description")
            .map(|description| format!(": {description}"))
            .unwrap_or_default();
        return Some(Callback::Refused(format!("{error}{description}")));
    }
    let code = param("code").filter(|code| !code.is_empty())?;
    Some(Callback::Code(AuthorizationCode { code, url: url.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_with_another_state_is_ignored() {
        let url = "http://localhost/?code=a%2Fb&state=s".to_owned();
        let code = Some(Callback::Code(AuthorizationCode { code: "a/b".to_owned(), url }));
        assert!(parse_callback("/?code=a%2Fb&state=s", "s") == code);
        let refused = Some(Callback::Refused("access_denied: no way".to_owned()));
        assert!(
            parse_callback("/?error=access_denied&error_description=no+way&state=s", "s")
                == refused
        );
        for wrong in
            ["/?code=a", "/?code=a&state=t", "/x?code=a&state=s", "/?state=s", "//evil/?code=a"]
        {
            assert!(parse_callback(wrong, "s").is_none(), "{wrong}");
        }
        assert_eq!(request_target("GET /?a=b HTTP/1.1\r\n"), Some("/?a=b"));
        assert_eq!(request_target("POST / HTTP/1.1\r\n"), None);
    }
}
