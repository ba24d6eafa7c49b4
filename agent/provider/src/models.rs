//! Facts about models: context, output limit and price, from `models.toml`.

use std::collections::BTreeMap;

use base::config::agent::AgentConfig;
use base::config::providers::{ModelConfig, Price};
use base::event::Usage;
use serde::Deserialize;

use crate::provider::ProviderFacts;

const TABLE: &str = include_str!("models.toml");

/// Context, in tokens, assumed for an unknown model: what local servers commonly offer.
const UNKNOWN_CONTEXT: u32 = 32_768;

#[derive(Deserialize)]
struct Table {
    default: BTreeMap<String, String>,
    model: Vec<ModelRow>,
}

/// A row of the table.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ModelRow {
    name: String,
    context: u32,
    max_output: u32,
    price: Option<Price>,
}

/// The configured facts about a model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelOverrides {
    /// Context window in tokens.
    pub context: Option<u32>,
    /// Maximum number of output tokens.
    pub max_output: Option<u32>,
    /// The price of tokens.
    pub price: Option<Price>,
    /// Thinking budget in tokens; counts as output.
    pub thinking: Option<u32>,
}

/// Facts about a model; unknown ones are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModelFacts {
    context: Option<u32>,
    max_output: Option<u32>,
    price: Option<Price>,
}

fn table() -> Table {
    toml::from_str(TABLE).expect("a test reads models.toml")
}

/// Returns the default model for a type of provider without a configured model.
pub(crate) fn default_model(kind: &str) -> Option<String> {
    table().default.remove(kind)
}

/// Returns the names in the built-in table that are full names of models.
pub(crate) fn names() -> Vec<String> {
    let names = table().model.into_iter().map(|row| row.name);
    names.filter(|name| !name.ends_with('-')).collect()
}

/// Looks up the facts about a model: from the user's own entry (the longest matching prefix), then
/// from the built-in table for facts that the entry does not set. `vendor/model` also matches
/// `model`. Built-in prices apply only if the model's maker serves it; the user's prices apply
/// everywhere.
pub(crate) fn known(model: &str, overrides: &[ModelConfig], is_maker: bool) -> ModelFacts {
    let lower = model.to_ascii_lowercase();
    let base_name = lower.rsplit('/').next().unwrap_or(&lower);
    let is_prefix = |name: &str| {
        let name = name.to_ascii_lowercase();
        lower.starts_with(&name) || base_name.starts_with(&name)
    };
    let overrides =
        overrides.iter().filter(|line| is_prefix(&line.name)).max_by_key(|line| line.name.len());
    let built_in = table().model.into_iter().filter(|line| is_prefix(&line.name));
    let built_in = built_in.max_by_key(|line| line.name.len());
    ModelFacts {
        context: overrides.and_then(|m| m.context).or(built_in.as_ref().map(|m| m.context)),
        max_output: overrides
            .and_then(|m| m.max_output)
            .or(built_in.as_ref().map(|m| m.max_output)),
        price: overrides.and_then(|m| m.price).or_else(|| built_in.filter(|_| is_maker)?.price),
    }
}

/// Returns the facts about a model and the price of its tokens.
pub(crate) fn facts(
    provider: &str,
    model: &str,
    overrides: ModelOverrides,
    agent: &AgentConfig,
    known: ModelFacts,
) -> (ProviderFacts, Option<Price>) {
    let context = overrides.context.or(known.context).unwrap_or(UNKNOWN_CONTEXT);
    let context = agent.max_context_length.map_or(context, |max| max.min(context));
    let default_max_output =
        agent.fallback_default_max_tokens.saturating_add(overrides.thinking.unwrap_or(0));
    let max_output = overrides
        .max_output
        .unwrap_or(default_max_output.min(known.max_output.unwrap_or(u32::MAX)));
    let max_output = max_output.min(context / 2).max(1);
    let price = overrides.price.or(known.price);
    let facts = ProviderFacts {
        provider: provider.to_owned(),
        model: model.to_owned(),
        context: u64::from(context),
        max_output: u64::from(max_output),
        small: context < 8192 || billions(model).is_some_and(|size| size < 4.0),
        priced: price.is_some(),
    };
    (facts, price)
}

/// Returns the cost of these tokens in US dollars.
pub(crate) fn cost(usage: &Usage, price: Price) -> f64 {
    let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let price = price.for_prompt(prompt);
    let dollars_for = |tokens: u64, price_per_million: f64| tokens as f64 * price_per_million / 1e6;
    dollars_for(usage.input, price.input)
        + dollars_for(usage.output, price.output)
        + dollars_for(usage.cache_read, price.cache_read.unwrap_or(price.input))
        + dollars_for(usage.cache_write, price.cache_write.unwrap_or(price.input))
}

/// Parses the number of parameters, in billions, from the name: 1.5 for
/// `qwen2.5-coder-1.5b-instruct`. For a mixture (`30b-a3b`), returns the total.
fn billions(model: &str) -> Option<f64> {
    let lower = model.to_ascii_lowercase();
    let words = lower.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    words.filter_map(|word| word.strip_suffix('b')?.parse().ok()).next()
}

#[cfg(test)]
mod tests;
