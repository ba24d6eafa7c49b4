//! The table of every key: its type, and what a repository that is not trusted may do with it.

/// One key. `*` in the path stands for a name that the user chose.
#[derive(Debug)]
pub struct Key {
    /// Dotted path.
    pub path: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// What the file of an untrusted repository may do with it.
    pub untrusted: Untrusted,
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A text.
    Text,
    /// A text that is never shown.
    Hidden,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A whole number from 0 to this one.
    Whole(u64),
    /// A number.
    Number,
    /// `true` or `false`.
    Switch,
    /// A list of texts.
    Texts,
    /// A text or a list of texts.
    TextOrTexts,
    /// A reference to a provider, `type.name`.
    Reference,
    /// The rules of the gate.
    Rules,
    /// What is known about models.
    Models,
    /// Commands that run when something happens. Those of all files run.
    Hooks,
}

/// What the file of an untrusted repository may do with a key: narrow it at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Untrusted {
    /// Nothing; the key is ignored, with a notice.
    Nothing,
    /// Name one of the providers that the user has.
    Chooses,
    /// Lower it. The number is what holds without the user's word; `None` is no limit.
    Lowers(Option<u64>),
    /// Switch it off.
    SwitchesOff,
}

const U32: u64 = u32::MAX as u64;
const BIG: u64 = i64::MAX as u64;
/// The words for how much a model of OpenAI's kind thinks.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh"];

const fn key(path: &'static str, kind: Kind) -> Key {
    Key { path, kind, untrusted: Untrusted::Nothing }
}

const fn reference(path: &'static str) -> Key {
    Key { path, kind: Kind::Reference, untrusted: Untrusted::Chooses }
}

const fn limit(path: &'static str, max: u64, without: Option<u64>) -> Key {
    Key { path, kind: Kind::Whole(max), untrusted: Untrusted::Lowers(without) }
}

const fn feature(path: &'static str) -> Key {
    Key { path, kind: Kind::Switch, untrusted: Untrusted::SwitchesOff }
}

