//! A scripted Databricks workspace: a strict OAuth service, and a model that requires a valid
//! token.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::env::TestEnv;
use crate::model_server::ModelServer;
use crate::model_server::gate::ReplyGate;
use crate::model_server::reply::ScriptedReply;
use crate::model_server::request::ReceivedRequest;
use crate::model_server::script::Script;

/// A running workspace.
pub struct TestDir {
    /// The server; its requests include those of logins.
    pub server: ModelServer,
    book: Arc<Mutex<Book>>,
}

/// The state of the service.
#[derive(Debug, Default)]
struct Book {
    /// Authorization code -> the challenge and the redirect URI that it was issued for.
    codes: HashMap<String, (String, String)>,
    access: Vec<String>,
    /// Only the newest refresh token is valid; an older one revokes the login, as in strict
    /// services.
    refresh: Option<String>,
    life: u64,
    made: usize,
    renewals: usize,
    /// Holds the response to each renewal.
    gate: Option<ReplyGate>,
}

impl TestDir {
    /// Starts a workspace whose tokens live for this many seconds, with a model that replies "hi".
    pub fn start(life: u64) -> TestDir {
        TestDir::with(life, Script::by(|_| ScriptedReply::says("hi")))
    }

    /// Starts a workspace whose tokens live for this many seconds, with a model that follows this
    /// script.
    pub fn with(life: u64, model: Script) -> TestDir {
        let book = Arc::new(Mutex::new(Book { life, ..Book::default() }));
        let shared = Arc::clone(&book);
        let answer = move |request: &ReceivedRequest| {
            let own = locked(&shared).answer(request);
            own.unwrap_or_else(|| model.answer(request))
        };
        TestDir { server: ModelServer::start(Script::by(answer)), book }
    }

    /// Holds the responses to renewals until the gate opens for them.
    pub fn hold_renewals(&self, gate: &ReplyGate) {
        locked(&self.book).gate = Some(gate.clone());
    }

    /// Logs in as a user would: `g3 login` waits, the browser visits the URL and is redirected.
    pub fn sign_in(&self, env: &TestEnv, g3: &Path) {
        let mut login = env.start(g3, env.home(), ["login", "databricks", "--port", "0"]);
        let err = BufReader::new(login.child.stderr.take().expect("piped"));
        let url = err.lines().map(|line| line.expect("text").trim().to_owned());
        let url = url.into_iter().find(|line| line.starts_with("http")).expect("an address");
        let (_, back, _) = visit(&url);
        assert_eq!(visit(&back.expect("a way back")).0, 200);
        let status = login.wait_until(None).expect("it ends").expect("it ends");
        assert!(status.success(), "g3 login failed");
    }

    /// Returns a g3 configuration whose default provider is this workspace, logged in.
    pub fn config_toml(&self) -> String {
        format!(
            "[providers]\ndefault_provider = \"databricks.work\"\n\n[providers.databricks.work]\n\
             host = \"{}\"\nmodel = \"claude\"\nuse_oauth = true\n",
            self.server.url()
        )
    }

    /// Sets the lifetime of new tokens, in seconds.
    pub fn tokens_live(&self, seconds: u64) {
        locked(&self.book).life = seconds;
    }

    /// Revokes all access tokens; renewals still work.
    pub fn take_back(&self) {
        locked(&self.book).access.clear();
    }

    /// Revokes the whole login.
    pub fn end_login(&self) {
        self.take_back();
        locked(&self.book).refresh = None;
    }

    /// Returns the number of renewal requests.
    pub fn renewals(&self) -> usize {
        locked(&self.book).renewals
    }

    /// Returns all valid tokens.
    pub fn good_tokens(&self) -> Vec<String> {
        let book = locked(&self.book);
        book.access.iter().chain(&book.refresh).cloned().collect()
    }

    /// Returns the requests to the model.
    pub fn questions(&self) -> Vec<ReceivedRequest> {
        let all = self.server.requests().into_iter();
        all.filter(|request| request.path.contains("/serving-endpoints/")).collect()
    }
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    /// Returns the service's own response; `None` for a request to the model.
    fn answer(&mut self, request: &ReceivedRequest) -> Option<ScriptedReply> {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        Some(match path {
            "/oidc/.well-known/oauth-authorization-server" => {
                let host = format!("http://{}", request.header("host").unwrap_or_default());
                let token = format!("{host}/oidc/v1/token");
                answered(
                    200,
                    &json!({"issuer": format!("{host}/oidc"), "token_endpoint": token,
                    "authorization_endpoint": format!("{host}/oidc/v1/authorize")}),
                )
            }
            "/oidc/v1/authorize" => self.authorize(&form(query)),
            "/oidc/v1/token" => self.token(&form(&String::from_utf8_lossy(&request.raw))),
            _ if self.knows(request.header("authorization")) => return None,
            _ => answered(403, &json!({"error_code": 403, "message": "Invalid access token."})),
        })
    }

