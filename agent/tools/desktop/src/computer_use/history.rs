//! Trims the planner's history: the first instruction is always kept, and no result is kept without
//! its call.

use provider::message::{ContentPart, Message, MessageRole};

/// Maximum number of messages sent.
const MAX_MESSAGES: usize = 30;
/// Number of images sent: only the newest, since older ones are outdated.
const MAX_PICTURES: usize = 3;

/// Trims a history from its start and puts the instruction first again.
pub(crate) fn trim(messages: &mut Vec<Message>, instruction: &str) {
    if messages.len() > MAX_MESSAGES {
        // The kept part starts with a message of the planner, so that results follow their calls.
        let from = messages.len() + 1 - MAX_MESSAGES;
        let first =
            (from..messages.len()).find(|index| messages[*index].role == MessageRole::Assistant);
        let recent = messages.split_off(first.unwrap_or(messages.len()));
        let reminder = format!(
            "{instruction}\n\n[Reminder of the task. The steps before the next one were left out.]"
        );
        *messages = vec![Message::text(MessageRole::User, reminder)];
        messages.extend(recent);
    }
    drop_old_pictures(messages);
}

fn drop_old_pictures(messages: &mut [Message]) {
    let mut remaining = MAX_PICTURES;
    for part in messages.iter_mut().rev().flat_map(|message| message.parts.iter_mut().rev()) {
        let has_picture = match part {
            ContentPart::Image(_) => true,
            ContentPart::Result(result) => !result.images.is_empty(),
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Call(_) => false,
        };
        match (has_picture, remaining) {
            (false, _) => {}
            (true, 1..) => remaining -= 1,
            (true, 0) => match part {
                ContentPart::Result(result) => result.images.clear(),
                ContentPart::Image(_)
                | ContentPart::Text { .. }
                | ContentPart::Note(_)
                | ContentPart::Reasoning { .. }
                | ContentPart::Call(_) => {
                    *part = ContentPart::Text { text: "[an older picture]".to_owned() };
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use provider::message::{Image, ToolCall, ToolResult};

    fn history(steps: usize) -> Vec<Message> {
        let image = || Image { media_type: "image/jpeg".into(), data: "x".into() };
        let text = ContentPart::Text { text: "do it".into() };
        let mut all = vec![Message {
            role: MessageRole::User,
            parts: vec![text, ContentPart::Image(image())],
        }];
        for step in 0..steps {
            let id = format!("c{step}");
            let (name, args) = ("click_at".to_owned(), json!({}));
            let call = ToolCall { id: id.clone(), name: name.clone(), args, malformed: None };
            let result = ToolResult {
                call_id: id,
                name,
                ok: true,
                text: "{}".into(),
                images: vec![image()],
                not_run: false,
            };
            all.push(Message {
                role: MessageRole::Assistant,
                parts: vec![ContentPart::Call(call)],
            });
            all.push(Message { role: MessageRole::User, parts: vec![ContentPart::Result(result)] });
        }
        all
    }

    fn results(message: &Message) -> Vec<ToolResult> {
        let result = |part: &'_ ContentPart| match part {
            ContentPart::Result(result) => Some(result.clone()),
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Call(_)
            | ContentPart::Image(_) => None,
        };
        message.parts.iter().filter_map(result).collect()
    }

    #[test]
    fn the_instruction_is_kept_and_no_result_is_orphaned() {
        for steps in [0, 5, 14, 15, 16, 40, 41] {
            let mut all = history(steps);
            let before = all.clone();
            trim(&mut all, "do it");
            assert!(all.len() <= MAX_MESSAGES, "{steps}: {}", all.len());
            assert!(all[0].full_text().starts_with("do it"));
            assert_eq!(all[0].full_text().contains("Reminder"), before.len() > MAX_MESSAGES);
            for (at, message) in all.iter().enumerate() {
                for result in results(message) {
                    let called = all[at - 1].calls().any(|call| call.id == result.call_id);
                    assert!(called, "{steps}: {} has no call", result.call_id);
                }
            }
            assert_eq!(all.last().map(|it| it.role), before.last().map(|it| it.role));
            let last = all.iter().rev().flat_map(results).next();
            assert!(last.is_none_or(|result| !result.images.is_empty()), "the screen is shown");
            let shown = all.iter().flat_map(results).filter(|it| !it.images.is_empty()).count();
            assert!(shown <= MAX_PICTURES);
        }
    }
}