/// Every key there is.
pub static KEYS: &[Key] = &[
    reference("providers.default_provider"),
    reference("providers.planner"),
    reference("providers.coach"),
    reference("providers.player"),
    reference("providers.commit"),
    reference("providers.escalation"),
    key("providers.anthropic.*.api_key", Kind::Hidden),
    key("providers.anthropic.*.api_key_command", Kind::TextOrTexts),
    key("providers.anthropic.*.base_url", Kind::Text),
    key("providers.anthropic.*.model", Kind::Text),
    key("providers.anthropic.*.fallback_model", Kind::Text),
    key("providers.anthropic.*.max_tokens", Kind::Whole(U32)),
    key("providers.anthropic.*.temperature", Kind::Number),
    key("providers.anthropic.*.cache_config", Kind::OneOf(&["ephemeral", "5minute", "1hour"])),
    key("providers.anthropic.*.enable_1m_context", Kind::Switch),
    key("providers.anthropic.*.thinking_budget_tokens", Kind::Whole(U32)),
    key("providers.anthropic.*.context_length", Kind::Whole(U32)),
    key("providers.anthropic.*.allow_http", Kind::Switch),
    key("providers.anthropic.*.price.input", Kind::Number),
    key("providers.anthropic.*.price.output", Kind::Number),
    key("providers.anthropic.*.price.cache_read", Kind::Number),
    key("providers.anthropic.*.price.cache_write", Kind::Number),
    key("providers.openai.*.api_key", Kind::Hidden),
    key("providers.openai.*.api_key_command", Kind::TextOrTexts),
    key("providers.openai.*.base_url", Kind::Text),
    key("providers.openai.*.model", Kind::Text),
    key("providers.openai.*.fallback_model", Kind::Text),
    key("providers.openai.*.max_tokens", Kind::Whole(U32)),
    key("providers.openai.*.temperature", Kind::Number),
    key("providers.openai.*.reasoning_effort", Kind::OneOf(EFFORTS)),
    key("providers.openai.*.wire", Kind::OneOf(&["chat", "responses"])),
    key("providers.openai.*.native_tools", Kind::Switch),
    key("providers.openai.*.context_length", Kind::Whole(U32)),
    key("providers.openai.*.allow_http", Kind::Switch),
    key("providers.openai.*.price.input", Kind::Number),
    key("providers.openai.*.price.output", Kind::Number),
    key("providers.openai.*.price.cache_read", Kind::Number),
    key("providers.openai.*.price.cache_write", Kind::Number),
    key("providers.databricks.*.host", Kind::Text),
    key("providers.databricks.*.token", Kind::Hidden),
    key("providers.databricks.*.api_key_command", Kind::TextOrTexts),
    key("providers.databricks.*.use_oauth", Kind::Switch),
    key("providers.databricks.*.model", Kind::Text),
    key("providers.databricks.*.fallback_model", Kind::Text),
    key("providers.databricks.*.max_tokens", Kind::Whole(U32)),
    key("providers.databricks.*.temperature", Kind::Number),
    key("providers.databricks.*.reasoning_effort", Kind::OneOf(EFFORTS)),
    key("providers.databricks.*.thinking_budget_tokens", Kind::Whole(U32)),
    key("providers.databricks.*.context_length", Kind::Whole(U32)),
    key("providers.databricks.*.allow_http", Kind::Switch),
    key("providers.databricks.*.price.input", Kind::Number),
    key("providers.databricks.*.price.output", Kind::Number),
    key("providers.databricks.*.price.cache_read", Kind::Number),
    key("providers.databricks.*.price.cache_write", Kind::Number),
    key("providers.gemini.*.api_key", Kind::Hidden),
    key("providers.gemini.*.api_key_command", Kind::TextOrTexts),
    key("providers.gemini.*.base_url", Kind::Text),
    key("providers.gemini.*.model", Kind::Text),
    key("providers.gemini.*.fallback_model", Kind::Text),
    key("providers.gemini.*.max_tokens", Kind::Whole(U32)),
    key("providers.gemini.*.temperature", Kind::Number),
    key("providers.gemini.*.context_length", Kind::Whole(U32)),
    key("providers.gemini.*.allow_http", Kind::Switch),
    key("providers.gemini.*.price.input", Kind::Number),
    key("providers.gemini.*.price.output", Kind::Number),
    key("providers.gemini.*.price.cache_read", Kind::Number),
    key("providers.gemini.*.price.cache_write", Kind::Number),
    key("providers.embedded.*.model", Kind::Text),
    key("providers.embedded.*.model_path", Kind::Text),
    key("providers.embedded.*.model_type", Kind::Text),
    key("providers.embedded.*.context_length", Kind::Whole(U32)),
    key("providers.embedded.*.max_tokens", Kind::Whole(U32)),
    key("providers.embedded.*.temperature", Kind::Number),
    key("providers.embedded.*.gpu_layers", Kind::Whole(U32)),
    key("providers.embedded.*.threads", Kind::Whole(U32)),
    key("models", Kind::Models),
    key("agent.profile", Kind::OneOf(&["g3", "egirl", "tools-api", "core", "all"])),
    limit("agent.max_context_length", U32, None),
    limit("agent.fallback_default_max_tokens", U32, Some(32_000)),
    key("agent.enable_streaming", Kind::Switch),
    limit("agent.timeout_seconds", BIG, Some(120)),
    key("agent.auto_compact", Kind::Switch),
    limit("agent.max_retry_attempts", U32, Some(3)),
    limit("agent.autonomous_max_retry_attempts", U32, Some(6)),
    key("agent.thinning_floor_percent", Kind::Whole(100)),
    limit("agent.max_turns", U32, Some(400)),
    key("agent.check_todo_staleness", Kind::Switch),
    feature("agent.auto_memory"),
    key("studio.checks", Kind::TextOrTexts),
    key("studio.setup", Kind::TextOrTexts),
    key("studio.branch", Kind::Text),
    key("studio.worktree", Kind::Text),
    key("studio.check_caches", Kind::TextOrTexts),
    // Without the user's word it follows the machine, which has one core at least.
    limit("studio.jobs", U32, Some(1)),
    limit("studio.limits.timeout_seconds", BIG, None),
    limit("studio.limits.max_turns", U32, None),
    limit("studio.limits.max_tokens", BIG, None),
    Key {
        path: "studio.limits.budget_usd",
        kind: Kind::Number,
        untrusted: Untrusted::Lowers(None),
    },
    limit("studio.limits.output_bytes", BIG, Some(64 << 20)),
    key("studio.limits.disk_floor_bytes", Kind::Whole(BIG)),
    limit("studio.limits.check_seconds", BIG, Some(3_600)),
    key("studio.sign", Kind::Switch),
    key("studio.hooks", Kind::Switch),
    key("studio.agent", Kind::Text),
    key("studio.agents.*.protocol", Kind::OneOf(&["acp", "command"])),
    key("studio.agents.*.command", Kind::Texts),
    key("studio.agents.*.read", Kind::Texts),
    key("studio.agents.*.write", Kind::Texts),
    key("studio.agents.*.env", Kind::Texts),
    key("studio.agents.*.events", Kind::Switch),
    key("tools.webfetch.allow_hosts", Kind::Texts),
    key("tools.codesearch.endpoint", Kind::Text),
    key("tools.codesearch.api_key", Kind::Hidden),
    key("tools.lsp.diagnostics", Kind::OneOf(&["running", "start", "off"])),
    key("gate.rules", Kind::Rules),
    key("gate.policy", Kind::OneOf(&["default", "core-exact"])),
    key("gate.forbidden", Kind::Texts),
    key("gate.restricted", Kind::Texts),
    key("gate.destructive", Kind::Texts),
    key("mcp.*.enabled", Kind::Switch),
    key("mcp.*.command", Kind::Texts),
    key("mcp.*.env.*", Kind::Hidden),
    key("mcp.*.cwd", Kind::Text),
    key("mcp.*.url", Kind::Text),
    key("mcp.*.headers.*", Kind::Hidden),
    key("mcp.*.bearer_token_command", Kind::TextOrTexts),
    key("mcp.*.allow_http", Kind::Switch),
    key("mcp.*.timeout_seconds", Kind::Whole(U32)),
    key("mcp.*.tools", Kind::Texts),
    key("mcp.*.calls", Kind::OneOf(&["ask", "allow"])),
    key("mcp.*.sandbox", Kind::Switch),
    feature("lsp.*.enabled"),
    key("lsp.*.language", Kind::Text),
    key("lsp.*.command", Kind::Text),
    key("lsp.*.args", Kind::Texts),
    key("lsp.*.extensions", Kind::Texts),
    key("lsp.*.root_patterns", Kind::Texts),
    key("lsp.*.env.*", Kind::Hidden),
    key("lsp.*.timeout_seconds", Kind::Whole(U32)),
    key("hooks", Kind::Hooks),
    key("trace.file", Kind::Text),
    key("trace.level", Kind::Text),
    feature("skills.enabled"),
    key("skills.extra_paths", Kind::Texts),
    feature("skills.small_models"),
    feature("memory.enabled"),
    key("memory.embedder", Kind::OneOf(&["built-in", "server", "local"])),
    key("memory.embeddings_endpoint", Kind::Text),
    key("memory.embeddings_provider", Kind::Reference),
    key("memory.model", Kind::Text),
    key("memory.dimensions", Kind::Whole(U32)),
    feature("computer_control.enabled"),
    key("computer_control.require_confirmation", Kind::Switch),
    key("computer_control.max_actions_per_second", Kind::Whole(U32)),
    key("computer_control.fail_safe", Kind::Switch),
    key("computer_control.program", Kind::Text),
    key("computer_control.observe", Kind::Texts),
    key("computer_control.vision_provider", Kind::Reference),
    key("computer_control.omniparser_url", Kind::Text),
    key("computer_control.computer_use_provider", Kind::Reference),
    feature("webdriver.enabled"),
    key("webdriver.browser", Kind::OneOf(&["chrome-headless", "chrome", "safari"])),
    key("webdriver.safari_port", Kind::Whole(65_535)),
    key("webdriver.chrome_port", Kind::Whole(65_535)),
    key("webdriver.chrome_binary", Kind::Text),
    key("webdriver.chromedriver_binary", Kind::Text),
    key("sandbox.enabled", Kind::Switch),
    key("sandbox.best_effort", Kind::Switch),
    key("sandbox.read", Kind::Texts),
    key("sandbox.write", Kind::Texts),
];

