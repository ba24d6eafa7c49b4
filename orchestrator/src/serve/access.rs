//! Who gets an answer: a browser with the cookie that the link of the terminal gives once, on the
//! addresses of this server, from its own pages.

use std::io;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, Method, Uri, header};

/// The path that turns the token of the link into the cookie.
pub(crate) const LOGIN_PATH: &str = "/login";
/// The path to which a browser reports what the policy of the pages blocked.
pub(crate) const REPORT_PATH: &str = "/csp-report";
/// Paths that need no cookie: they say nothing about the repository.
const PUBLIC_PATHS: [&str; 5] = [LOGIN_PATH, REPORT_PATH, "/style.css", "/page.js", "/favicon.ico"];
/// The number of random bytes of a token and of the cookie.
const SECRET_BYTES: usize = 32;

/// The address at which a tunnel or proxy of the user makes the server reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    /// `https://HOST` or `https://HOST:PORT`, as a browser sends it.
    origin: String,
}

impl PublicUrl {
    /// Returns the Host header of requests for it.
    fn host(&self) -> &str {
        self.origin.split_once("://").map_or("", |(_, host)| host)
    }
}

impl FromStr for PublicUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PublicUrl, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "it is not a URL")?;
        let scheme = uri.scheme_str().ok_or("it does not begin with https://")?;
        let name = uri.host().unwrap_or_default().to_ascii_lowercase();
        let is_here = ["localhost", "127.0.0.1", "[::1]"].contains(&name.as_str());
        if scheme != "https" && !(scheme == "http" && is_here) {
            return Err("without https:// others could read the link and the cookie");
        }
        if uri.path() != "/" || uri.query().is_some() || text.contains(['@', '#']) {
            return Err("it has more than a host and a port");
        }
        let default_port = if scheme == "https" { 443 } else { 80 };
        let port = uri.port_u16().filter(|port| *port != default_port);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        Ok(PublicUrl { origin: format!("{scheme}://{name}{port}") })
    }
}

/// The secrets of one server.
pub(crate) struct PageAccess {
    port: u16,
    public: Option<PublicUrl>,
    /// The value of the cookie.
    secret: String,
    /// The token of the link, until it is used.
    token: Mutex<String>,
}

/// Why a request gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessDenial {
    /// The Host header is not an address of this server: another name leads here.
    Host,
    /// Another page makes the request.
    Origin,
    /// The cookie is missing or wrong.
    Cookie,
}

impl PageAccess {
    /// Draws the secrets.
    pub(crate) fn new(port: u16, public: Option<PublicUrl>) -> io::Result<PageAccess> {
        let token = Mutex::new(base::random::hex::<SECRET_BYTES>()?);
        Ok(PageAccess { port, public, secret: base::random::hex::<SECRET_BYTES>()?, token })
    }

    /// Returns the link with the current token.
    pub(crate) fn link(&self) -> String {
        self.link_at(&format!("http://127.0.0.1:{}", self.port))
    }

    /// Returns the link with the current token at the public address.
    pub(crate) fn public_link(&self) -> Option<String> {
        self.public.as_ref().map(|public| self.link_at(&public.origin))
    }

    fn link_at(&self, origin: &str) -> String {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{origin}{LOGIN_PATH}?token={token}")
    }

    /// Uses the token: returns the Set-Cookie header, and makes another token. `None` if it is wrong
    /// or was used.
    pub(crate) fn use_token(&self, given: &str, headers: &HeaderMap) -> io::Result<Option<String>> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_equal(given, &token) {
            return Ok(None);
        }
        *token = base::random::hex::<SECRET_BYTES>()?;
        let (name, secret) = (self.cookie_name(), &self.secret);
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let origin = host.and_then(|host| self.origin_of(host)).unwrap_or_default();
        let secure = if origin.starts_with("https:") { "; Secure" } else { "" };
        Ok(Some(format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}")))
    }

    /// The name has the port: browsers send a cookie to all ports of a host, and two servers must not
    /// replace each other's.
    fn cookie_name(&self) -> String {
        format!("studio-{}", self.port)
    }

    /// Returns the origin of this server's pages for a Host header; `None` for the address of another
    /// server.
    fn origin_of(&self, host: &str) -> Option<String> {
        if let Some(public) = self.public.as_ref().filter(|public| public.host() == host) {
            return Some(public.origin.clone());
        }
        let is_local =
            ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{}", self.port));
        is_local.then(|| format!("http://{host}"))
    }

    /// Decides whether a request gets an answer.
    pub(crate) fn check(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), AccessDenial> {
        let text = |name: header::HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
        let own_origin = text(header::HOST).and_then(|host| self.origin_of(host));
        let own_origin = own_origin.ok_or(AccessDenial::Host)?;
        let is_read = *method == Method::GET || *method == Method::HEAD;
        let is_own_origin = match text(header::ORIGIN) {
            Some(origin) => origin == own_origin,
            // A browser sends it with everything that is not a read. A report of the browser itself
            // changes nothing.
            None => is_read || path == REPORT_PATH,
        };
        let site = headers.get("sec-fetch-site").and_then(|it| it.to_str().ok());
        let is_own_site = matches!(site, None | Some("same-origin" | "none"));
        if !is_own_origin || !(is_own_site || path == LOGIN_PATH) {
            return Err(AccessDenial::Origin);
        }
        if PUBLIC_PATHS.contains(&path) || self.has_cookie(headers) {
            return Ok(());
        }
        Err(AccessDenial::Cookie)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs =
            lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(key, value)| key == name && is_equal(value, &self.secret))
    }
}

