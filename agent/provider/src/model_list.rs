//! The models that can be named at the prompt: configured ones and ones in the built-in table.

use base::config::Config;
use base::config::providers::{Providers, TYPES};
use base::failure::{Failure, Result};

use crate::from_config::ProviderChoice;
use crate::models;

/// Name prefixes of each provider's own models.
const MAKER_PREFIXES: [(&str, &[&str]); 3] = [
    ("anthropic", &["claude-"]),
    ("openai", &["gpt-", "chatgpt-", "codex-", "o1", "o3", "o4"]),
    ("gemini", &["gemini-", "gemma-"]),
];
/// Minimum similarity of two names, from 0 to 1, for one to be a misspelling of the other.
const MIN_TYPO_SCORE: f64 = 0.93;

/// A provider and the model requested from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderModel {
    /// `type.name`, or a type that has no entry.
    pub provider: String,
    /// The model's name, if it is known without a request to the provider.
    pub model: Option<String>,
}

/// Returns the provider and model selected by these flags, as far as the configuration determines
/// them.
pub fn chosen(config: &Config, choice: &ProviderChoice) -> ProviderModel {
    let reference = choice.reference.clone().unwrap_or_else(|| config.providers.chosen());
    let provider = resolve_reference(&config.providers, &reference);
    let configured = || model_of(&config.providers, &provider);
    ProviderModel { model: choice.model.clone().or_else(configured), provider }
}

/// Returns all configured providers.
pub fn configured(config: &Config) -> Vec<ProviderModel> {
    let references = config.providers.references().into_iter();
    references
        .map(|provider| ProviderModel { model: model_of(&config.providers, &provider), provider })
        .collect()
}

/// Returns all configured providers, and first the current one if it is none of them.
pub fn configured_and(config: &Config, current: &ProviderModel) -> Vec<ProviderModel> {
    let mut all = configured(config);
    if !all.contains(current) {
        all.insert(0, current.clone());
    }
    all
}

/// Returns the other built-in models that the current provider's service offers.
pub fn others(config: &Config, current: &ProviderModel, listed: &[ProviderModel]) -> Vec<String> {
    let is_listed = |name: &String| listed.iter().any(|listed| listed.model.as_ref() == Some(name));
    let mut others = known(config, &current.provider);
    others.retain(|name| !is_listed(name));
    others
}

/// Returns the built-in models that this provider's service offers. Returns none for a self-hosted
/// server.
pub fn known(config: &Config, provider: &str) -> Vec<String> {
    let Some(prefixes) = prefixes(&config.providers, provider) else { return Vec::new() };
    let is_of_maker = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
    models::names().into_iter().filter(is_of_maker).collect()
}

/// Resolves a name typed at the prompt: a configured provider, a model of one, or another model of
/// the current provider. The note says what is unknown about it.
pub fn find(
    config: &Config,
    current_choice: &ProviderChoice,
    typed: &str,
) -> Result<(ProviderChoice, Option<String>)> {
    let models = configured(config);
    let choice_of = |provider: &str, model: Option<&str>| ProviderChoice {
        reference: Some(provider.to_owned()),
        model: model.map(str::to_owned),
        fallback: current_choice.fallback.clone(),
        budget: current_choice.budget,
    };
    let is_provider =
        |name: &str| TYPES.contains(&name) || models.iter().any(|listed| listed.provider == name);
    if let Some((provider, model)) = typed.split_once(char::is_whitespace) {
        let model = model.trim();
        if !is_provider(provider) {
            return Err(unknown_provider(provider, &models));
        }
        return check_model(config, choice_of(provider, Some(model)), model);
    }
    if is_provider(typed) {
        return Ok((choice_of(typed, None), None));
    }
    let current = chosen(config, current_choice).provider;
    let has_model = |listed: &&ProviderModel| listed.model.as_deref() == Some(typed);
    let in_current_provider =
        models.iter().filter(has_model).find(|listed| listed.provider == current);
    if let Some(listed) = in_current_provider.or_else(|| models.iter().find(has_model)) {
        return Ok((choice_of(&listed.provider, Some(typed)), None));
    }
    let choice = ProviderChoice { model: Some(typed.to_owned()), ..current_choice.clone() };
    check_model(config, choice, typed)
}

fn unknown_provider(name: &str, models: &[ProviderModel]) -> Failure {
    let names: Vec<&str> = models.iter().map(|listed| listed.provider.as_str()).collect();
    Failure::usage(format!("unknown provider `{name}`")).hint(if names.is_empty() {
        "/model".to_owned()
    } else {
        names.join(", ")
    })
}

