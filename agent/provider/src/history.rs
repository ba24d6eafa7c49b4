//! Normalizes a conversation to the form that every wire format accepts: it starts with the user,
//! has no empty text, and every call has a valid name and is followed by exactly one result. Valid
//! conversations are not changed, so that the prefix stays byte-identical from turn to turn.

use std::collections::HashMap;

use crate::message::{ContentPart, HarnessNote, Message, MessageRole, ToolCall, ToolResult};
use crate::tool_args::sanitize_name;

/// Returns the normalized conversation.
pub(crate) fn repair(messages: &[Message]) -> Vec<Message> {
    let mut repaired = Vec::with_capacity(messages.len() + 1);
    if messages.first().is_none_or(|first| first.role == MessageRole::Assistant) {
        repaired.push(Message::text(MessageRole::User, "(the conversation continues)"));
    }
    let mut index = 0;
    while let Some(message) = messages.get(index) {
        index += 1;
        match message.role {
            MessageRole::User => repaired.extend(without_empty_parts(message, |_| false)),
            MessageRole::Assistant => {
                let results =
                    messages[index..].iter().take_while(|next| next.role == MessageRole::User);
                let results: Vec<&Message> = results.collect();
                index += results.len();
                repair_turn(message, &results, &mut repaired);
            }
        }
    }
    repaired
}

/// Appends a message of the model and the user messages that answer it. Results come first.
fn repair_turn(message: &Message, answers: &[&Message], repaired: &mut Vec<Message>) {
    let Some(call_message) = without_empty_parts(message, |_| false) else {
        return repaired.extend(answers.iter().filter_map(|m| without_empty_parts(m, |_| false)));
    };
    let parts = answers.iter().flat_map(|answer| &answer.parts);
    let mut results_by_id: HashMap<&str, &ToolResult> = HashMap::new();
    for part in parts {
        if let ContentPart::Result(result) = part {
            results_by_id.entry(&result.call_id).or_insert(result);
        }
    }
    let results: Vec<ContentPart> = call_message
        .calls()
        .map(|call| {
            let missing_result = || ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                ok: false,
                text: "There is no result: the call was interrupted.".to_owned(),
                images: Vec::new(),
                not_run: false,
            };
            let result =
                results_by_id.get(call.id.as_str()).map_or_else(missing_result, |r| (*r).clone());
            ContentPart::Result(ToolResult { name: call.name.clone(), ..result })
        })
        .collect();
    let call_ids: Vec<String> = call_message.calls().map(|call| call.id.clone()).collect();
    repaired.push(call_message);
    let is_answered = |result: &ToolResult| call_ids.contains(&result.call_id);
    let mut remaining =
        answers.iter().filter_map(|answer| without_empty_parts(answer, is_answered)).peekable();
    if !results.is_empty() {
        let mut first = Message { role: MessageRole::User, parts: results };
        // The user's text after results is in the same message, after them.
        let is_adjacent = answers
            .first()
            .is_some_and(|a| a.parts.iter().any(|p| matches!(p, ContentPart::Result(_))));
        if is_adjacent
            && let Some(others) = remaining.next_if(|_| has_other_parts(answers[0], is_answered))
        {
            first.parts.extend(others.parts);
        }
        repaired.push(first);
    }
    repaired.extend(remaining);
}

fn has_other_parts(message: &Message, is_omitted: impl Fn(&ToolResult) -> bool) -> bool {
    without_empty_parts(message, is_omitted).is_some()
}

/// Returns the message without empty text and without the results for which `is_omitted` is true.
/// Results that answer no call become text. Returns `None` if nothing remains.
fn without_empty_parts(
    message: &Message,
    is_omitted: impl Fn(&ToolResult) -> bool,
) -> Option<Message> {
    let keep = |part: &ContentPart| match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
            (!text.trim().is_empty()).then(|| part.clone())
        }
        ContentPart::Result(result) if is_omitted(result) => None,
        ContentPart::Result(result) => {
            Some(ContentPart::Text { text: format!("Result of {}:\n{}", result.name, result.text) })
        }
        ContentPart::Call(call) => {
            let name = sanitize_name(&call.name);
            Some(ContentPart::Call(ToolCall { name, ..call.clone() }))
        }
        ContentPart::Reasoning { .. } | ContentPart::Image(_) => Some(part.clone()),
    };
    let parts: Vec<ContentPart> = message.parts.iter().filter_map(keep).collect();
    let is_reasoning_only = parts.iter().all(|part| matches!(part, ContentPart::Reasoning { .. }));
    (!is_reasoning_only).then_some(Message { role: message.role, parts })
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
        assert_eq!(repair(&messages), messages);
    }

    #[test]
    fn each_call_gets_exactly_one_result_in_order() {
        let messages = [
            user(vec![text("go")]),
            model(vec![call("1"), call("2"), call("3")]),
            user(vec![result("2", "b"), text("x"), result("2", "again")]),
            user(vec![result("1", "a"), result("9", "old")]),
        ];
        let repaired = repair(&messages);
        let ids = repaired[2].parts.iter().map(|part| match part {
            ContentPart::Result(result) => result.call_id.as_str(),
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                text.as_str()
            }
            ContentPart::Reasoning { .. } | ContentPart::Call(_) | ContentPart::Image(_) => "?",
        });
        assert_eq!(ids.collect::<Vec<_>>(), ["1", "2", "3", "x"]);
        assert_eq!(repaired[3], user(vec![text("Result of shell:\nold")]));
        assert_eq!(repaired.len(), 4);
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
        let repaired = repair(&messages);
        assert_eq!(repaired[0].role, MessageRole::User);
        assert_eq!(repaired[1..], [model(vec![text("I begin")]), user(vec![text("go")])]);
    }
}
