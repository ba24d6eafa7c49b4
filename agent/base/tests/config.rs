//! The configuration: layers, origins, errors, and what an untrusted repository may do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::config::providers::{CommandLine, Wire};
use base::config::{self, Loaded, Origin, Sources, show, trust};
use base::failure::Kind;

/// A home with a user's file and a repository with its own.
struct Env {
    home: tempfile::TempDir,
    sources: Sources,
}

impl Env {
    fn new(user: &str, repository: &str) -> Env {
        let home = tempfile::tempdir().unwrap();
        let (config, root) = (home.path().join(".config/g3"), home.path().join("repo"));
        fs::create_dir_all(&config).unwrap();
        fs::create_dir_all(&root).unwrap();
        let sources = Sources {
            user: Some(config.join("config.toml")),
            repository: Some(root.join("g3.toml")),
            ..Sources::default()
        };
        let env = Env { home, sources };
        fs::write(env.user(), user).unwrap();
        fs::write(env.repository(), repository).unwrap();
        env
    }

    fn user(&self) -> &Path {
        self.sources.user.as_deref().unwrap()
    }

    fn repository(&self) -> &Path {
        self.sources.repository.as_deref().unwrap()
    }

    fn store(&self) -> PathBuf {
        self.sources.trust_store().unwrap()
    }

    fn accept(&self) {
        let content = fs::read(self.repository()).unwrap();
        trust::accept(&self.store(), self.repository(), &content, &Clock::from_env()).unwrap();
    }

    fn environment(mut self, name: &str, value: &str) -> Env {
        self.sources.environment.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, key: &str, value: &str) -> Env {
        self.sources.flags.push((key.into(), value.into()));
        self
    }

