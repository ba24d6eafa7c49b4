//! Tests docs/extending.md: every code block is in the file that it names, so it compiles, and the
//! example provider works.

use base::event::Usage;
use futures_util::future::BoxFuture;
use provider::message::{Message, MessageRole, Reply, StopReason};
use provider::{ChatRequest, Delta, OnDelta, Provider, ProviderError, ProviderFacts};

/// A model that repeats the request.
struct Echo {
    facts: ProviderFacts,
}

impl Provider for Echo {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let asked = request.messages.last().map(Message::full_text).unwrap_or_default();
            on_delta(Delta::Text(&asked));
            let message = Message::text(MessageRole::Assistant, asked);
            Ok(Reply { message, usage: Usage::default(), stop: StopReason::Done })
        })
    }

    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }
}

#[tokio::test]
async fn the_example_provider_answers() {
    let facts = ProviderFacts {
        provider: "echo.main".into(),
        model: "echo".into(),
        context: 1_000,
        max_output: 100,
        small: false,
        priced: false,
    };
    let messages = [Message::text(MessageRole::User, "hello")];
    let request =
        ChatRequest { system: "", messages: &messages, tools: &[], max_output: 100, session: "s" };
    let mut heard = String::new();
    let mut on_delta = |delta: Delta<'_>| {
        if let Delta::Text(text) = delta {
            heard.push_str(text);
        }
    };
    let reply = Echo { facts }.ask(&request, &mut on_delta).await.unwrap();
    assert_eq!((reply.message.full_text().as_str(), heard.as_str()), ("hello", "hello"));
}

#[test]
fn every_code_block_of_the_guide_is_in_the_file_that_it_names() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/extending.md")).unwrap();
    let mut blocks = 0;
    for part in guide.split("<!-- from: ").skip(1) {
        let (path, rest) = part.split_once(" -->").unwrap();
        let block = rest.split("```").nth(1).expect("a block follows");
        let code = block.split_once('\n').unwrap().1.trim_end();
        let file =
            std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(file.contains(code), "{path} does not have:\n{code}");
        blocks += 1;
    }
    let fences = guide.lines().filter(|line| line.starts_with("```rust")).count();
    assert!(blocks >= 6 && fences <= blocks, "{blocks} of {fences} blocks name their file");
}