    fn knows(&self, authorization: Option<&str>) -> bool {
        let token = authorization.and_then(|value| value.strip_prefix("Bearer "));
        token.is_some_and(|token| self.access.iter().any(|good| good == token))
    }

    fn authorize(&mut self, asked: &HashMap<String, String>) -> ScriptedReply {
        let is = |key: &str, value: &str| asked.get(key).is_some_and(|given| given == value);
        let fits = is("response_type", "code")
            && is("client_id", "databricks-cli")
            && is("scope", "all-apis offline_access")
            && is("code_challenge_method", "S256");
        let value = |key: &str| asked.get(key).cloned().unwrap_or_default();
        let redirect = value("redirect_uri");
        if !fits || !redirect.starts_with("http://localhost:") {
            return answered(400, &json!({"error": "invalid_request"}));
        }
        self.made += 1;
        let code = format!("code/{}", self.made);
        self.codes.insert(code.clone(), (value("code_challenge"), redirect.clone()));
        let code = code.replace('/', "%2F");
        let to = format!("{redirect}/?code={code}&state={}", value("state"));
        ScriptedReply::status(302).header("location", &to)
    }

    fn token(&mut self, asked: &HashMap<String, String>) -> ScriptedReply {
        let value = |key: &str| asked.get(key).cloned().unwrap_or_default();
        let no = || answered(400, &json!({"error": "invalid_grant", "error_description": "no"}));
        let is_ours = value("client_id") == "databricks-cli";
        let is_good = match value("grant_type").as_str() {
            "authorization_code" => {
                let known = self.codes.remove(&value("code"));
                known.is_some_and(|(challenge, redirect)| {
                    challenge == challenge_of(&value("code_verifier"))
                        && redirect == value("redirect_uri")
                })
            }
            "refresh_token" => {
                self.renewals += 1;
                let is_newest = self.refresh.take() == Some(value("refresh_token"));
                self.access.clear();
                is_newest
            }
            _ => false,
        };
        if !is_ours || !is_good {
            return no();
        }
        self.made += 1;
        let (access, refresh) = (format!("access-{}", self.made), format!("refresh-{}", self.made));
        self.access.push(access.clone());
        self.refresh = Some(refresh.clone());
        let tokens = answered(
            200,
            &json!({"access_token": access, "refresh_token": refresh,
            "token_type": "Bearer", "expires_in": self.life, "scope": "all-apis offline_access"}),
        );
        let held = self.gate.as_ref().filter(|_| value("grant_type") == "refresh_token");
        held.map_or_else(|| tokens.clone(), |gate| tokens.clone().gate(gate))
    }
}

fn answered(status: u16, body: &Value) -> ScriptedReply {
    ScriptedReply::status(status).body("application/json", body.to_string())
}

/// Returns the challenge for a verifier (RFC 7636, S256).
fn challenge_of(verifier: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in Sha256::digest(verifier).chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for at in 0..=three.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

/// Returns the pairs of a query or of a form.
fn form(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut pieces = text.split('%');
    bytes.extend(pieces.next().unwrap_or_default().replace('+', " ").into_bytes());
    for piece in pieces {
        let byte = piece.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.extend(byte);
        bytes.extend(piece.get(2..).unwrap_or_default().replace('+', " ").into_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the response to a browser on loopback: status, redirect target, page.
pub fn visit(url: &str) -> (u16, Option<String>, String) {
    let rest = url.strip_prefix("http://").expect("plain http");
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut stream =
        TcpStream::connect(host.replace("localhost", "127.0.0.1")).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a status");
    let location = head.lines().find_map(|line| line.strip_prefix("location: "));
    (status, location.map(str::to_owned), page.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_matches_the_rfc() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge_of(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert_eq!(form("a=b+c%2Fd&e=")["a"], "b c/d");
    }
}
