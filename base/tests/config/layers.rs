//! Layers, origins, errors, and display of the configuration.

use std::fs;
use std::path::{Path, PathBuf};

use base::config::providers::{CommandLine, OpenaiWire};
use base::config::{self, ConfigSources, ValueOrigin, show};

use crate::setting::Env;

#[test]
fn without_any_source_the_defaults_apply() {
    let loaded = config::load(&ConfigSources::default()).unwrap();
    assert_eq!(loaded.config, config::Config::default());
    assert_eq!(loaded.config.agent.timeout_seconds, 120);
    assert_eq!(loaded.config.studio.branch, "studio/{id}");
    assert!(loaded.config.sandbox.enabled);
    assert!(loaded.origins.is_empty() && loaded.notices.is_empty());
}

#[test]
fn each_layer_overrides_the_one_before_key_by_key() {
    let env = Env::new(
        "[agent]\nmax_retry_attempts = 9\ntimeout_seconds = 90\nmax_turns = 50\nmax_context_length = 1000",
        "[agent]\ntimeout_seconds = 80\nmax_turns = 40\nmax_context_length = 900",
    )
    .environment("G3_AGENT__MAX_TURNS", "30")
    .environment("G3_AGENT__MAX_CONTEXT_LENGTH", "800")
    .flag("agent.max_context_length", "700");
    env.accept();

    let loaded = env.load();

    let agent = &loaded.config.agent;
    assert_eq!(agent.autonomous_max_retry_attempts, 6, "a default");
    assert_eq!(agent.max_retry_attempts, 9, "the user's file");
    assert_eq!(agent.timeout_seconds, 80, "the repository's file");
    assert_eq!(agent.max_turns, Some(30), "the environment");
    assert_eq!(agent.max_context_length, Some(700), "a flag");
    let origin = |key: &str| loaded.origins.get(key).cloned();
    assert_eq!(origin("agent.autonomous_max_retry_attempts"), None);
    assert_eq!(origin("agent.max_retry_attempts"), Some(ValueOrigin::User(env.user().into())));
    let repository = ValueOrigin::Repository(env.repository().into());
    assert_eq!(origin("agent.timeout_seconds"), Some(repository));
    let variable = ValueOrigin::Environment("G3_AGENT__MAX_TURNS".into());
    assert_eq!(origin("agent.max_turns"), Some(variable));
    assert_eq!(origin("agent.max_context_length"), Some(ValueOrigin::Flag));
}

#[test]
fn two_layers_may_fill_one_provider_entry_together() {
    let env = Env::new(
        "[providers.openai.local]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"a\"\nwire = \"responses\"",
        "",
    )
    .environment("G3_PROVIDERS__OPENAI__LOCAL__MODEL", "b")
    .environment("G3_PROVIDERS__DEFAULT_PROVIDER", "openai.local");
    let config = env.load().config;
    let local = &config.providers.openai["local"];
    assert_eq!(local.base_url.as_deref(), Some("http://127.0.0.1:1/v1"));
    assert_eq!(local.model.as_deref(), Some("b"));
    assert_eq!(local.wire, Some(OpenaiWire::Responses));
    assert_eq!(config.providers.default_provider.as_deref(), Some("openai.local"));
}

#[test]
fn variables_reach_every_kind_of_value_and_names_with_hyphens() {
    let env = Env::new("[studio.agents.my-agent]\ncommand = [\"x\"]", "")
        .environment("G3_STUDIO__AGENTS__MY_AGENT__ENV", "[\"A\", \"B\"]")
        .environment("G3_STUDIO__CHECKS", "make test")
        .environment("G3_TOOLS__WEBFETCH__ALLOW_HOSTS", "127.0.0.1:80")
        .environment("G3_SANDBOX__ENABLED", "0")
        .environment("G3_PROVIDERS__ANTHROPIC__MAIN__PRICE__INPUT", "3")
        .environment("G3_PROVIDERS__ANTHROPIC__MAIN__PRICE__OUTPUT", "15")
        .environment("G3_GATE__RULES", "[{ tool = \"shell\", action = \"deny\" }]");
    let config = env.load().config;
    assert_eq!(config.studio.agents["my-agent"].env, ["A", "B"]);
    assert_eq!(config.studio.checks.list(), ["make test"]);
    assert_eq!(config.tools.webfetch.allow_hosts, ["127.0.0.1:80"]);
    assert!(!config.sandbox.enabled);
    assert_eq!(config.providers.anthropic["main"].price.unwrap().input, 3.0);
    assert_eq!(config.gate.rules[0].tool.as_deref(), Some("shell"));
}