impl Key {
    /// Whether the key's path begins like this one; `*` matches every name.
    pub fn begins_with(&self, path: &[String]) -> bool {
        let mut pattern = self.path.split('.');
        path.iter().all(|name| pattern.next().is_some_and(|part| part == "*" || part == name))
    }

    /// How many names its path has.
    pub fn depth(&self) -> usize {
        self.path.split('.').count()
    }
}

/// The key with exactly this path.
pub fn find(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.depth() == path.len() && key.begins_with(path))
}

/// Whether some key lies below this path.
pub fn is_section(path: &[String]) -> bool {
    KEYS.iter().any(|key| key.depth() > path.len() && key.begins_with(path))
}

/// Whether the names directly below this path are the user's own.
pub fn names_are_free(path: &[String]) -> bool {
    KEYS.iter()
        .filter(|key| key.depth() > path.len() && key.begins_with(path))
        .any(|key| key.path.split('.').nth(path.len()) == Some("*"))
}

/// The key that a wrong path probably means, as a dotted path.
pub fn nearest(path: &[String]) -> Option<String> {
    let (wrong, section) = path.split_last()?;
    let mut siblings: Vec<&str> = KEYS
        .iter()
        .filter(|key| key.begins_with(section))
        .filter_map(|key| key.path.split('.').nth(section.len()))
        .filter(|name| *name != "*")
        .collect();
    siblings.dedup();
    let near = |name: &str| strsim::normalized_damerau_levenshtein(name, wrong);
    let sibling = siblings.into_iter().max_by(|a, b| near(a).total_cmp(&near(b)));
    let last = |key: &Key| near(key.path.rsplit('.').next().unwrap_or_default());
    let elsewhere = KEYS.iter().max_by(|a, b| last(a).total_cmp(&last(b)))?;
    match sibling {
        Some(sibling) if near(sibling) >= last(elsewhere).min(0.9) => {
            let section = section.iter().map(String::as_str);
            Some(section.chain([sibling]).collect::<Vec<_>>().join("."))
        }
        _ => Some(elsewhere.path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn every_key_can_be_found_by_its_own_path() {
        for (at, key) in KEYS.iter().enumerate() {
            let found = find(&path(&key.path.replace('*', "main"))).expect(key.path);
            assert!(std::ptr::eq(found, &KEYS[at]), "{} stands twice", key.path);
        }
    }

    #[test]
    fn the_nearest_key_is_named_with_its_section() {
        let near = |text: &str| nearest(&path(text)).unwrap();
        assert_eq!(near("agent.max_turn"), "agent.max_turns");
        assert_eq!(near("providers.anthropic.main.modle"), "providers.anthropic.main.model");
        assert_eq!(near("default_provider"), "providers.default_provider");
        assert_eq!(near("stduio"), "studio");
        assert_eq!(near("providers.antropic"), "providers.anthropic");
    }
}
