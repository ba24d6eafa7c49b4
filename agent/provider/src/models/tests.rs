//! Tests of the model table.

use base::config::providers::LongPromptPrice;

use super::*;

fn named(model: &str) -> ModelFacts {
    known(model, &[], true)
}

fn own(text: &str) -> Vec<ModelConfig> {
    let config: base::config::Config = toml::from_str(text).unwrap();
    config.models
}

#[test]
fn the_longest_matching_prefix_wins() {
    assert_eq!(named("gpt-4o-mini-2024-07-18").price.unwrap().input, 0.15);
    assert_eq!(named("openai/gpt-4o-2024-08-06").price.unwrap().input, 2.5);
    assert_eq!(named("claude-sonnet-4-5-20250929").price.unwrap().input, 3.0);
    assert_eq!(named("claude-opus-4-8").price.unwrap().input, 5.0, "not that of Opus 4");
    assert_eq!(named("claude-sonnet-5-5").price.unwrap().cache_read, Some(0.1));
    assert_eq!(named("claude-fable-5-1").price.unwrap().cache_read, Some(0.25));
    assert_eq!(named("gpt-5.6-sol").price.unwrap().output, 20.0, "not that of GPT-5");
    assert_eq!(named("gpt-6-sol").price.unwrap().output, 10.0);
    assert_eq!(named("gpt-5.4-pro").price.unwrap().output, 180.0, "not that of GPT-5.4");
    assert_eq!(named("gemini-3.5-flash-lite").price.unwrap().output, 2.5);
    let next = named("gpt-6.1-sol");
    assert_eq!((next.context, next.price), (Some(1_050_000), None));
    assert_eq!(named("scripted"), ModelFacts::default());
    for kind in ["anthropic", "openai", "gemini"] {
        assert!(named(&default_model(kind).unwrap()).context.is_some(), "{kind}");
    }
}

#[test]
fn user_entries_override_the_table_and_inherit_missing_facts() {
    let own = own("[[models]]\nname = \"gpt-4o\"\nprice = { input = 9, output = 99 }\n\
                   [[models]]\nname = \"Mine-\"\ncontext = 1000\n\
                   [[models]]\nname = \"mine-large\"\ncontext = 5000\nmax_output = 70\n");
    let gpt = known("gpt-4o-mini", &own, false);
    assert_eq!((gpt.price.unwrap().output, gpt.context), (99.0, Some(128_000)));
    let mine = known("vendor/mine-large-2", &own, false);
    assert_eq!((mine.context, mine.max_output, mine.price), (Some(5000), Some(70), None));
    assert_eq!(known("mine-small", &own, true).context, Some(1000));
}

#[test]
fn built_in_prices_apply_only_at_the_maker() {
    assert!(known("gpt-4o", &[], true).price.is_some());
    assert!(known("gpt-4o", &[], false).price.is_none());
}

#[test]
fn the_configuration_overrides_the_table_and_output_fits_the_context() {
    let agent = AgentConfig::default();
    let said = ModelOverrides {
        context: Some(10_000),
        max_output: Some(9_000),
        ..ModelOverrides::default()
    };
    let (facts, price) = facts("openai.x", "gpt-4o", said, &agent, known("gpt-4o", &[], false));
    assert_eq!((facts.context, facts.max_output, price), (10_000, 5_000, None));
}

#[test]
fn small_models_are_recognized_by_name() {
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
        cost_incomplete: false,
    };
    let mut price = Price {
        input: 3.0,
        output: 15.0,
        cache_read: Some(0.3),
        cache_write: None,
        long_prompt: None,
    };
    assert!((cost(&usage, price) - 4.8).abs() < 1e-9);
    let (input, output, cache_read, cache_write) = (6.0, 20.0, Some(0.6), None);
    let long = LongPromptPrice { above: 2_000_000, input, output, cache_read, cache_write };
    price.long_prompt = Some(long);
    assert!((cost(&usage, price) - 4.8).abs() < 1e-9, "the prompt has exactly that many tokens");
    price.long_prompt = Some(LongPromptPrice { above: 1_999_999, ..long });
    assert!((cost(&usage, price) - 8.6).abs() < 1e-9, "all tokens of the request cost more");
}
