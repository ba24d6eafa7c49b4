//! Describes an image with a vision model of any configured provider.

use std::time::Duration;

use base::desktop_protocol::Picture;
use serde_json::Value;

use super::{Observation, ObserveMode, ScreenReport};
use crate::shown_screen::Element;
use provider::message::{ContentPart, Image, Message, MessageRole, SideUsage};
use provider::{self, ChatRequest, ProviderChoice};
use tools::context::ToolContext;
use tools::output::{ToolError, ToolErrorKind};

/// Timeout, and maximum number of tokens of the reply.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TOKENS: u64 = 1024;
const SYSTEM: &str = "You look at a picture of a computer's screen for a program that cannot see.";

/// Asks the configured model. Returns `None` if there is none.
pub(crate) async fn ask(
    context: &ToolContext,
    mode: ObserveMode,
    intent: &str,
    picture: &Picture,
) -> Result<Option<Observation>, ToolError> {
    let screen_access = &context.services.screen;
    let Some(reference) = screen_access.control().vision_provider.clone() else { return Ok(None) };
    let choice = ProviderChoice { reference: Some(reference), ..ProviderChoice::default() };
    let config = screen_access.config().clone();
    let provider = provider::off_loop(move || provider::open(&config, &choice)).await;
    let provider = provider.map_err(|error| ToolError::failed(error.sentence()))?;
    let image = Image { media_type: picture.mime.clone(), data: picture.data.clone() };
    let parts = vec![
        ContentPart::Text { text: question(mode, intent, picture) },
        ContentPart::Image(image),
    ];
    let messages = [Message { role: MessageRole::User, parts }];
    let request = ChatRequest {
        system: SYSTEM,
        messages: &messages,
        tools: &[],
        max_output: MAX_TOKENS,
        session: "screen",
    };
    let mut ignore_deltas = |_: provider::Delta<'_>| ();
    let reply_result = tokio::time::timeout(TIMEOUT, provider.ask(&request, &mut ignore_deltas));
    let cancelled = || ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user");
    let reply_result =
        context.cancel.run_until_cancelled(reply_result).await.ok_or_else(cancelled)?;
    let timeout_error =
        |_| ToolError::new(ToolErrorKind::Timeout, format!("no answer in {} s", TIMEOUT.as_secs()));
    let reply = reply_result
        .map_err(timeout_error)?
        .map_err(|error| ToolError::failed(error.failure().sentence()))?;
    let model = provider.facts().model.clone();
    let usage = SideUsage { model: Some(model), calls: 1, usage: reply.usage };
    let text = reply.message.full_text();
    if text.trim().is_empty() {
        return Err(ToolError::failed("the model said nothing"));
    }
    let report = match (mode, elements(&text, picture)) {
        (ObserveMode::Grounding, Some(elements)) if !elements.is_empty() => {
            ScreenReport::Elements(elements)
        }
        (ObserveMode::Grounding | ObserveMode::Understanding, _) => ScreenReport::Words(text),
    };
    Ok(Some((report, "vision", Some(usage))))
}

fn question(mode: ObserveMode, intent: &str, picture: &Picture) -> String {
    let (width, height) = (picture.width, picture.height);
    let mut text = match mode {
        ObserveMode::Grounding => format!(
            "List what can be clicked, typed into or read on it: most important first, at most 30. \
             Answer with a JSON array and nothing else. Each entry is {{\"content\": what stands \
             on it, \"type\": e.g. \"button\", \"x\", \"y\": its middle in pixels, \"width\", \
             \"height\", \"interactive\": true or false}}. The picture is {width} pixels wide and \
             {height} pixels high."
        ),
        ObserveMode::Understanding => {
            "Describe what is to be seen: which programs and windows, what \
                                they show, in which state they are, what could be done next."
                .to_owned()
        }
    };
    if !intent.trim().is_empty() {
        text.push_str(&format!("\nWhat is looked for: {}", intent.trim()));
    }
    text
}

/// Parses the elements of a reply. Returns `None` if it is not a list of them.
fn elements(words: &str, picture: &Picture) -> Option<Vec<Element>> {
    let (start, end) = (words.find('[')?, words.rfind(']')?);
    let list: Vec<Value> = serde_json::from_str(words.get(start..=end)?).ok()?;
    let (width, height) = (f64::from(picture.width.max(1)), f64::from(picture.height.max(1)));
    let element = |(index, value): (usize, &Value)| {
        let number = |key: &str| value[key].as_f64();
        let (x, y) = (number("x")?, number("y")?);
        let half_of = |key: &str| number(key).unwrap_or(0.0).max(0.0) / 2.0;
        let (w, h) = (half_of("width"), half_of("height"));
        let to_fraction = |position: f64, total: f64| (position / total).clamp(0.0, 1.0);
        let text = |keys: [&str; 2]| keys.iter().find_map(|key| value[*key].as_str());
        Some(Element {
            id: index.to_string(),
            kind: text(["type", "role"]).unwrap_or("element").to_owned(),
            content: text(["content", "label"]).unwrap_or_default().to_owned(),
            interactive: value["interactive"].as_bool().unwrap_or(true),
            bbox: [
                to_fraction(x - w, width),
                to_fraction(y - h, height),
                to_fraction(x + w, width),
                to_fraction(y + h, height),
            ],
        })
    };
    list.iter().enumerate().map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        Picture {
            data: String::new(),
            mime: "image/jpeg".into(),
            width: 1000,
            height: 500,
            shows: base::desktop_protocol::Area::default(),
            backend: String::new(),
        }
    }

    #[test]
    fn a_list_is_parsed_within_text_and_other_replies_are_text() {
        let said = "Here:\n```json\n[{\"content\": \"OK\", \"type\": \"button\", \"x\": 500, \
                    \"y\": 250, \"width\": 100, \"height\": 50}]\n```";
        let found = elements(said, &picture()).unwrap();
        assert_eq!((found[0].content.as_str(), found[0].interactive), ("OK", true));
        assert_eq!(found[0].bbox, [0.45, 0.45, 0.55, 0.55]);
        for words in ["A window.", "[1, 2]", "[{\"x\": 1}]", "] [", "[{\"x\": \"1\", \"y\": 2}]"] {
            assert_eq!(elements(words, &picture()), None, "{words}");
        }
    }
}