/// Rejects a model that the service is known not to offer.
fn check_model(
    config: &Config,
    choice: ProviderChoice,
    model: &str,
) -> Result<(ProviderChoice, Option<String>)> {
    let provider = chosen(config, &choice).provider;
    let is_listed = config.models.iter().any(|line| model.starts_with(&line.name));
    let note = || {
        let known = models::known(model, &config.models, false);
        let unknown = known == models::ModelFacts::default() && !provider.starts_with("embedded");
        unknown.then(|| format!("unknown context size and price for `{model}`"))
    };
    let Some(prefixes) = prefixes(&config.providers, &provider).filter(|_| !is_listed) else {
        return Ok((choice, note()));
    };
    let names = known(config, &provider);
    let score = |name: &String| strsim::jaro_winkler(name, model);
    let nearest = names.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
    let is_known_prefix = prefixes.iter().any(|prefix| model.starts_with(prefix));
    let is_variant = names.iter().any(|name| model.starts_with(name.as_str()));
    let likely_meant = nearest.filter(|name| !is_variant && score(name) > MIN_TYPO_SCORE);
    if is_known_prefix && likely_meant.is_none() {
        return Ok((choice, note()));
    }
    let failure = Failure::usage(format!("`{provider}` has no model `{model}`"));
    let failure = match nearest.filter(|name| score(name) > 0.8) {
        Some(name) => failure.hint(format!("/model {name}")),
        None => failure.hint("/model lists the models"),
    };
    Err(failure.hint(format!("add `{model}` as [[models]] to the configuration, if it exists")))
}

/// Returns the name prefixes of a provider's models, or `None` for a self-hosted server.
fn prefixes(providers: &Providers, provider: &str) -> Option<&'static [&'static str]> {
    let (kind, name) = provider.split_once('.').unwrap_or((provider, ""));
    let has_own_server = match kind {
        "anthropic" => providers.anthropic.get(name).is_some_and(|it| it.base_url.is_some()),
        "openai" => providers.openai.get(name).is_some_and(|it| it.base_url.is_some()),
        "gemini" => providers.gemini.get(name).is_some_and(|it| it.base_url.is_some()),
        _ => true,
    };
    let maker = MAKER_PREFIXES.iter().find(|(maker, _)| *maker == kind).filter(|_| !has_own_server);
    maker.map(|(_, prefixes)| *prefixes)
}

/// Completes a reference. A bare type refers to its only entry.
fn resolve_reference(providers: &Providers, reference: &str) -> String {
    let prefix = format!("{reference}.");
    let mut matching = providers.references().into_iter().filter(|it| it.starts_with(&prefix));
    match (matching.next(), matching.next()) {
        (Some(single), None) => single,
        (Some(_), Some(_)) | (None, _) => reference.to_owned(),
    }
}

fn model_of(providers: &Providers, provider: &str) -> Option<String> {
    let (kind, name) = provider.split_once('.').unwrap_or((provider, ""));
    let model = match kind {
        "anthropic" => providers.anthropic.get(name).and_then(|it| it.model.clone()),
        "openai" => providers.openai.get(name).and_then(|it| it.model.clone()),
        "databricks" => providers.databricks.get(name).and_then(|it| it.model.clone()),
        "gemini" => providers.gemini.get(name).and_then(|it| it.model.clone()),
        "embedded" => {
            let model = providers.embedded.get(name).and_then(|it| it.model.clone());
            model.or_else(|| Some(base::model_host::catalogue::DEFAULT.to_owned()))
        }
        _ => None,
    };
    model.or_else(|| models::default_model(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    fn named(
        text: &str,
        typed: &str,
    ) -> std::result::Result<(Option<String>, Option<String>), String> {
        let found = find(&config(text), &ProviderChoice::default(), typed);
        found.map(|(choice, _)| (choice.reference, choice.model)).map_err(|error| error.to_string())
    }

    const TWO: &str = "[providers]\ndefault_provider = \"anthropic.work\"\n\
        [providers.anthropic.work]\nmodel = \"claude-sonnet-4-5\"\n\
        [providers.openai.local]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"qwen3:8b\"\n";

    #[test]
    fn models_and_providers_are_found_by_name() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(named(TWO, "openai.local"), Ok((some("openai.local"), None)));
        assert_eq!(named(TWO, "qwen3:8b"), Ok((some("openai.local"), some("qwen3:8b"))));
        assert_eq!(named(TWO, "openai.local llama"), Ok((some("openai.local"), some("llama"))));
        assert_eq!(named(TWO, "claude-haiku-4-5"), Ok((None, some("claude-haiku-4-5"))));
    }

    #[test]
    fn an_unknown_model_is_rejected_with_similar_names() {
        let reason = named(TWO, "claude-sonet-4-5").unwrap_err();
        assert!(reason.contains("has no model `claude-sonet-4-5`"), "{reason}");
        assert!(reason.contains("/model claude-sonnet-4"), "{reason}");
        assert!(named(TWO, "gpt-5").unwrap_err().contains("anthropic.work"), "another maker's");
        assert!(named(TWO, "nobody.there x").unwrap_err().contains("unknown provider"));
        let own = format!("{TWO}[[models]]\nname = \"mine\"\n");
        assert!(named(&own, "mine").is_ok(), "the user says that there is one");
    }

    #[test]
    fn the_chosen_model_is_known_without_a_request() {
        let listed = chosen(&config(TWO), &ProviderChoice::default());
        assert_eq!(listed.provider, "anthropic.work");
        assert_eq!(listed.model.as_deref(), Some("claude-sonnet-4-5"));
        assert!(known(&config(TWO), "anthropic.work").contains(&"claude-haiku-4-5".to_owned()));
        assert!(known(&config(TWO), "openai.local").is_empty());
    }
}
