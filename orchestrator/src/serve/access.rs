//! Who gets an answer: a browser with the cookie that the link of the terminal gives once, on the
//! addresses of this server, from its own pages.

use std::io;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, Method, header};

/// The path that turns the token of the link into the cookie.
pub(crate) const LOGIN_PATH: &str = "/login";
/// The path to which a browser reports what the policy of the pages blocked.
pub(crate) const REPORT_PATH: &str = "/csp-report";
/// Paths that need no cookie: they say nothing about the repository.
const PUBLIC_PATHS: [&str; 5] = [LOGIN_PATH, REPORT_PATH, "/style.css", "/page.js", "/favicon.ico"];
/// The number of random bytes of a token and of the cookie.
const SECRET_BYTES: usize = 32;

/// The secrets of one server.
pub(crate) struct PageAccess {
    port: u16,
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
    pub(crate) fn new(port: u16) -> io::Result<PageAccess> {
        let token = Mutex::new(base::random::hex::<SECRET_BYTES>()?);
        Ok(PageAccess { port, secret: base::random::hex::<SECRET_BYTES>()?, token })
    }

    /// Returns the link with the current token.
    pub(crate) fn link(&self) -> String {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        format!("http://127.0.0.1:{}{LOGIN_PATH}?token={token}", self.port)
    }

    /// Uses the token: returns the Set-Cookie header, and makes another token. `None` if it is wrong
    /// or was used.
    pub(crate) fn use_token(&self, given: &str) -> io::Result<Option<String>> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_equal(given, &token) {
            return Ok(None);
        }
        *token = base::random::hex::<SECRET_BYTES>()?;
        let (name, secret) = (self.cookie_name(), &self.secret);
        Ok(Some(format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict")))
    }

    /// The name has the port: browsers send a cookie to all ports of a host, and two servers must not
    /// replace each other's.
    fn cookie_name(&self) -> String {
        format!("studio-{}", self.port)
    }

    /// Returns whether a Host header is an address of this server.
    fn is_own_host(&self, host: &str) -> bool {
        ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{}", self.port))
    }

    /// Decides whether a request gets an answer.
    pub(crate) fn check(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), AccessDenial> {
        let text = |name: header::HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
        let host = text(header::HOST).filter(|host| self.is_own_host(host));
        let host = host.ok_or(AccessDenial::Host)?;
        let is_read = *method == Method::GET || *method == Method::HEAD;
        let is_own_origin = match text(header::ORIGIN) {
            Some(origin) => origin == format!("http://{host}"),
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
        let access = PageAccess::new(8000).unwrap();
        let link = access.link();
        let token = link.split_once("token=").unwrap().1;
        assert_eq!(access.use_token("").unwrap(), None);
        assert_eq!(access.use_token(&token[1..]).unwrap(), None);
        let cookie = access.use_token(token).unwrap().unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        assert_eq!(access.use_token(token).unwrap(), None);
        assert_ne!(access.link(), link);
    }

    #[test]
    fn only_own_pages_with_the_cookie_get_an_answer() {
        let access = PageAccess::new(8000).unwrap();
        let token = access.link().split_once("token=").unwrap().1.to_owned();
        let cookie = access.use_token(&token).unwrap().unwrap();
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
