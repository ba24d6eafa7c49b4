//! What is known about models: context, output and price, from `models.toml`.

use std::collections::BTreeMap;

use base::config::agent::AgentConfig;
use base::config::providers::{ModelConfig, Price};
use base::event::Usage;
use serde::Deserialize;

use crate::provider::ProviderFacts;

const TABLE: &str = include_str!("models.toml");

/// Context of a model that nobody told us about: what local servers commonly offer.
const UNKNOWN_CONTEXT: u32 = 32_768;

#[derive(Deserialize)]
struct Table {
    default: BTreeMap<String, String>,
    model: Vec<ModelRow>,
}

/// One line of the table.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ModelRow {
    name: String,
    context: u32,
    max_output: u32,
    price: Option<Price>,
}

/// What the configuration says about a model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelOverrides {
    /// Tokens that it reads.
    pub context: Option<u32>,
    /// Tokens that it writes at most.
    pub max_output: Option<u32>,
    /// What tokens cost.
    pub price: Option<Price>,
    /// Tokens that it may think, which count as written.
    pub thinking: Option<u32>,
}

/// What is known about a model; what is not known is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModelFacts {
    context: Option<u32>,
    max_output: Option<u32>,
    price: Option<Price>,
}

fn table() -> Table {
    toml::from_str(TABLE).expect("a test reads models.toml")
}

/// The model to ask when the configuration names none for this type of provider.
pub(crate) fn default_model(kind: &str) -> Option<String> {
    table().default.remove(kind)
}

/// The names in our table that are whole names of models.
pub(crate) fn names() -> Vec<String> {
    let names = table().model.into_iter().map(|line| line.name);
    names.filter(|name| !name.ends_with('-')).collect()
}

/// What is known about a model: the user's own line (the longest beginning that fits), and what it
/// leaves open from ours. `vendor/model` counts as `model`, too. Our price holds only where the
/// model's own maker is asked, the user's everywhere.
pub(crate) fn known(model: &str, own: &[ModelConfig], is_maker: bool) -> ModelFacts {
    let full = model.to_ascii_lowercase();
    let bare = full.rsplit('/').next().unwrap_or(&full);
    let fits = |name: &str| {
        let name = name.to_ascii_lowercase();
        full.starts_with(&name) || bare.starts_with(&name)
    };
    let own = own.iter().filter(|line| fits(&line.name)).max_by_key(|line| line.name.len());
    let ours = table().model.into_iter().filter(|line| fits(&line.name));
    let ours = ours.max_by_key(|line| line.name.len());
    ModelFacts {
        context: own.and_then(|m| m.context).or(ours.as_ref().map(|m| m.context)),
        max_output: own.and_then(|m| m.max_output).or(ours.as_ref().map(|m| m.max_output)),
        price: own.and_then(|m| m.price).or_else(|| ours.filter(|_| is_maker)?.price),
    }
}

/// What the loop must know about a model, and what its tokens cost.
pub(crate) fn facts(
    provider: &str,
    model: &str,
    said: ModelOverrides,
    agent: &AgentConfig,
    known: ModelFacts,
) -> (ProviderFacts, Option<Price>) {
    let context = said.context.or(known.context).unwrap_or(UNKNOWN_CONTEXT);
    let context = agent.max_context_length.map_or(context, |most| most.min(context));
    let usual = agent.fallback_default_max_tokens.saturating_add(said.thinking.unwrap_or(0));
    let max_output = said.max_output.unwrap_or(usual.min(known.max_output.unwrap_or(u32::MAX)));
    let max_output = max_output.min(context / 2).max(1);
    let price = said.price.or(known.price);
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

/// US dollars for these tokens.
pub(crate) fn cost(usage: &Usage, price: Price) -> f64 {
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
mod tests;
