//! Detects elements in an image with an OmniParser server.

use std::time::Duration;

use base::desktop_protocol::Picture;
use serde_json::{Value, json};

use super::{Observation, ScreenReport};
use crate::shown_screen::Element;
use provider::http::Endpoint;
use tools::context::ToolContext;
use tools::output::{ToolError, ToolErrorKind};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response in bytes; it contains an image.
const MAX_REPLY: usize = 64 << 20;

/// Asks the configured server. Returns `None` if there is none.
pub(crate) async fn ask(
    context: &ToolContext,
    picture: &Picture,
) -> Result<Option<Observation>, ToolError> {
    let Some(url) = &context.services.screen.control().omniparser_url else { return Ok(None) };
    let endpoint = Endpoint::new(url, "/parse/", false);
    let endpoint =
        endpoint.map_err(|error| ToolError::failed(error.sentence()))?.idle_timeout(TIMEOUT);
    let body = json!({ "base64_image": picture.data }).to_string();
    let result = tokio::time::timeout(TIMEOUT, exchange(&endpoint, body));
    let response = match context.cancel.run_until_cancelled(result).await {
        Some(Ok(response)) => response.map_err(ToolError::failed)?,
        Some(Err(_)) => {
            let text = format!("{} has no answer after {} s", endpoint.host(), TIMEOUT.as_secs());
            return Err(ToolError::new(ToolErrorKind::Timeout, text));
        }
        None => return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")),
    };
    let elements = elements(&response, picture).map_err(ToolError::failed)?;
    let is_empty = elements.is_empty();
    Ok((!is_empty).then_some((ScreenReport::Elements(elements), "omniparser", None)))
}

async fn exchange(endpoint: &Endpoint, body: String) -> Result<Value, String> {
    let sent = endpoint.post(body.into_bytes(), None).await;
    let mut came = sent.map_err(|error| error.failure().sentence())?;
    let status = came.status();
    let mut bytes = Vec::new();
    while let Some(more) = came.next(None).await? {
        bytes.extend(more);
        if bytes.len() > MAX_REPLY {
            return Err("its answer is longer than 64 MiB".to_owned());
        }
    }
    if !(200..300).contains(&status) {
        let text = base::text::printable_output(&String::from_utf8_lossy(&bytes));
        return Err(format!("it answers {status}: {}", base::text::head(text.trim(), 300)));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("its answer is not JSON: {error}"))
}

/// Parses the elements of a response; boxes are fractions of the sides or pixels.
fn elements(response: &Value, picture: &Picture) -> Result<Vec<Element>, String> {
    let lists = ["parsed_content_list", "elements", "ui_elements"];
    let list = lists.iter().find_map(|key| response[*key].as_array());
    let list = list.ok_or_else(|| "its answer has no `parsed_content_list`".to_owned())?;
    let (width, height) = (f64::from(picture.width.max(1)), f64::from(picture.height.max(1)));
    let element = |(index, value): (usize, &Value)| {
        let sides: Vec<f64> = value["bbox"].as_array()?.iter().filter_map(Value::as_f64).collect();
        let [left, top, right, bottom] = *sides.as_slice() else { return None };
        let is_in_pixels = sides.iter().any(|coordinate| *coordinate > 1.5);
        let to_fraction = |coordinate: f64, all: f64| {
            if is_in_pixels { coordinate / all } else { coordinate }.clamp(0.0, 1.0)
        };
        let kind = value["type"].as_str().unwrap_or("element");
        let interactive = value["interactivity"].as_bool().or(value["interactive"].as_bool());
        let own_id = value["id"].as_u64().map(|id| id.to_string());
        Some(Element {
            id: own_id.unwrap_or_else(|| index.to_string()),
            kind: kind.to_owned(),
            content: value["content"].as_str().unwrap_or_default().to_owned(),
            interactive: interactive.unwrap_or(kind == "icon" || kind == "interactive"),
            bbox: [
                to_fraction(left, width),
                to_fraction(top, height),
                to_fraction(right, width),
                to_fraction(bottom, height),
            ],
        })
    };
    Ok(list.iter().enumerate().filter_map(element).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_may_be_fractions_or_pixels() {
        let picture = Picture {
            data: String::new(),
            mime: String::new(),
            width: 200,
            height: 100,
            shows: base::desktop_protocol::Area::default(),
            backend: String::new(),
        };
        let answer = json!({ "parsed_content_list": [
            { "type": "text", "bbox": [0.1, 0.2, 0.3, 0.4], "interactivity": false, "content": "A" },
            { "type": "icon", "bbox": [20, 50, 40, 100], "content": null },
            { "type": "icon", "bbox": [1, 2], "content": "broken" },
        ] });
        let found = elements(&answer, &picture).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].id.as_str(), found[0].interactive), ("0", false));
        assert_eq!(found[1].bbox, [0.1, 0.5, 0.2, 1.0]);
        assert!(found[1].interactive);
        assert!(elements(&json!({ "error": "no" }), &picture).is_err());
    }
}