    fn load(&self) -> Loaded {
        config::load(&self.sources).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The failure's text with the home directory as `~`.
    fn failure(&self) -> String {
        let failure = config::load(&self.sources).expect_err("this was accepted");
        assert_eq!(failure.kind, Kind::Usage, "{failure}");
        failure.to_string().replace(self.home.path().to_str().unwrap(), "~")
    }
}

#[test]
fn without_any_source_the_defaults_hold() {
    let loaded = config::load(&Sources::default()).unwrap();
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
    assert_eq!(origin("agent.max_retry_attempts"), Some(Origin::User(env.user().into())));
    let repository = Origin::Repository(env.repository().into());
    assert_eq!(origin("agent.timeout_seconds"), Some(repository));
    let variable = Origin::Environment("G3_AGENT__MAX_TURNS".into());
    assert_eq!(origin("agent.max_turns"), Some(variable));
    assert_eq!(origin("agent.max_context_length"), Some(Origin::Flag));
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
    assert_eq!(local.wire, Wire::Responses);
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
fn variables_that_are_no_configuration_are_left_alone() {
    let env = Env::new("", "")
        .environment("G3_TEST_NOW", "x")
        .environment("G3_TEST__NOW", "x")
        .environment("G3_MODEL_HOST_FD", "5")
        .environment("HOME__X", "1");
    assert_eq!(env.load().config, config::Config::default());
    let env = Env::new("", "").environment("G3_AGENT__MAX_TURN", "3");
    assert!(env.failure().contains("it stands in environment G3_AGENT__MAX_TURN"));
}

#[test]
fn a_file_given_by_name_stands_for_both_and_must_exist() {
    let mut env = Env::new("[agent]\nmax_turns = 1", "[agent]\nmax_turns = 2");
    let only = env.home.path().join("mine.toml");
    env.sources.only = Some(only.clone());
    assert!(env.failure().starts_with("error: there is no file ~/mine.toml"), "{}", env.failure());

    fs::write(&only, "[agent]\nmax_context_length = 5\n[studio]\nchecks = \"make\"").unwrap();
    let loaded = env.load();
    assert_eq!(loaded.config.agent.max_turns, None);
    assert_eq!(loaded.config.agent.max_context_length, Some(5));
    assert_eq!(loaded.config.studio.checks.list(), ["make"], "the user named it, so it is trusted");
}

#[test]
fn an_unknown_key_names_the_file_and_the_nearest_key() {
    let env = Env::new("[providers.anthropic.main]\nmodle = \"x\"", "");
    assert_eq!(
        env.failure(),
        "error: there is no configuration key `providers.anthropic.main.modle`\n  \
         why: it stands in ~/.config/g3/config.toml\n  \
         try: `providers.anthropic.main.model` is the nearest key"
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
fn a_wrong_type_names_the_file_the_key_and_the_wanted_type() {
    let env = Env::new("[agent]\nmax_turns = \"many\"", "");
    assert_eq!(
        env.failure(),
        "error: `agent.max_turns` must be a whole number, 0 or more\n  \
         why: ~/.config/g3/config.toml gives it the text `many`"
    );
    for (wrong, wanted) in [
        ("[agent]\nmax_turns = -1", "a whole number, 0 or more"),
        ("[agent]\nthinning_floor_percent = 101", "a whole number from 0 to 100"),
        ("[agent]\nprofile = \"g4\"", "one of the texts `g3`, `egirl`"),
        ("[agent]\nauto_compact = \"yes\"", "`true` or `false`"),
        ("[studio]\nchecks = [1]", "a text or a list of texts"),
        ("[studio.agents.x]\ncommand = \"line\"", "a list of texts"),
        ("[gate]\nrules = [{ action = \"maybe\" }]", "a list of rules"),
        ("[providers.anthropic.main]\ntemperature = \"warm\"", "a number, 0 or more"),
        ("[providers]\ndefault_provider = 1", "a text of the form `type.name`"),
        ("agent = 1", "`agent` must be a table"),
    ] {
        let failure = Env::new(wrong, "").failure();
        assert!(failure.contains(wanted), "{wrong}: {failure}");
    }
}

#[test]
fn the_old_flat_format_is_explained() {
    let failure = Env::new("[providers.anthropic]\napi_key = \"sk-canary\"", "").failure();
    assert!(failure.contains("is in the old format; each provider now has a name"), "{failure}");
    assert!(failure.contains("write [providers.anthropic.default] above it"), "{failure}");
    assert!(!failure.contains("canary"));
}

#[test]
fn references_are_checked_and_the_older_name_of_openai_is_understood() {
    let user = "[providers]\ndefault_provider = \"openai_compatible.groq\"\nplanner = \"anthropic\"\n\
                [providers.openai_compatible.groq]\nmodel = \"m\"\napi_key_command = [\"pass\", \"x\"]";
    let providers = Env::new(user, "").load().config.providers;
    assert_eq!(providers.default_provider.as_deref(), Some("openai.groq"));
    let command = providers.openai["groq"].api_key_command.clone();
    assert_eq!(command, Some(CommandLine::Argv(vec!["pass".into(), "x".into()])));

    let failure = Env::new(&user.replace("\"anthropic\"", "\"openai.grok\""), "").failure();
    assert!(failure.contains("there is no provider `openai.grok`"), "{failure}");
    assert!(failure.contains("use one of openai.groq"), "{failure}");
    let failure = Env::new("", "").flag("providers.commit", "claude").failure();
    assert!(failure.contains("flag names it in `providers.commit`"), "{failure}");
}

/// Every line that would give a repository power, alone in its file.
const WIDENING: &[(&str, &str)] = &[
    ("providers.anthropic.main.base_url", "\"http://evil\""),
    ("providers.anthropic.main.api_key", "\"k\""),
    ("providers.anthropic.main.api_key_command", "\"touch marker\""),
    ("providers.anthropic.main.allow_http", "true"),
    ("providers.openai.other.base_url", "\"http://evil/v1\""),
    ("providers.databricks.work.host", "\"http://evil\""),
    ("providers.embedded.default.model_path", "\"/evil.gguf\""),
    ("providers.default_provider", "\"openai.other\""),
    ("studio.checks", "[\"touch marker\"]"),
    ("studio.setup", "\"touch marker\""),
    ("studio.hooks", "true"),
    ("studio.sign", "true"),
    ("studio.worktree", "\"/elsewhere/{id}\""),
    ("studio.agents.evil.command", "[\"sh\"]"),
    ("studio.agents.g3.write", "[\"/\"]"),
    ("studio.agents.g3.env", "[\"AWS_SECRET\"]"),
    ("studio.jobs", "500"),
    ("studio.limits.disk_floor_bytes", "0"),
    ("studio.limits.check_seconds", "999999"),
    ("gate.rules", "[{ action = \"allow\" }]"),
    ("sandbox.enabled", "false"),
    ("sandbox.best_effort", "true"),
    ("sandbox.write", "[\"/\"]"),
    ("tools.webfetch.allow_hosts", "[\"169.254.169.254\"]"),
    ("tools.codesearch.endpoint", "\"http://evil\""),
    ("memory.embeddings_endpoint", "\"http://evil\""),
    ("skills.extra_paths", "[\"/evil\"]"),
    ("computer_control.enabled", "true"),
    ("webdriver.chrome_binary", "\"./evil\""),
    ("agent.profile", "\"all\""),
    ("agent.max_turns", "100"),
    ("agent.max_retry_attempts", "4"),
    ("agent.max_context_length", "9000"),
];

const USER: &str = "[providers]\ndefault_provider = \"anthropic.main\"\n\
                    [providers.anthropic.main]\nmodel = \"m\"\n\
                    [providers.anthropic.small]\nmodel = \"s\"\n\
                    [agent]\nmax_turns = 9\nmax_context_length = 8000";

#[test]
fn an_untrusted_repository_cannot_widen_anything_and_each_key_is_named() {
    let alone = Env::new(USER, "").load().config;
    for (key, value) in WIDENING {
        let env = Env::new(USER, &format!("{key} = {value}\n"));
        let loaded = env.load();
        assert_eq!(loaded.config, alone, "`{key}` had an effect");
        let [notice] = loaded.notices.as_slice() else { panic!("{key}: {:?}", loaded.notices) };
        assert!(notice.starts_with(&format!("`{key}` in ")), "{notice}");
        assert!(notice.contains("is ignored") && notice.contains("`g3 trust`"), "{notice}");
    }
}

#[test]
fn a_trusted_content_has_every_effect_and_a_changed_one_none() {
    for (key, value) in WIDENING.iter().filter(|(key, _)| *key != "providers.default_provider") {
        let env = Env::new(USER, &format!("{key} = {value}\n"));
        env.accept();
        let loaded = env.load();
        assert!(loaded.notices.is_empty(), "{key}: {:?}", loaded.notices);
        let origin = Origin::Repository(env.repository().into());
        assert_eq!(loaded.origins.get(*key), Some(&origin), "{key}");

        fs::write(env.repository(), format!("{key} = {value}\n# changed\n")).unwrap();
        assert_eq!(env.load().notices.len(), 1, "{key}: changed content is not trusted");

        fs::write(env.repository(), format!("{key} = {value}\n")).unwrap();
        trust::revoke(&env.store(), env.repository()).unwrap();
        assert_eq!(env.load().notices.len(), 1, "{key}: trust was taken back");
    }
}

#[test]
fn an_untrusted_repository_may_choose_lower_and_switch_off() {
    let repository = "[providers]\ndefault_provider = \"anthropic.small\"\n\
                      [agent]\nmax_turns = 3\ntimeout_seconds = 60\n\
                      [studio]\njobs = 1\nlimits.budget_usd = 0.5\nlimits.max_tokens = 1000\n\
                      [skills]\nenabled = false";
    let loaded = Env::new(USER, repository).load();
    assert_eq!(loaded.notices, Vec::<String>::new());
    let config = loaded.config;
    assert_eq!(config.providers.default_provider.as_deref(), Some("anthropic.small"));
    assert_eq!((config.agent.max_turns, config.agent.timeout_seconds), (Some(3), 60));
    assert_eq!(config.studio.limits.budget_usd, Some(0.5));
    assert_eq!((config.studio.jobs, config.studio.limits.max_tokens), (Some(1), Some(1000)));
    assert!(!config.skills.enabled);
}

#[test]
fn trust_belongs_to_the_content_so_a_worktree_with_the_same_file_has_it_too() {
    let mut env = Env::new(USER, "studio.checks = \"make\"\n");
    env.accept();
    let worktree = env.home.path().join("repo/.worktrees/x");
    fs::create_dir_all(&worktree).unwrap();
    fs::copy(env.repository(), worktree.join("g3.toml")).unwrap();
    env.sources.repository = Some(worktree.join("g3.toml"));
    assert_eq!(env.load().config.studio.checks.list(), ["make"]);
    fs::write(worktree.join("g3.toml"), "studio.checks = \"touch marker\"\n").unwrap();
    assert!(env.load().config.studio.checks.list().is_empty());
}

#[test]
fn secrets_are_shown_as_dots_and_every_value_with_its_origin() {
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
    assert_eq!(origin, Some(Origin::User(env.user().into())));
    assert_eq!(loaded.config.tools.codesearch.api_key.unwrap().reveal(), "canary-2");
}

#[test]
fn a_broken_file_is_named_with_its_line_and_without_its_text() {
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
    let found = || Sources::from_env(&below).repository.unwrap();
    assert_eq!(found(), below.join("g3.toml"), "the file above the repository is not its own");
    fs::write(dir.path().join("repo/g3.toml"), "").unwrap();
    assert_eq!(found(), dir.path().join("repo/g3.toml"));
}
