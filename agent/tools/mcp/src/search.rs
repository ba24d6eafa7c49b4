//! Searches many tools by words.

use std::time::Duration;

use super::server::{ConfiguredServer, KnownTool};
use tools::output::ToolOutput;

/// Maximum number of tools shown with their parameters.
const MAX_FULL: usize = 8;
/// Maximum number of further tools shown by name.
const MAX_NAMED: usize = 100;
/// Maximum time that a search waits for servers that are starting.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the best matching tools, and notes about servers whose tools are unknown.
pub(crate) async fn run(servers: &[&ConfiguredServer], query: &str) -> ToolOutput {
    let queries = servers.iter().map(|server| async move {
        (*server, tokio::time::timeout(TIMEOUT, server.tools()).await)
    });
    let mut found_tools = Vec::new();
    let mut notes = Vec::new();
    for (server, tools) in futures_util::future::join_all(queries).await {
        match tools {
            Ok(Ok(tools)) => found_tools.extend(tools.into_iter().map(|tool| (server, tool))),
            Ok(Err(error)) => notes.push(format!("[{} is not there: {error}]", server.name)),
            Err(_) => notes.push(format!("[{} is still starting; search again]", server.name)),
        }
    }
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let mut scored: Vec<(usize, &ConfiguredServer, KnownTool)> = found_tools
        .into_iter()
        .map(|(server, tool)| (score(&words, &server.name, &tool), server, tool))
        .filter(|(score, ..)| words.is_empty() || *score > 0)
        .collect();
    // A stable sort keeps the order of the servers for equal scores.
    scored.sort_by_key(|(score, ..)| std::cmp::Reverse(*score));
    let mut text = String::new();
    for (index, (_, server, tool)) in scored.iter().take(MAX_FULL + MAX_NAMED).enumerate() {
        text.push_str(&describe(&server.name, tool, index < MAX_FULL && !words.is_empty()));
    }
    if scored.is_empty() {
        text.push_str("no tool fits; a search without a query lists them all\n");
    } else if scored.len() > MAX_FULL + MAX_NAMED {
        text.push_str(&format!(
            "[{} more; use other words]\n",
            scored.len() - MAX_FULL - MAX_NAMED
        ));
    }
    notes.iter().for_each(|note| text.push_str(&format!("{note}\n")));
    ToolOutput::success(text)
}

/// Returns how well a tool matches: a word in its name counts more than one in its description.
fn score(words: &[String], server: &str, tool: &KnownTool) -> usize {
    let (name, description) = (tool.name.to_lowercase(), tool.description.to_lowercase());
    let server = server.to_lowercase();
    let score_of = |word: &String| {
        let word = word.as_str();
        4 * usize::from(name.contains(word))
            + 2 * usize::from(server.contains(word))
            + usize::from(description.contains(word))
    };
    words.iter().map(score_of).sum()
}

fn describe(server: &str, tool: &KnownTool, in_full: bool) -> String {
    if in_full {
        return format!(
            "server: {server}\ntool: {}\n{}\nargs: {}\n\n",
            tool.name, tool.description, tool.parameters
        );
    }
    let first = tool.description.lines().next().unwrap_or_default();
    format!("{server} {}: {}\n", tool.name, base::text::head(first, 120))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_more_than_descriptions() {
        let tool = |name: &str, description: &str| KnownTool {
            name: name.into(),
            description: description.into(),
            parameters: serde_json::json!({}),
            repeatable: false,
        };
        let words = ["Issue".to_lowercase(), "close".to_owned()];
        let close = score(&words, "tracker", &tool("close_issue", "Closes it."));
        let other = score(&words, "tracker", &tool("comment", "Writes below an issue."));
        assert!(close > other && other > 0);
        assert_eq!(score(&words, "tracker", &tool("push", "Sends commits.")), 0);
    }
}
