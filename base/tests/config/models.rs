//! `[[models]]`: properties of models that the user sets.

use base::config::show;

use crate::setting::Env;

#[test]
fn a_model_entry_has_a_name_and_its_properties() {
    let file = "[[models]]\nname = \"mine-\"\ncontext = 64000\n\n\
                [[models]]\nname = \"gpt-9\"\nprice = { input = 2, output = 8.5, cache_read = 0.2 }\n";
    let loaded = Env::new(file, "").load();
    let models = &loaded.config.models;
    assert_eq!(
        (models[0].context, models[0].max_output, models[0].price),
        (Some(64_000), None, None)
    );
    let price = models[1].price.unwrap();
    assert_eq!((price.input, price.output, price.cache_read), (2.0, 8.5, Some(0.2)));
    assert!(show::values(&loaded).iter().any(|shown| shown.key == "models"));
    let env = Env::new("", "").environment("G3_AGENT__MAX_TURNS", "1");
    assert!(env.load().config.models.is_empty());
}

#[test]
fn an_invalid_model_is_rejected_by_name() {
    for wrong in [
        "context = 1",
        "name = \"\"",
        "name = \"m\"\ncontext = 0",
        "name = \"m\"\nprice = { input = 1 }",
        "name = \"m\"\nprice = { input = -1, output = 1 }",
        "name = \"m\"\nwindow = 5",
    ] {
        let failure = Env::new(&format!("[[models]]\n{wrong}\n"), "").failure();
        assert!(failure.contains("`models` must be a list of models"), "{wrong}: {failure}");
    }
}

#[test]
fn half_a_price_is_rejected() {
    let file = "[providers.anthropic.main]\nprice = { input = 3.0 }\n";
    let failure = Env::new(file, "").failure();
    assert!(failure.contains("`providers.anthropic.main.price` has no `output`"), "{failure}");
    assert!(failure.contains("config.toml sets only a part"), "{failure}");
}