/// Compares two texts in a time that does not depend on where they differ.
fn is_equal(given: &str, expected: &str) -> bool {
    let differences = given.bytes().zip(expected.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == expected.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, String)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_works_once_and_the_next_link_has_another() {
        let access = PageAccess::new(8000, None).unwrap();
        let link = access.link();
        let token = link.split_once("token=").unwrap().1;
        let own = headers(&[("host", "127.0.0.1:8000".to_owned())]);
        assert_eq!(access.use_token("", &own).unwrap(), None);
        assert_eq!(access.use_token(&token[1..], &own).unwrap(), None);
        let cookie = access.use_token(token, &own).unwrap().unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        assert_eq!(access.use_token(token, &own).unwrap(), None);
        assert_ne!(access.link(), link);
        assert_eq!(access.public_link(), None);
    }

    #[test]
    fn a_public_url_has_a_host_and_perhaps_a_port() {
        let origin = |text: &str| text.parse::<PublicUrl>().map(|url| url.origin);
        assert_eq!(origin("https://Box.Example").as_deref(), Ok("https://box.example"));
        assert_eq!(origin("https://box.example:443/").as_deref(), Ok("https://box.example"));
        assert_eq!(origin("https://box.example:8443").as_deref(), Ok("https://box.example:8443"));
        assert_eq!(origin("http://localhost:9000").as_deref(), Ok("http://localhost:9000"));
        assert_eq!(origin("https://[fd00::1]:8443").as_deref(), Ok("https://[fd00::1]:8443"));
        for wrong in [
            "",
            "box.example",
            "http://box.example",
            "http://127.0.0.1.example",
            "ftp://localhost",
            "https://box.example/studio",
            "https://box.example?x",
            "https://box.example#x",
            "https://me@box.example",
            "https://",
            "*",
        ] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_public_url_is_an_address_of_the_server_like_its_own() {
        let public = "https://box.example".parse().unwrap();
        let access = PageAccess::new(8000, Some(public)).unwrap();
        let link = access.public_link().unwrap();
        let token = link.strip_prefix("https://box.example/login?token=").unwrap();
        let host = |name: &str| ("host", name.to_owned());
        let at_public = headers(&[host("box.example")]);
        let cookie = access.use_token(token, &at_public).unwrap().unwrap();
        assert!(cookie.ends_with("; SameSite=Strict; Secure"), "{cookie}");
        let cookie = ("cookie", cookie.split(';').next().unwrap().to_owned());
        let post = |name: &str, from: &str| {
            let pairs = [host(name), cookie.clone(), ("origin", from.to_owned())];
            access.check(&Method::POST, "/", &headers(&pairs))
        };
        assert_eq!(post("box.example", "https://box.example"), Ok(()));
        assert_eq!(post("127.0.0.1:8000", "http://127.0.0.1:8000"), Ok(()));
        for (name, from) in [
            ("box.example", "http://box.example"),
            ("box.example", "http://127.0.0.1:8000"),
            ("127.0.0.1:8000", "https://box.example"),
            ("box.example", "https://evil.example"),
        ] {
            assert_eq!(post(name, from), Err(AccessDenial::Origin), "{name} {from}");
        }
        for name in ["box.example:8000", "evil.box.example", "box.example.", "box.example:443"] {
            assert_eq!(post(name, "https://box.example"), Err(AccessDenial::Host), "{name}");
        }
    }

    #[test]
    fn only_own_pages_with_the_cookie_get_an_answer() {
        let access = PageAccess::new(8000, None).unwrap();
        let token = access.link().split_once("token=").unwrap().1.to_owned();
        let cookie = access.use_token(&token, &HeaderMap::new()).unwrap().unwrap();
        let cookie = ("cookie", format!("a=b; {}", cookie.split(';').next().unwrap()));
        let host = |name: &str| ("host", name.to_owned());
        let origin = |name: &str| ("origin", name.to_owned());
        let check = |method: Method, pairs: &[_]| access.check(&method, "/", &headers(pairs));
        let own = host("127.0.0.1:8000");
        assert_eq!(check(Method::GET, &[own.clone(), cookie.clone()]), Ok(()));
        assert_eq!(check(Method::GET, std::slice::from_ref(&own)), Err(AccessDenial::Cookie));
        for wrong in ["evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "127.0.0.1:8000.evil"] {
            assert_eq!(check(Method::GET, &[host(wrong), cookie.clone()]), Err(AccessDenial::Host));
        }
        assert_eq!(check(Method::GET, std::slice::from_ref(&cookie)), Err(AccessDenial::Host));
        let post =
            |from: &[_]| check(Method::POST, &[&[own.clone(), cookie.clone()], from].concat());
        assert_eq!(post(&[origin("http://127.0.0.1:8000")]), Ok(()));
        for wrong in
            ["null", "http://evil.example", "http://127.0.0.1:8001", "https://127.0.0.1:8000"]
        {
            assert_eq!(post(&[origin(wrong)]), Err(AccessDenial::Origin));
        }
        assert_eq!(post(&[]), Err(AccessDenial::Origin));
        let site = ("sec-fetch-site", "cross-site".to_owned());
        assert_eq!(
            check(Method::GET, &[own.clone(), cookie.clone(), site]),
            Err(AccessDenial::Origin)
        );
        let other = ("cookie", format!("studio-8000={}", "0".repeat(64)));
        assert_eq!(check(Method::GET, &[own, other]), Err(AccessDenial::Cookie));
    }
}
