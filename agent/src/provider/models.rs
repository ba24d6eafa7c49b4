//! What is known about models: context, output and price, from `models.toml`.

use std::collections::BTreeMap;

use base::config::agent::AgentConfig;
use base::config::providers::Price;
use base::event::Usage;
use serde::Deserialize;

use super::Facts;

const TABLE: &str = include_str!("models.toml");

/// Context of a model that nobody told us about: what local servers commonly offer.
const UNKNOWN_CONTEXT: u32 = 32_768;

#[derive(Deserialize)]
struct Table {
    default: BTreeMap<String, String>,
    model: Vec<Model>,
}

/// One line of the table.
#[derive(Clone, Debug, Deserialize)]
pub struct Model {
    name: String,
    context: u32,
    max_output: u32,
    price: Option<Price>,
}

/// What the configuration says about a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    /// Tokens that it reads.
    pub context: Option<u32>,
    /// Tokens that it writes at most.
    pub max_output: Option<u32>,
    /// What tokens cost.
    pub price: Option<Price>,
}

fn table() -> Table {
    toml::from_str(TABLE).expect("a test reads models.toml")
}

/// The model to ask when the configuration names none for this type of provider.
pub fn default_model(kind: &str) -> Option<String> {
    table().default.remove(kind)
}

/// What is known about a model; `vendor/model` counts as `model`.
pub fn known(model: &str) -> Option<Model> {
    let bare = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let fits = table().model.into_iter().filter(|line| bare.starts_with(&line.name));
    fits.max_by_key(|line| line.name.len())
}

/// What the loop must know about a model, and what its tokens cost. The table's price holds only
/// where the model's own maker is asked.
pub fn facts(
    provider: &str,
    model: &str,
    said: Said,
    agent: &AgentConfig,
    is_maker: bool,
) -> (Facts, Option<Price>) {
    let known = known(model);
    let context = said.context.or(known.as_ref().map(|m| m.context)).unwrap_or(UNKNOWN_CONTEXT);
    let context = agent.max_context_length.map_or(context, |most| most.min(context));
    let able = known.as_ref().map_or(u32::MAX, |m| m.max_output);
    let max_output = said.max_output.unwrap_or(agent.fallback_default_max_tokens.min(able));
    let max_output = max_output.min(context / 2).max(1);
    let facts = Facts {
        provider: provider.to_owned(),
        model: model.to_owned(),
        context: u64::from(context),
        max_output: u64::from(max_output),
        small: context < 8192 || billions(model).is_some_and(|size| size < 4.0),
    };
    let price = said.price.or_else(|| known.filter(|_| is_maker)?.price);
    (facts, price)
}

/// US dollars for these tokens.
pub fn cost(usage: &Usage, price: Price) -> f64 {
    let million = |tokens: u64, dollars: f64| tokens as f64 * dollars / 1e6;
    million(usage.input, price.input)
        + million(usage.output, price.output)
        + million(usage.cache_read, price.cache_read.unwrap_or(price.input))
        + million(usage.cache_write, price.cache_write.unwrap_or(price.input))
}

/// The parameters in billions, where the name tells: `qwen2.5-coder-1.5b-instruct` has 1.5. Of a
/// mixture (`30b-a3b`) the whole counts.
fn billions(model: &str) -> Option<f64> {
    let lower = model.to_ascii_lowercase();
    let words = lower.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    words.filter_map(|word| word.strip_suffix('b')?.parse().ok()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_holds() {
        assert_eq!(known("gpt-4o-mini-2024-07-18").unwrap().name, "gpt-4o-mini");
        assert_eq!(known("openai/gpt-4o-2024-08-06").unwrap().name, "gpt-4o");
        assert_eq!(known("claude-sonnet-4-5-20250929").unwrap().name, "claude-sonnet-4");
        assert!(known("scripted").is_none());
        for kind in ["anthropic", "openai", "gemini"] {
            assert!(known(&default_model(kind).unwrap()).is_some(), "{kind}");
        }
    }

    #[test]
    fn the_configuration_beats_the_table_and_the_loop_never_gets_more_than_fits() {
        let agent = AgentConfig::default();
        let said = Said { context: Some(10_000), max_output: Some(9_000), price: None };
        let (facts, price) = facts("openai.x", "gpt-4o", said, &agent, false);
        assert_eq!((facts.context, facts.max_output, price), (10_000, 5_000, None));
    }

    #[test]
    fn small_models_are_told_by_their_name() {
        assert_eq!(billions("Qwen2.5-Coder-1.5B-Instruct"), Some(1.5));
        assert_eq!(billions("qwen3-30b-a3b"), Some(30.0));
        assert_eq!(billions("gpt-4o"), None);
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let usage = Usage {
            input: 1_000_000,
            output: 100_000,
            cache_read: 1_000_000,
            cache_write: 0,
            cost_usd: None,
        };
        let price = Price { input: 3.0, output: 15.0, cache_read: Some(0.3), cache_write: None };
        assert!((cost(&usage, price) - 4.8).abs() < 1e-9);
    }
}
