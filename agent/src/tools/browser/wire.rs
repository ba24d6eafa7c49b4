//! WebDriver over HTTP, as far as it is needed here (<https://www.w3.org/TR/webdriver2/>): one
//! request, one answer, and why there was none.

use std::time::Duration;

use reqwest::{Client, Method, Url};
use serde_json::{Value, json};

use provider::http::{self, innermost};

/// The name under which an element's reference is sent and given back.
pub const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// How long a command may take: more than a page may take to load.
const PATIENCE: Duration = Duration::from_secs(45);

/// What went wrong, as far as anybody does something different about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A dialog was open; it is dismissed now, and the command was not run.
    Dialog(String),
    /// Nothing on the page fits, or it is there no more.
    NoElement(String),
    /// The tab is closed.
    NoWindow,
    /// There is no browser any more.
    Gone(String),
    /// The page or the script took too long.
    Late,
    /// Everything else, in the driver's words.
    Other(String),
}

/// A line to a driver, or to a session of it.
#[derive(Clone, Debug)]
pub struct Wire {
    base: String,
    client: Client,
}

impl Wire {
    /// A line to the driver at an address of this machine.
    pub fn to(base: &str) -> Result<Wire, String> {
        let url = Url::parse(base).map_err(|why| format!("{base}: {why}"))?;
        let client = http::client(&url).map_err(|why| innermost(&why))?;
        Ok(Wire { base: base.trim_end_matches('/').to_owned(), client })
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// Asks for something.
    pub async fn look(&self, path: &str) -> Result<Value, Fault> {
        self.ask(Method::GET, path, None).await
    }

    /// Has something done.
    pub async fn order(&self, path: &str, body: Value) -> Result<Value, Fault> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Has something ended.
    pub async fn end(&self, path: &str) -> Result<Value, Fault> {
        self.ask(Method::DELETE, path, None).await
    }

    /// One command.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Fault> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let exchange = async {
            let answer = request.send().await?;
            Ok((answer.status(), answer.bytes().await?))
        };
        let (status, body) = match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(came)) => came,
            Ok(Err(why)) => {
                let why: reqwest::Error = why;
                return Err(Fault::Gone(innermost(&why)));
            }
            Err(_) => return Err(Fault::Late),
        };
        let mut answer: Value = serde_json::from_slice(&body)
            .map_err(|why| Fault::Other(format!("the driver's answer is no JSON: {why}")))?;
        if status.is_success() { Ok(answer["value"].take()) } else { Err(fault(&answer["value"])) }
    }
}

/// An element's reference as the driver takes it.
pub fn element(id: &str) -> Value {
    json!({ ELEMENT: id })
}

/// The reference in a value that is an element.
pub fn id_of(value: &Value) -> Option<&str> {
    value[ELEMENT].as_str()
}

/// A fault as the driver tells it.
fn fault(told: &Value) -> Fault {
    let text = |key: &str| told[key].as_str().unwrap_or_default();
    let message = text("message").split("\n  (Session info").next().unwrap_or_default();
    let words = message.split_once(": ").map_or(message, |(_, words)| words).trim().to_owned();
    match text("error") {
        "unexpected alert open" => {
            Fault::Dialog(told["data"]["text"].as_str().unwrap_or(&words).to_owned())
        }
        "no such element" | "stale element reference" | "detached shadow root" => {
            Fault::NoElement(words)
        }
        "no such window" => Fault::NoWindow,
        "invalid session id" | "session not created" => Fault::Gone(words),
        "timeout" | "script timeout" => Fault::Late,
        _ if message.contains("not connected to DevTools") || message.contains("crashed") => {
            Fault::Gone(words)
        }
        _ => Fault::Other(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_known_by_their_code_and_told_without_the_drivers_version() {
        let told = |code: &str, message: &str| fault(&json!({ "error": code, "message": message }));
        let noise = "\n  (Session info: chrome=156.0)";
        assert_eq!(
            told("stale element reference", &format!("stale element reference: gone{noise}")),
            Fault::NoElement("gone".to_owned())
        );
        assert_eq!(
            told("unknown error", &format!("unknown error: net::ERR_CONNECTION_REFUSED{noise}")),
            Fault::Other("net::ERR_CONNECTION_REFUSED".to_owned())
        );
        assert_eq!(
            told(
                "unknown error",
                "unknown error: session deleted because of page crash\nfrom tab crashed"
            ),
            Fault::Gone("session deleted because of page crash\nfrom tab crashed".to_owned())
        );
        assert_eq!(told("script timeout", ""), Fault::Late);
        let dialog = json!({ "error": "unexpected alert open", "data": { "text": "Sure?" } });
        assert_eq!(fault(&dialog), Fault::Dialog("Sure?".to_owned()));
    }
}
