//! Sessions of a WebDriver on this machine (<https://www.w3.org/TR/webdriver2/>): opens them,
//! connects to them from other processes, closes them, and classifies the errors of commands.

use std::fmt;
use std::time::Duration;

use fantoccini::Client;
use fantoccini::error::{CmdError, ErrorStatus, WebDriver};
use fantoccini::wd::WebDriverCompatibleCommand;
use hyper_util::client::legacy::connect::HttpConnector;
use provider::http::innermost;
use reqwest::{Method, Url};
use serde_json::{Value, json};

/// The key of an element's reference in the values of scripts
/// (<https://www.w3.org/TR/webdriver2/#elements>).
pub(crate) const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Maximum time of a command: longer than a page may take to load.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(45);

/// The error of a command, as far as a caller acts on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrowserError {
    /// A dialog was open. It has been dismissed, and the command did not run.
    Dialog(String),
    /// No element matches, or the element is no longer on the page.
    NoElement(String),
    /// The tab is closed.
    NoWindow,
    /// The browser or its driver has ended.
    Gone(String),
    /// The page or the script took too long.
    Timeout,
    /// Any other error, with the driver's message.
    Other(String),
}

impl fmt::Display for BrowserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BrowserError::Dialog(text)
            | BrowserError::NoElement(text)
            | BrowserError::Gone(text)
            | BrowserError::Other(text) => f.write_str(text),
            BrowserError::NoWindow => f.write_str("the tab was closed"),
            BrowserError::Timeout => f.write_str("it timed out"),
        }
    }
}

/// Connects to the session with this id. `driver` is the driver's URL and ends with a slash. The
/// session stays open when the client is dropped.
pub(crate) async fn connect(driver: &str, session: &str) -> Result<Client, BrowserError> {
    let client = Client::with_existing_session(driver, session, HttpConnector::new()).await;
    let client = client.map_err(|error| BrowserError::Other(error.to_string()))?;
    run(client.persist()).await?;
    Ok(client)
}

/// Opens a session, and returns the driver's description of it (`sessionId`, `capabilities`).
/// `request` is the body of the New Session command.
pub(crate) async fn open(driver: &str, request: Value) -> Result<Value, BrowserError> {
    run(connect(driver, "").await?.issue_cmd(NewSession(request))).await
}

/// Closes a session, and its browser with it.
pub(crate) async fn close(driver: &str, session: &str) -> Result<(), BrowserError> {
    run(connect(driver, session).await?.close()).await
}

/// Returns whether the driver accepts connections.
pub(crate) async fn listens(driver: &str) -> bool {
    let Ok(client) = connect(driver, "").await else { return false };
    !matches!(run(client.status()).await, Err(BrowserError::Gone(_)))
}

/// Runs a command within the time limit.
pub(crate) async fn run<T>(
    command: impl Future<Output = Result<T, CmdError>>,
) -> Result<T, BrowserError> {
    match tokio::time::timeout(COMMAND_TIMEOUT, command).await {
        Ok(done) => done.map_err(BrowserError::from),
        Err(_) => Err(BrowserError::Timeout),
    }
}

/// The New Session command with exactly these capabilities: fantoccini's own command adds options
/// of Chrome to every request, which Safari's driver rejects as unknown.
#[derive(Debug)]
struct NewSession(Value);

impl WebDriverCompatibleCommand for NewSession {
    fn endpoint(
        &self,
        base_url: &Url,
        _session_id: Option<&str>,
    ) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base_url.join("session")
    }

    fn method_and_body(&self, _request_url: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.0.to_string()))
    }

    fn is_new_session(&self) -> bool {
        true
    }
}

/// Returns an element's reference as a value for a script.
pub(crate) fn element(id: &str) -> Value {
    json!({ ELEMENT: id })
}

/// Returns the reference in a value that is an element.
pub(crate) fn id_of(value: &Value) -> Option<&str> {
    value[ELEMENT].as_str()
}

impl From<CmdError> for BrowserError {
    fn from(error: CmdError) -> BrowserError {
        match error {
            CmdError::Standard(error) => of_driver(&error),
            CmdError::Failed(_) | CmdError::FailedC(_) | CmdError::Lost(_) => {
                BrowserError::Gone(innermost(&error))
            }
            other => BrowserError::Other(other.to_string()),
        }
    }
}

/// Converts an error of the driver; the driver's version is removed from the message.
fn of_driver(error: &WebDriver) -> BrowserError {
    use ErrorStatus as Status;
    let message = error.message.split("\n  (Session info").next().unwrap_or_default();
    let text = message.split_once(": ").map_or(message, |(_, text)| text).trim().to_owned();
    match error.error {
        Status::UnexpectedAlertOpen => {
            let dialog_text = error.data.as_ref().and_then(|data| data["text"].as_str());
            BrowserError::Dialog(dialog_text.unwrap_or(&text).to_owned())
        }
        Status::NoSuchElement | Status::StaleElementReference | Status::DetachedShadowRoot => {
            BrowserError::NoElement(text)
        }
        Status::NoSuchWindow => BrowserError::NoWindow,
        Status::InvalidSessionId | Status::SessionNotCreated => BrowserError::Gone(text),
        Status::Timeout | Status::ScriptTimeout => BrowserError::Timeout,
        _ if message.contains("not connected to DevTools") || message.contains("crashed") => {
            BrowserError::Gone(text)
        }
        _ => BrowserError::Other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified_by_code_and_shown_without_the_drivers_version() {
        let reported =
            |status, message: &str| of_driver(&WebDriver::new(status, message.to_owned()));
        let noise = "\n  (Session info: chrome=156.0)";
        assert_eq!(
            reported(
                ErrorStatus::StaleElementReference,
                &format!("stale element reference: gone{noise}")
            ),
            BrowserError::NoElement("gone".to_owned())
        );
        assert_eq!(
            reported(
                ErrorStatus::UnknownError,
                &format!("unknown error: net::ERR_CONNECTION_REFUSED{noise}")
            ),
            BrowserError::Other("net::ERR_CONNECTION_REFUSED".to_owned())
        );
        assert_eq!(
            reported(
                ErrorStatus::UnknownError,
                "unknown error: session deleted because of page crash\nfrom tab crashed"
            ),
            BrowserError::Gone(
                "session deleted because of page crash\nfrom tab crashed".to_owned()
            )
        );
        assert_eq!(reported(ErrorStatus::ScriptTimeout, ""), BrowserError::Timeout);
        let dialog = WebDriver::new(ErrorStatus::UnexpectedAlertOpen, "unexpected alert open: x");
        let dialog = dialog.with_data(json!({ "text": "Sure?" }));
        assert_eq!(of_driver(&dialog), BrowserError::Dialog("Sure?".to_owned()));
    }
}