#[test]
fn variables_outside_the_configuration_are_ignored() {
    let env = Env::new("", "")
        .environment("G3_TEST_NOW", "x")
        .environment("G3_MODEL_HOST_FD", "5")
        .environment("HOME__X", "1");
    assert_eq!(env.load().config, config::Config::default());
    let hook = Env::new("", "").environment("G3_TEST__NOW", "x");
    let loads = config::load(&hook.sources).is_ok();
    assert_eq!(loads, base::test_hooks::is_hook("G3_TEST__NOW"), "only test builds know hooks");
    let env = Env::new("", "").environment("G3_AGENT__MAX_TURN", "3");
    assert!(env.failure().contains("in environment G3_AGENT__MAX_TURN"));
}

#[test]
fn a_config_flag_replaces_both_files_and_its_file_must_exist() {
    let mut env = Env::new("[agent]\nmax_turns = 1", "[agent]\nmax_turns = 2");
    let only = env.home.path().join("mine.toml");
    env.sources.config_file = Some(only.clone());
    assert!(env.failure().starts_with("error: no such file: ~/mine.toml"), "{}", env.failure());

    fs::write(&only, "[agent]\nmax_context_length = 5\n[studio]\nchecks = \"make\"").unwrap();
    let loaded = env.load();
    assert_eq!(loaded.config.agent.max_turns, None);
    assert_eq!(loaded.config.agent.max_context_length, Some(5));
    assert_eq!(loaded.config.studio.checks.list(), ["make"], "the user named it, so it is trusted");
}

#[test]
fn an_unknown_key_error_names_the_file_and_the_nearest_key() {
    let env = Env::new("[providers.anthropic.main]\nmodle = \"x\"", "");
    assert_eq!(
        env.failure(),
        "error: unknown configuration key `providers.anthropic.main.modle`\n  \
         why: in ~/.config/g3/config.toml\n  \
         try: did you mean `providers.anthropic.main.model`?"
    );
    let nearest = |user: &str| {
        let text = Env::new(user, "").failure();
        text.split('`').nth(3).unwrap_or(&text).to_owned()
    };
    assert_eq!(nearest("default_provider = \"x\""), "providers.default_provider");
    assert_eq!(nearest("[provider.openai.x]\nmodel = \"m\""), "providers");
    assert_eq!(nearest("[studio.limits]\nmax_turn = 3"), "studio.limits.max_turns");
    assert_eq!(nearest("[studio.agents.x]\ncomand = []"), "studio.agents.x.command");
}

#[test]
fn a_type_error_names_the_file_the_key_and_the_expected_type() {
    let env = Env::new("[agent]\nmax_turns = \"many\"", "");
    assert_eq!(
        env.failure(),
        "error: `agent.max_turns` must be a non-negative integer\n  \
         why: ~/.config/g3/config.toml sets it to the string `many`"
    );
    for (wrong, wanted) in [
        ("[agent]\nmax_turns = -1", "a non-negative integer"),
        ("[agent]\nthinning_floor_percent = 101", "an integer from 0 to 100"),
        ("[agent]\nprofile = \"g4\"", "one of `g3`, `egirl`"),
        ("[agent]\nauto_compact = \"yes\"", "`true` or `false`"),
        ("[studio]\nchecks = [1]", "a string or a list of strings"),
        ("[studio.agents.x]\ncommand = \"line\"", "a list of strings"),
        ("[gate]\nrules = [{ action = \"maybe\" }]", "a list of rules"),
        ("[providers.anthropic.main]\ntemperature = \"warm\"", "a non-negative number"),
        ("[providers]\ndefault_provider = 1", "a string of the form `type.name`"),
        ("agent = 1", "`agent` must be a table"),
    ] {
        let failure = Env::new(wrong, "").failure();
        assert!(failure.contains(wanted), "{wrong}: {failure}");
    }
}

#[test]
fn the_old_flat_format_is_explained() {
    let failure = Env::new("[providers.anthropic]\napi_key = \"sk-canary\"", "").failure();
    assert!(failure.contains("has the old format; each provider now has a name"), "{failure}");
    assert!(failure.contains("write [providers.anthropic.default] above it"), "{failure}");
    assert!(!failure.contains("canary"));
}

