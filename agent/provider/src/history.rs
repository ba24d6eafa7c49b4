//! Normalizes a conversation to the form that every wire format accepts: it starts with the user,
//! has no empty text, and every call has a valid name and is followed by exactly one result. Valid
//! conversations are not changed, so that the prefix stays byte-identical from turn to turn.

use std::collections::HashMap;

use crate::message::{ContentPart, HarnessNote, Message, MessageRole, ToolCall, ToolResult};
use crate::tool_args::plain_name;

/// Returns the normalized conversation.
pub(crate) fn sound(messages: &[Message]) -> Vec<Message> {
    let mut sound = Vec::with_capacity(messages.len() + 1);
    if messages.first().is_none_or(|first| first.role == MessageRole::Assistant) {
        sound.push(Message::text(MessageRole::User, "(the conversation continues)"));
    }
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        at += 1;
        match message.role {
            MessageRole::User => sound.extend(without_empty(message, |_| false)),
            MessageRole::Assistant => {
                let answers =
                    messages[at..].iter().take_while(|next| next.role == MessageRole::User);
                let answers: Vec<&Message> = answers.collect();
                at += answers.len();
                turn(message, &answers, &mut sound);
            }
        }
    }
    sound
}

/// Appends a message of the model and the user messages that answer it. Results come first.
fn turn(message: &Message, answers: &[&Message], sound: &mut Vec<Message>) {
    let Some(said) = without_empty(message, |_| false) else {
        return sound.extend(answers.iter().filter_map(|m| without_empty(m, |_| false)));
    };
    let parts = answers.iter().flat_map(|answer| &answer.parts);
    let mut found: HashMap<&str, &ToolResult> = HashMap::new();
    for part in parts {
        if let ContentPart::Result(result) = part {
            found.entry(&result.call_id).or_insert(result);
        }
    }
    let results: Vec<ContentPart> = said
        .calls()
        .map(|call| {
            let made_up = || ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                ok: false,
                text: "There is no result: the call was interrupted.".to_owned(),
                images: Vec::new(),
                not_run: false,
            };
            let result = found.get(call.id.as_str()).map_or_else(made_up, |r| (*r).clone());
            ContentPart::Result(ToolResult { name: call.name.clone(), ..result })
        })
        .collect();
    let called: Vec<String> = said.calls().map(|call| call.id.clone()).collect();
    sound.push(said);
    let is_answered = |result: &ToolResult| called.contains(&result.call_id);
    let mut rest =
        answers.iter().filter_map(|answer| without_empty(answer, is_answered)).peekable();
    if !results.is_empty() {
        let mut first = Message { role: MessageRole::User, parts: results };
        // The user's text after results is in the same message, after them.
        let same = answers
            .first()
            .is_some_and(|a| a.parts.iter().any(|p| matches!(p, ContentPart::Result(_))));
        if same && let Some(more) = rest.next_if(|_| has_more(answers[0], is_answered)) {
            first.parts.extend(more.parts);
        }
        sound.push(first);
    }
    sound.extend(rest);
}

fn has_more(message: &Message, left_out: impl Fn(&ToolResult) -> bool) -> bool {
    without_empty(message, left_out).is_some()
}

/// Returns the message without empty text and without the results for which `left_out` is true.
/// Results that answer no call become text. Returns `None` if nothing remains.
fn without_empty(message: &Message, left_out: impl Fn(&ToolResult) -> bool) -> Option<Message> {
    let keep = |part: &ContentPart| match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
            (!text.trim().is_empty()).then(|| part.clone())
        }
        ContentPart::Result(result) if left_out(result) => None,
        ContentPart::Result(result) => {
            Some(ContentPart::Text { text: format!("Result of {}:\n{}", result.name, result.text) })
        }
        ContentPart::Call(call) => {
            let name = plain_name(&call.name);
            Some(ContentPart::Call(ToolCall { name, ..call.clone() }))
        }
        ContentPart::Reasoning { .. } | ContentPart::Image(_) => Some(part.clone()),
    };
    let parts: Vec<ContentPart> = message.parts.iter().filter_map(keep).collect();
    let only_thought = parts.iter().all(|part| matches!(part, ContentPart::Reasoning { .. }));
    (!only_thought).then_some(Message { role: message.role, parts })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> ContentPart {
        let (id, name) = (id.to_owned(), "shell".to_owned());
        ContentPart::Call(ToolCall { id, name, args: json!({}), malformed: None })
    }

    fn result(id: &str, text: &str) -> ContentPart {
        let (call_id, name) = (id.to_owned(), "shell".to_owned());
        ContentPart::Result(ToolResult {
            call_id,
            name,
            ok: true,
            text: text.to_owned(),
            images: vec![],
            not_run: false,
        })
    }

    fn text(text: &str) -> ContentPart {
        ContentPart::Text { text: text.to_owned() }
    }

    fn user(parts: Vec<ContentPart>) -> Message {
        Message { role: MessageRole::User, parts }
    }

    fn model(parts: Vec<ContentPart>) -> Message {
        Message { role: MessageRole::Assistant, parts }
    }

    #[test]
    fn a_valid_conversation_is_not_changed() {
        let messages = vec![
            user(vec![text("go")]),
            model(vec![text("ok"), call("1"), call("2")]),
            user(vec![result("1", "a"), result("2", "b"), text("and hurry")]),
            user(vec![text("please")]),
            model(vec![text("done")]),
        ];
        assert_eq!(sound(&messages), messages);
    }

    #[test]
    fn each_call_gets_exactly_one_result_in_order() {
        let messages = [
            user(vec![text("go")]),
            model(vec![call("1"), call("2"), call("3")]),
            user(vec![result("2", "b"), text("x"), result("2", "again")]),
            user(vec![result("1", "a"), result("9", "old")]),
        ];
        let sound = sound(&messages);
        let ids = sound[2].parts.iter().map(|part| match part {
            ContentPart::Result(result) => result.call_id.as_str(),
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                text.as_str()
            }
            ContentPart::Reasoning { .. } | ContentPart::Call(_) | ContentPart::Image(_) => "?",
        });
        assert_eq!(ids.collect::<Vec<_>>(), ["1", "2", "3", "x"]);
        assert_eq!(sound[3], user(vec![text("Result of shell:\nold")]));
        assert_eq!(sound.len(), 4);
    }

    #[test]
    fn empty_text_lone_reasoning_and_a_leading_model_message_are_repaired() {
        let thought = ContentPart::Reasoning { text: "hm".into(), sealed: None };
        let messages = [
            model(vec![text("I begin")]),
            user(vec![text(" \n")]),
            model(vec![thought]),
            user(vec![text("go")]),
        ];
        let sound = sound(&messages);
        assert_eq!(sound[0].role, MessageRole::User);
        assert_eq!(sound[1..], [model(vec![text("I begin")]), user(vec![text("go")])]);
    }
}
