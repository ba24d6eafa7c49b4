//! The table of all configuration keys: the type of each, and what an untrusted repository may do
//! with it.

use crate::config::network::NetworkPolicy;

/// A configuration key. `*` in the path matches any name that the user chose.
#[derive(Debug)]
pub(crate) struct ConfigKey {
    /// Dotted path.
    pub path: &'static str,
    /// The type of its value.
    pub kind: ValueKind,
    /// What the file of an untrusted repository may do with it.
    pub untrusted: UntrustedRule,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueKind {
    /// A string.
    Text,
    /// A string that is never displayed.
    Hidden,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// An integer from 0 to this maximum.
    Whole(u64),
    /// A number.
    Number,
    /// `true` or `false`.
    Switch,
    /// A list of strings.
    Texts,
    /// A string or a list of strings.
    TextOrTexts,
    /// A reference to a provider, `type.name`.
    Reference,
    /// The permission rules.
    Rules,
    /// Properties of models.
    Models,
    /// A git filter.
    Filter,
    /// Hooks. Those of all files run.
    Hooks,
}

/// What the file of an untrusted repository may do with a key: it can only restrict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UntrustedRule {
    /// Nothing; the key is ignored with a notice.
    Nothing,
    /// Select one of the user's providers.
    Chooses,
    /// Lower it. The number is the default when the user has not set the key; `None` is unlimited.
    Lowers(Option<u64>),
    /// Switch it off.
    SwitchesOff,
    /// Select a narrower network policy. The text is the widest one when the user has not set the
    /// key.
    NarrowsNetwork(&'static str),
}

const U32: u64 = u32::MAX as u64;
const MAX_I64: u64 = i64::MAX as u64;
/// The values of `reasoning_effort` for OpenAI models.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// The values of `reasoning_effort` for Anthropic models.
const ANTHROPIC_EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

const fn key(path: &'static str, kind: ValueKind) -> ConfigKey {
    ConfigKey { path, kind, untrusted: UntrustedRule::Nothing }
}

const fn reference(path: &'static str) -> ConfigKey {
    ConfigKey { path, kind: ValueKind::Reference, untrusted: UntrustedRule::Chooses }
}

const fn limit(path: &'static str, max: u64, without: Option<u64>) -> ConfigKey {
    ConfigKey { path, kind: ValueKind::Whole(max), untrusted: UntrustedRule::Lowers(without) }
}

const fn feature(path: &'static str) -> ConfigKey {
    ConfigKey { path, kind: ValueKind::Switch, untrusted: UntrustedRule::SwitchesOff }
}

const fn network(path: &'static str, without: &'static str) -> ConfigKey {
    let kind = ValueKind::OneOf(NetworkPolicy::NAMES);
    ConfigKey { path, kind, untrusted: UntrustedRule::NarrowsNetwork(without) }
}

/// All keys.
static KEYS: &[ConfigKey] = &[
    reference("providers.default_provider"),
    reference("providers.planner"),
    reference("providers.coach"),
    reference("providers.player"),
    reference("providers.commit"),
    reference("providers.escalation"),
    key("providers.anthropic.*.api_key", ValueKind::Hidden),
    key("providers.anthropic.*.api_key_command", ValueKind::TextOrTexts),
    key("providers.anthropic.*.base_url", ValueKind::Text),
    key("providers.anthropic.*.model", ValueKind::Text),
    key("providers.anthropic.*.fallback_model", ValueKind::Text),
    key("providers.anthropic.*.max_tokens", ValueKind::Whole(U32)),
    key("providers.anthropic.*.temperature", ValueKind::Number),
    key("providers.anthropic.*.cache_config", ValueKind::OneOf(&["ephemeral", "5minute", "1hour"])),
    key("providers.anthropic.*.enable_1m_context", ValueKind::Switch),
    key("providers.anthropic.*.thinking_budget_tokens", ValueKind::Whole(U32)),
    key("providers.anthropic.*.reasoning_effort", ValueKind::OneOf(ANTHROPIC_EFFORTS)),
    key("providers.anthropic.*.context_length", ValueKind::Whole(U32)),
    key("providers.anthropic.*.allow_http", ValueKind::Switch),
    key("providers.anthropic.*.price.input", ValueKind::Number),
    key("providers.anthropic.*.price.output", ValueKind::Number),
    key("providers.anthropic.*.price.cache_read", ValueKind::Number),
    key("providers.anthropic.*.price.cache_write", ValueKind::Number),
    key("providers.openai.*.api_key", ValueKind::Hidden),
    key("providers.openai.*.api_key_command", ValueKind::TextOrTexts),
    key("providers.openai.*.base_url", ValueKind::Text),
    key("providers.openai.*.model", ValueKind::Text),
    key("providers.openai.*.fallback_model", ValueKind::Text),
    key("providers.openai.*.max_tokens", ValueKind::Whole(U32)),
    key("providers.openai.*.temperature", ValueKind::Number),
    key("providers.openai.*.reasoning_effort", ValueKind::OneOf(EFFORTS)),
    key("providers.openai.*.wire", ValueKind::OneOf(&["chat", "responses"])),
    key("providers.openai.*.native_tools", ValueKind::Switch),
    key("providers.openai.*.context_length", ValueKind::Whole(U32)),
    key("providers.openai.*.allow_http", ValueKind::Switch),
    key("providers.openai.*.price.input", ValueKind::Number),
    key("providers.openai.*.price.output", ValueKind::Number),
    key("providers.openai.*.price.cache_read", ValueKind::Number),
    key("providers.openai.*.price.cache_write", ValueKind::Number),
    key("providers.databricks.*.host", ValueKind::Text),
    key("providers.databricks.*.token", ValueKind::Hidden),
    key("providers.databricks.*.api_key_command", ValueKind::TextOrTexts),
    key("providers.databricks.*.use_oauth", ValueKind::Switch),
    key("providers.databricks.*.model", ValueKind::Text),
    key("providers.databricks.*.fallback_model", ValueKind::Text),
    key("providers.databricks.*.max_tokens", ValueKind::Whole(U32)),
    key("providers.databricks.*.temperature", ValueKind::Number),
    key("providers.databricks.*.reasoning_effort", ValueKind::OneOf(EFFORTS)),
    key("providers.databricks.*.thinking_budget_tokens", ValueKind::Whole(U32)),
    key("providers.databricks.*.context_length", ValueKind::Whole(U32)),
    key("providers.databricks.*.allow_http", ValueKind::Switch),
    key("providers.databricks.*.price.input", ValueKind::Number),
    key("providers.databricks.*.price.output", ValueKind::Number),
    key("providers.databricks.*.price.cache_read", ValueKind::Number),
    key("providers.databricks.*.price.cache_write", ValueKind::Number),
    key("providers.gemini.*.api_key", ValueKind::Hidden),
    key("providers.gemini.*.api_key_command", ValueKind::TextOrTexts),
    key("providers.gemini.*.base_url", ValueKind::Text),
    key("providers.gemini.*.model", ValueKind::Text),
    key("providers.gemini.*.fallback_model", ValueKind::Text),
    key("providers.gemini.*.max_tokens", ValueKind::Whole(U32)),
    key("providers.gemini.*.temperature", ValueKind::Number),
    key("providers.gemini.*.context_length", ValueKind::Whole(U32)),
    key("providers.gemini.*.allow_http", ValueKind::Switch),
    key("providers.gemini.*.price.input", ValueKind::Number),
    key("providers.gemini.*.price.output", ValueKind::Number),
    key("providers.gemini.*.price.cache_read", ValueKind::Number),
    key("providers.gemini.*.price.cache_write", ValueKind::Number),
    key("providers.embedded.*.model", ValueKind::Text),
    key("providers.embedded.*.model_path", ValueKind::Text),
    key("providers.embedded.*.model_type", ValueKind::Text),
    key("providers.embedded.*.context_length", ValueKind::Whole(U32)),
    key("providers.embedded.*.max_tokens", ValueKind::Whole(U32)),
    key("providers.embedded.*.temperature", ValueKind::Number),
    key("providers.embedded.*.gpu_layers", ValueKind::Whole(U32)),
    key("providers.embedded.*.threads", ValueKind::Whole(U32)),
    key("models", ValueKind::Models),
    key("agent.profile", ValueKind::OneOf(&["g3", "egirl", "tools-api", "core", "all"])),
    limit("agent.max_context_length", U32, None),
    limit("agent.fallback_default_max_tokens", U32, Some(32_000)),
    key("agent.enable_streaming", ValueKind::Switch),
    limit("agent.timeout_seconds", MAX_I64, Some(120)),
    key("agent.auto_compact", ValueKind::Switch),
    limit("agent.max_retry_attempts", U32, Some(3)),
    limit("agent.autonomous_max_retry_attempts", U32, Some(6)),
    key("agent.thinning_floor_percent", ValueKind::Whole(100)),
    limit("agent.max_turns", U32, Some(400)),
    key("agent.check_todo_staleness", ValueKind::Switch),
    feature("agent.auto_memory"),
    key("studio.checks", ValueKind::TextOrTexts),
    key("studio.setup", ValueKind::TextOrTexts),
    key("studio.branch", ValueKind::Text),
    key("studio.worktree", ValueKind::Text),
    key("studio.check_caches", ValueKind::TextOrTexts),
    key("studio.caches", ValueKind::TextOrTexts),
    key("studio.confirm_check_changes", ValueKind::Switch),
    key("studio.conflict_notes", ValueKind::Switch),
    network("studio.check_network", "off"),
    network("studio.setup_network", "off"),
    // The default depends on the machine, which has at least one core.
    limit("studio.jobs", U32, Some(1)),
    feature("studio.recheck"),
    ConfigKey {
        path: "studio.max_load",
        kind: ValueKind::Number,
        untrusted: UntrustedRule::Lowers(Some(4)),
    },
    key("studio.pool", ValueKind::Whole(64)),
    key("studio.ports", ValueKind::Whole(100)),
    limit("studio.limits.timeout_seconds", MAX_I64, None),
    limit("studio.limits.max_turns", U32, None),
    limit("studio.limits.max_tokens", MAX_I64, None),
    ConfigKey {
        path: "studio.limits.budget_usd",
        kind: ValueKind::Number,
        untrusted: UntrustedRule::Lowers(None),
    },
    ConfigKey {
        path: "studio.limits.total_budget_usd",
        kind: ValueKind::Number,
        untrusted: UntrustedRule::Lowers(None),
    },
    key("studio.limits.expected_cost_usd", ValueKind::Number),
    limit("studio.limits.output_bytes", MAX_I64, Some(64 << 20)),
    key("studio.limits.disk_floor_bytes", ValueKind::Whole(MAX_I64)),
    limit("studio.limits.check_seconds", MAX_I64, Some(3_600)),
    // These defaults depend on the machine; the numbers are their minimum.
    limit("studio.limits.memory_bytes", MAX_I64, Some(1 << 30)),
    key("studio.limits.stall_seconds", ValueKind::Whole(MAX_I64)),
    key("studio.limits.expected_memory_bytes", ValueKind::Whole(MAX_I64)),
    limit("studio.limits.processes", MAX_I64, Some(4_096)),
    limit("studio.limits.disk_bytes", MAX_I64, Some(100 << 30)),
    key("studio.sign", ValueKind::Switch),
    key("studio.merge_by_syntax", ValueKind::Switch),
    key("studio.hooks", ValueKind::Switch),
    key("studio.filters.*", ValueKind::Filter),
    key("studio.forge", ValueKind::OneOf(&["github", "gitlab"])),
    key("studio.secrets", ValueKind::OneOf(&["refuse", "warn"])),
    key("studio.secrets_allowed", ValueKind::Texts),
    key("studio.notify", ValueKind::TextOrTexts),
    key("studio.bell", ValueKind::Switch),
    key("studio.open", ValueKind::Texts),
    key("studio.agent", ValueKind::Text),
    key("studio.agents.*.protocol", ValueKind::OneOf(&["acp", "command"])),
    key("studio.agents.*.command", ValueKind::Texts),
    key("studio.agents.*.resume", ValueKind::Texts),
    key(
        "studio.agents.*.output",
        ValueKind::OneOf(&[
            "text",
            "claude-json",
            "codex-json",
            "cursor-json",
            "gemini-json",
            "opencode-json",
            "qwen-json",
        ]),
    ),
    key("studio.agents.*.read", ValueKind::Texts),
    key("studio.agents.*.write", ValueKind::Texts),
    key("studio.agents.*.env", ValueKind::Texts),
    key("studio.agents.*.events", ValueKind::Switch),
    network("studio.agents.*.network", "off"),
    key("studio.agents.*.hosts", ValueKind::Texts),
    key("studio.agents.*.proxy_keys", ValueKind::Texts),
    key("studio.agents.*.options.*", ValueKind::Text),
    key("studio.on", ValueKind::Text),
    key("studio.checks_on", ValueKind::Text),
    key("studio.places.*.engine", ValueKind::OneOf(&["ssh", "slurm", "kubernetes"])),
    key("studio.places.*.options", ValueKind::Texts),
    key("studio.places.*.image", ValueKind::Text),
    key("studio.places.*.namespace", ValueKind::Text),
    key("studio.places.*.cpus", ValueKind::Text),
    key("studio.places.*.memory", ValueKind::Text),
    key("studio.places.*.disk", ValueKind::Text),
    key("studio.places.*.secret", ValueKind::Text),
    key("studio.places.*.time_limit_seconds", ValueKind::Whole(MAX_I64)),
    key("studio.places.*.host", ValueKind::Text),
    key("studio.places.*.hosts", ValueKind::Texts),
    key("studio.places.*.spool", ValueKind::Text),
    key("studio.places.*.shared", ValueKind::Switch),
    key("studio.places.*.binary", ValueKind::Text),
    key("studio.places.*.ssh_config", ValueKind::Text),
    key("studio.places.*.jobs", ValueKind::Whole(U32)),
    key("studio.places.*.keep_seconds", ValueKind::Whole(MAX_I64)),
    key("studio.places.*.lost_after_seconds", ValueKind::Whole(MAX_I64)),
    key("tools.webfetch.allow_hosts", ValueKind::Texts),
    key("tools.codesearch.endpoint", ValueKind::Text),
    key("tools.codesearch.api_key", ValueKind::Hidden),
    key("tools.lsp.diagnostics", ValueKind::OneOf(&["running", "start", "off"])),
    key("gate.rules", ValueKind::Rules),
    key("gate.policy", ValueKind::OneOf(&["default", "core-exact"])),
    key("gate.forbidden", ValueKind::Texts),
    key("gate.restricted", ValueKind::Texts),
    key("gate.destructive", ValueKind::Texts),
    key("mcp.*.enabled", ValueKind::Switch),
    key("mcp.*.command", ValueKind::Texts),
    key("mcp.*.env.*", ValueKind::Hidden),
    key("mcp.*.cwd", ValueKind::Text),
    key("mcp.*.url", ValueKind::Text),
    key("mcp.*.headers.*", ValueKind::Hidden),
    key("mcp.*.bearer_token_command", ValueKind::TextOrTexts),
    key("mcp.*.client_id", ValueKind::Text),
    key("mcp.*.client_secret", ValueKind::Hidden),
    key("mcp.*.callback_port", ValueKind::Whole(65_535)),
    key("mcp.*.scopes", ValueKind::Texts),
    key("mcp.*.allow_http", ValueKind::Switch),
    key("mcp.*.timeout_seconds", ValueKind::Whole(U32)),
    key("mcp.*.tools", ValueKind::Texts),
    key("mcp.*.calls", ValueKind::OneOf(&["ask", "allow"])),
    key("mcp.*.sandbox", ValueKind::Switch),
    feature("lsp.*.enabled"),
    key("lsp.*.language", ValueKind::Text),
    key("lsp.*.command", ValueKind::Text),
    key("lsp.*.args", ValueKind::Texts),
    key("lsp.*.extensions", ValueKind::Texts),
    key("lsp.*.root_patterns", ValueKind::Texts),
    key("lsp.*.env.*", ValueKind::Hidden),
    key("lsp.*.timeout_seconds", ValueKind::Whole(U32)),
    key("hooks", ValueKind::Hooks),
    key("trace.file", ValueKind::Text),
    key("trace.level", ValueKind::Text),
    feature("skills.enabled"),
    key("skills.extra_paths", ValueKind::Texts),
    feature("skills.small_models"),
    feature("memory.enabled"),
    key("memory.embedder", ValueKind::OneOf(&["built-in", "server", "local"])),
    key("memory.embeddings_endpoint", ValueKind::Text),
    key("memory.embeddings_provider", ValueKind::Reference),
    key("memory.model", ValueKind::Text),
    key("memory.dimensions", ValueKind::Whole(U32)),
    feature("computer_control.enabled"),
    key("computer_control.require_confirmation", ValueKind::Switch),
    key("computer_control.max_actions_per_second", ValueKind::Whole(U32)),
    key("computer_control.fail_safe", ValueKind::Switch),
    key("computer_control.program", ValueKind::Text),
    key("computer_control.observe", ValueKind::Texts),
    key("computer_control.vision_provider", ValueKind::Reference),
    key("computer_control.omniparser_url", ValueKind::Text),
    key("computer_control.computer_use_provider", ValueKind::Reference),
    feature("webdriver.enabled"),
    key("webdriver.browser", ValueKind::OneOf(&["chrome-headless", "chrome", "safari"])),
    key("webdriver.safari_port", ValueKind::Whole(65_535)),
    key("webdriver.chrome_port", ValueKind::Whole(65_535)),
    key("webdriver.chrome_binary", ValueKind::Text),
    key("webdriver.chromedriver_binary", ValueKind::Text),
    key("sandbox.enabled", ValueKind::Switch),
    key("sandbox.best_effort", ValueKind::Switch),
    key("sandbox.read", ValueKind::Texts),
    key("sandbox.write", ValueKind::Texts),
    key("sandbox.sockets", ValueKind::Texts),
    key("sandbox.gpu", ValueKind::Switch),
    network("sandbox.network", "allow-list"),
    key("sandbox.hosts", ValueKind::Texts),
];

impl ConfigKey {
    /// Returns whether the key's path starts with this path; `*` matches every name.
    fn starts_with(&self, path: &[String]) -> bool {
        let mut pattern = self.path.split('.');
        path.iter().all(|name| pattern.next().is_some_and(|part| part == "*" || part == name))
    }