#[test]
fn references_are_checked_and_the_older_name_of_openai_is_accepted() {
    let user = "[providers]\ndefault_provider = \"openai_compatible.groq\"\nplanner = \"anthropic\"\n\
                [providers.openai_compatible.groq]\nmodel = \"m\"\napi_key_command = [\"pass\", \"x\"]";
    let providers = Env::new(user, "").load().config.providers;
    assert_eq!(providers.default_provider.as_deref(), Some("openai.groq"));
    let command = providers.openai["groq"].api_key_command.clone();
    assert_eq!(command, Some(CommandLine::Argv(vec!["pass".into(), "x".into()])));

    let failure = Env::new(&user.replace("\"anthropic\"", "\"openai.grok\""), "").failure();
    assert!(failure.contains("no such provider: `openai.grok`"), "{failure}");
    assert!(failure.contains("use one of: openai.groq"), "{failure}");
    let failure = Env::new("", "").flag("providers.commit", "claude").failure();
    assert!(failure.contains("set in `providers.commit` (flag)"), "{failure}");
}

#[test]
fn secrets_are_displayed_as_dots_and_every_value_with_its_origin() {
    let user = "[providers.anthropic.main]\napi_key = \"sk-canary\"\nmodel = \"m\"\n\
                [tools.codesearch]\napi_key = \"canary-2\"";
    let env = Env::new(user, "").environment("G3_PROVIDERS__DATABRICKS__W__TOKEN", "canary-3");
    let loaded = env.load();
    let shown = show::values(&loaded);
    let all = format!("{shown:?} {loaded:?}");
    assert!(!all.contains("canary"), "{all}");
    let one =
        |key: &str| shown.iter().find(|shown| shown.key == key).unwrap_or_else(|| panic!("{key}"));
    assert_eq!(one("providers.anthropic.main.api_key").value, "\"•••\"");
    assert_eq!(one("providers.databricks.w.token").value, "\"•••\"");
    assert_eq!(one("providers.anthropic.main.model").value, "\"m\"");
    assert_eq!(one("agent.timeout_seconds").value, "120");
    assert_eq!(one("agent.timeout_seconds").origin, None);
    let origin = one("tools.codesearch.api_key").origin.clone();
    assert_eq!(origin, Some(ValueOrigin::User(env.user().into())));
    assert_eq!(loaded.config.tools.codesearch.api_key.unwrap().reveal(), "canary-2");
}

#[test]
fn an_invalid_file_is_reported_with_its_line_and_without_its_text() {
    let env = Env::new("[agent]\n\n[providers.anthropic.main]\napi_key = \"sk-canary", "");
    let failure = env.failure();
    assert!(failure.starts_with("error: cannot read ~/.config/g3/config.toml"), "{failure}");
    assert!(failure.contains("line 4") && !failure.contains("canary"), "{failure}");
    let env = Env::new("", "");
    fs::remove_file(env.repository()).unwrap();
    fs::create_dir(env.repository()).unwrap();
    assert!(env.failure().contains("not a regular file"));
}

#[test]
fn the_repositorys_file_is_the_nearest_one_up_to_its_root() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("repo/src/deep");
    fs::create_dir_all(&below).unwrap();
    fs::write(dir.path().join("g3.toml"), "").unwrap();
    fs::create_dir(dir.path().join("repo/.git")).unwrap();
    let found = || ConfigSources::from_env(&below).repository.unwrap();
    assert_eq!(found(), below.join("g3.toml"), "the file above the repository is not its own");
    fs::write(dir.path().join("repo/g3.toml"), "").unwrap();
    assert_eq!(found(), dir.path().join("repo/g3.toml"));
}

#[test]
fn the_users_file_is_below_xdg_config_home_and_variables_come_from_the_process() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("g3")).unwrap();
    fs::write(dir.path().join("g3/config.toml"), "[agent]\nmax_turns = 7").unwrap();
    // The environment belongs to the whole process, so the test checks it in a child process.
    if std::env::var_os("G3_TEST_CHILD").is_some() {
        let sources = ConfigSources::from_env(Path::new("/"));
        let loaded = config::load(&sources).unwrap();
        assert_eq!(loaded.config.agent.max_turns, Some(7));
        assert_eq!(loaded.config.agent.max_context_length, Some(500));
        let user = sources.user.unwrap();
        assert_eq!(sources.environment.len(), 1);
        assert_eq!(
            user,
            PathBuf::from(std::env::var_os("XDG_CONFIG_HOME").unwrap()).join("g3/config.toml")
        );
        return;
    }
    let output = base::process::Command::new(std::env::current_exe().unwrap(), "/")
        .args([
            "--exact",
            "layers::the_users_file_is_below_xdg_config_home_and_variables_come_from_the_process",
        ])
        .env("G3_TEST_CHILD", "1")
        .env("XDG_CONFIG_HOME", dir.path())
        .env("G3_AGENT__MAX_CONTEXT_LENGTH", "500")
        .output(base::process::OutputLimits::seconds(60))
        .unwrap();
    assert!(output.ok(), "{}{}", output.text(), output.error_text());
    assert!(output.text().contains("1 passed"), "{}", output.text());
}