    /// Returns the number of names in the key's path.
    fn depth(&self) -> usize {
        self.path.split('.').count()
    }
}

/// Returns the key with exactly this path.
pub(crate) fn find(path: &[String]) -> Option<&'static ConfigKey> {
    KEYS.iter().find(|key| key.depth() == path.len() && key.starts_with(path))
}

/// Returns whether a key exists below this path.
pub(crate) fn is_section(path: &[String]) -> bool {
    KEYS.iter().any(|key| key.depth() > path.len() && key.starts_with(path))
}

/// Returns whether the names directly below this path are chosen by the user.
pub(crate) fn has_free_names(path: &[String]) -> bool {
    KEYS.iter()
        .filter(|key| key.depth() > path.len() && key.starts_with(path))
        .any(|key| key.path.split('.').nth(path.len()) == Some("*"))
}

/// How similar a key must be to be suggested, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;

/// Returns the key that is most similar to an unknown path, as a dotted path, if one is similar.
pub(crate) fn nearest(path: &[String]) -> Option<String> {
    let (misspelled, section) = path.split_last()?;
    let siblings = in_section(section);
    let similarity = |name: &str| strsim::normalized_damerau_levenshtein(name, misspelled);
    let sibling = siblings.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let last_part_similarity =
        |key: &ConfigKey| similarity(key.path.rsplit('.').next().unwrap_or_default());
    let best_elsewhere =
        KEYS.iter().max_by(|a, b| last_part_similarity(a).total_cmp(&last_part_similarity(b)))?;
    match sibling {
        Some(sibling) if similarity(sibling) >= last_part_similarity(best_elsewhere).min(0.9) => {
            let section = section.iter().map(String::as_str);
            Some(section.chain([sibling]).collect::<Vec<_>>().join("."))
        }
        _ => (last_part_similarity(best_elsewhere) >= MIN_SIMILARITY)
            .then(|| best_elsewhere.path.to_owned()),
    }
}

/// Returns the names of the keys and sections directly in a section, without those that the user
/// chooses.
pub(crate) fn in_section(section: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&str> = KEYS
        .iter()
        .filter(|key| key.starts_with(section))
        .filter_map(|key| key.path.split('.').nth(section.len()))
        .filter(|name| *name != "*")
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn every_key_is_found_by_its_path() {
        for (index, key) in KEYS.iter().enumerate() {
            let found = find(&path(&key.path.replace('*', "main"))).expect(key.path);
            assert!(std::ptr::eq(found, &KEYS[index]), "{} stands twice", key.path);
        }
    }

    #[test]
    fn the_nearest_key_includes_its_section() {
        let near = |text: &str| nearest(&path(text)).unwrap();
        assert_eq!(near("agent.max_turn"), "agent.max_turns");
        assert_eq!(near("providers.anthropic.main.modle"), "providers.anthropic.main.model");
        assert_eq!(near("default_provider"), "providers.default_provider");
        assert_eq!(near("stduio"), "studio");
        assert_eq!(near("providers.antropic"), "providers.anthropic");
        assert_eq!(nearest(&path("studio.max_sessions")), None);
        assert!(in_section(&path("studio")).contains(&"jobs"));
    }
}
