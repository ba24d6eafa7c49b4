//! Reads files, variables and flags as checked settings: each has a path, a value and an origin.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::config::agent::GateRule;
use crate::config::base_url;
use crate::config::filters::FilterSetting;
use crate::config::hooks::Hook;
use crate::config::keyless::{KEYLESS_CONFIG_VAR, KeylessConfig};
use crate::config::keys::{self, ConfigKey, ValueKind};
use crate::config::providers::{ModelConfig, TYPES};
use crate::config::{ConfigSources, ValueOrigin};
use crate::failure::{Failure, Result};
use crate::test_hooks::is_hook;

/// A value for one key, or an empty table for a name that the user chose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawSetting {
    /// The key's path, name by name.
    pub path: Vec<String>,
    /// The value, of the key's type.
    pub value: Value,
    /// Where it came from.
    pub origin: ValueOrigin,
}

impl RawSetting {
    /// Returns the key in dotted form.
    pub(crate) fn key(&self) -> String {
        self.path.join(".")
    }
}

impl ConfigSources {
    /// Returns the default sources for a working directory: `~/.config/g3/config.toml` (or below
    /// `XDG_CONFIG_HOME`), the nearest `g3.toml` up to the root of the repository, and the
    /// environment of this process.
    pub fn from_env(cwd: &Path) -> ConfigSources {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let is_relevant =
                is_configuration(&name) || base_url::variables().any(|known| known == name);
            let name = Some(name).filter(|_| is_relevant)?;
            Some((name, value.into_string().ok()?))
        });
        ConfigSources {
            user: user_config_file(),
            repository: Some(in_repository(cwd, "g3.toml")),
            config_file: None,
            environment: variables.collect(),
            flags: Vec::new(),
            keyless: None,
        }
    }

    /// Returns the path of the trust store, beside the user's file.
    pub fn trust_store(&self) -> Option<PathBuf> {
        self.user.as_deref().and_then(Path::parent).map(|parent| parent.join("trust.json"))
    }
}

/// Returns the path of the user's configuration file.
pub fn user_config_file() -> Option<PathBuf> {
    directory().map(|directory| directory.join("config.toml"))
}

/// Returns the directory of the user's configuration, `~/.config/g3`.
pub fn directory() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(base.join("g3"))
}

/// Returns the path of a file in the directory or in its nearest ancestor within the repository.
pub(super) fn in_repository(cwd: &Path, name: &str) -> PathBuf {
    let fallback = cwd.join(name);
    let Some(root) = cwd.ancestors().find(|path| path.join(".git").exists()) else {
        return fallback;
    };
    let directories = cwd.ancestors().take_while(|path| path.starts_with(root));
    directories.map(|path| path.join(name)).find(|file| file.exists()).unwrap_or(fallback)
}

/// Returns whether a variable is part of the configuration.
fn is_configuration(name: &str) -> bool {
    name.starts_with("G3_") && name.contains("__") && !is_hook(name)
}

/// The maximum size of a configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the content of a file; `None` if it does not exist.
pub(crate) fn read(file: &Path) -> Result<Option<Vec<u8>>> {
    let unreadable =
        |error: io::Error| Failure::usage(format!("cannot read {}", file.display())).because(error);
    match fs::metadata(file) {
        Ok(meta) if !meta.is_file() => {
            Err(unreadable(io::Error::other("it is not a regular file")))
        }
        Ok(meta) if meta.len() > MAX_BYTES => {
            Err(unreadable(io::Error::other("it is larger than 1 MiB")))
        }
        Ok(_) => fs::read(file).map(Some).map_err(unreadable),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(e) => Err(unreadable(e)),
    }
}

/// Parses the settings of a file.
pub(crate) fn from_file(bytes: &[u8], origin: &ValueOrigin) -> Result<Vec<RawSetting>> {
    let invalid = |reason: String| Failure::usage(format!("cannot read {origin}")).because(reason);
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8".into()))?;
    // The error's own text quotes the line, which may contain an API key.
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        invalid(format!("line {}: {}", before.matches('\n').count() + 1, error.message()))
    })?;
    let mut settings = Vec::new();
    flatten(&mut Vec::new(), table, origin, &mut settings)?;
    Ok(settings)
}

fn flatten(
    path: &mut Vec<String>,
    table: Table,
    origin: &ValueOrigin,
    settings: &mut Vec<RawSetting>,
) -> Result<()> {
    for (name, value) in table {
        path.push(resolve_alias(path, name));
        match (keys::find(path), value) {
            (Some(key), value) => settings.push(check_value(key, path.clone(), value, origin)?),
            (None, _) if !keys::is_section(path) => return Err(unknown(path, origin)),
            (None, Value::Table(table)) => {
                if table.is_empty() && keys::has_free_names(&path[..path.len() - 1]) {
                    let value = Value::Table(Table::new());
                    settings.push(RawSetting { path: path.clone(), value, origin: origin.clone() });
                }
                flatten(path, table, origin, settings)?;
            }
            (None, value) => return Err(not_a_section(path, &value, origin)),
        }
        path.pop();
    }
    Ok(())
}

/// Resolves an alias: `openai_compatible` is `openai`.
fn resolve_alias(section: &[String], name: String) -> String {
    if section == ["providers"] && name == "openai_compatible" { "openai".into() } else { name }
}

/// Reads the settings of the environment; `known` has the spelling of names from the files.
pub(crate) fn from_environment(
    variables: &[(String, String)],
    known: &[RawSetting],
) -> Result<Vec<RawSetting>> {
    let mut settings = Vec::new();
    for (name, text) in variables.iter().filter(|(name, _)| is_configuration(name)) {
        let origin = ValueOrigin::Environment(name.clone());
        let mut path = Vec::new();
        for part in name["G3_".len()..].split("__") {
            let part = match_name(&path, part, known);
            path.push(resolve_alias(&path, part));
        }
        settings.push(from_text(path, text, origin)?);
    }
    Ok(settings)
}

/// Returns how files spell a part of a variable's name: `MY_KEY` is `my-key` if that exists.
fn match_name(section: &[String], part: &str, known: &[RawSetting]) -> String {
    let normalize_name = |text: &str| text.to_lowercase().replace('-', "_");
    let normalized = normalize_name(part);
    let names = known.iter().filter(|setting| setting.path.starts_with(section));
    let mut names = names.filter_map(|setting| setting.path.get(section.len()));
    if !keys::has_free_names(section) {
        return normalized;
    }
    names.find(|name| normalize_name(name) == normalized).cloned().unwrap_or(normalized)
}

/// Reads the settings of the flags.
pub(crate) fn from_flags(flags: &[(String, String)]) -> Result<Vec<RawSetting>> {
    let setting = |(key, text): &(String, String)| {
        let mut path = Vec::new();
        for part in key.split('.') {
            path.push(resolve_alias(&path, part.to_owned()));
        }
        from_text(path, text, ValueOrigin::Flag)
    };
    flags.iter().map(setting).collect()
}

/// Reads the values that override all other sources.
pub(crate) fn from_overrides(keyless: Option<&KeylessConfig>) -> Result<Vec<RawSetting>> {
    let overrides = keyless.into_iter().flat_map(|keyless| &keyless.overrides);
    let origin = || ValueOrigin::Environment(KEYLESS_CONFIG_VAR.to_owned());
    overrides.map(|(path, text)| from_text(path.clone(), text, origin())).collect()
}

fn from_text(path: Vec<String>, text: &str, origin: ValueOrigin) -> Result<RawSetting> {
    let Some(key) = keys::find(&path) else { return Err(unknown(&path, &origin)) };
    let list = || format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    let value = match key.kind {
        ValueKind::Text
        | ValueKind::Hidden
        | ValueKind::OneOf(_)
        | ValueKind::Reference
        | ValueKind::Filter => None,
        ValueKind::Whole(_) => text.trim().parse().ok().map(Value::Integer),
        ValueKind::Number => text.trim().parse().ok().map(Value::Float),
        ValueKind::Switch => match text.trim() {
            "true" | "1" => Some(Value::Boolean(true)),
            "false" | "0" => Some(Value::Boolean(false)),
            _ => None,
        },
        ValueKind::Texts if !text.trim_start().starts_with('[') => {
            Some(Value::Array(vec![Value::String(text.to_owned())]))
        }
        ValueKind::TextOrTexts if !text.trim_start().starts_with('[') => None,
        ValueKind::Texts
        | ValueKind::TextOrTexts
        | ValueKind::Rules
        | ValueKind::Models
        | ValueKind::Hooks => list(),
    };
    check_value(key, path, value.unwrap_or_else(|| Value::String(text.to_owned())), &origin)
}

fn check_value(
    key: &ConfigKey,
    path: Vec<String>,
    value: Value,
    origin: &ValueOrigin,
) -> Result<RawSetting> {
    let value = normalize(key.kind, value);
    let is_text = |value: &Value| value.is_str();
    let are_texts = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(is_text));
    let is_valid = match key.kind {
        ValueKind::Text | ValueKind::Hidden | ValueKind::Reference => is_text(&value),
        ValueKind::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
        ValueKind::Whole(max) => value
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .is_some_and(|number| number <= max),
        ValueKind::Number => value.as_float().is_some_and(|n| n.is_finite() && n >= 0.0),
        ValueKind::Switch => value.is_bool(),
        ValueKind::Texts => are_texts(&value),
        ValueKind::TextOrTexts => is_text(&value) || are_texts(&value),
        ValueKind::Rules => value.clone().try_into::<Vec<GateRule>>().is_ok(),
        ValueKind::Models => value
            .clone()
            .try_into::<Vec<ModelConfig>>()
            .is_ok_and(|all| all.iter().all(ModelConfig::is_valid)),
        ValueKind::Filter => {
            value.clone().try_into::<FilterSetting>().is_ok_and(|filter| filter.is_valid())
        }
        ValueKind::Hooks => {
            let hooks = value.clone().try_into::<Vec<Hook>>();
            hooks.is_ok_and(|hooks| hooks.iter().all(Hook::is_valid))
        }
    };
    if is_valid {
        return Ok(RawSetting { path, value, origin: origin.clone() });
    }
    let actual = match (&key.kind, &value) {
        (ValueKind::Hidden, _) => value.type_str().to_owned(),
        (_, Value::String(text)) => format!("the string `{text}`"),
        (_, Value::Integer(number)) => format!("the number {number}"),
        (_, other) => format!("a value of type {}", other.type_str()),
    };
    Err(Failure::usage(format!("`{}` must be {}", path.join("."), expected(key.kind)))
        .because(format!("{origin} sets it to {actual}")))
}

/// Normalizes a value: integers for numbers, and references in their older form, are accepted.
fn normalize(kind: ValueKind, value: Value) -> Value {
    match (kind, value) {
        (ValueKind::Number, Value::Integer(number)) => Value::Float(number as f64),
        (ValueKind::Reference, Value::String(text)) => {
            let name = text.strip_prefix("openai_compatible.");
            Value::String(name.map_or_else(|| text.clone(), |name| format!("openai.{name}")))
        }
        (_, value) => value,
    }
}

fn expected(kind: ValueKind) -> String {
    match kind {
        ValueKind::Text | ValueKind::Hidden => "a string".into(),
        ValueKind::Reference => "a string of the form `type.name`".into(),
        ValueKind::OneOf(texts) => format!("one of `{}`", texts.join("`, `")),
        ValueKind::Whole(max) if max <= 65_535 => format!("an integer from 0 to {max}"),
        ValueKind::Whole(_) => "a non-negative integer".into(),
        ValueKind::Number => "a non-negative number".into(),
        ValueKind::Switch => "`true` or `false`".into(),
        ValueKind::Texts => "a list of strings".into(),
        ValueKind::TextOrTexts => "a string or a list of strings".into(),
        ValueKind::Models => {
            "a list of models {name, context, max_output, price = {input, output}}".into()
        }
        ValueKind::Rules => {
            "a list of rules {tool, command, path, host, action = \"allow|ask|box|deny\"}".into()
        }
        ValueKind::Filter => {
            "`\"git-lfs\"`, or a table {clean = \"COMMAND\", smudge = \"COMMAND\", \
                        process = \"COMMAND\", required = true|false, timeout_seconds}"
                .into()
        }
        ValueKind::Hooks => "a list of hooks {event = \"session_start|session_end|user_prompt|\
                        before_tool|after_tool|stop\", match (of the tool events), command =  \
                        [PROGRAM, …], timeout_seconds, required (of before_tool)}"
            .into(),
    }
}

fn unknown(path: &[String], origin: &ValueOrigin) -> Failure {
    let failure = Failure::usage(format!("unknown configuration key `{}`", path.join(".")))
        .because(format!("in {origin}"));
    match keys::nearest(path) {
        Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
        None => match path.split_last().map(|(_, section)| (section, keys::in_section(section))) {
            Some((section, names)) if !section.is_empty() && !names.is_empty() => {
                failure.hint(format!("the keys of `{}`: {}", section.join("."), names.join(", ")))
            }
            _ => failure,
        },
    }
}

/// Returns the error for a value where a table is expected; the old flat format has its own
/// message.
fn not_a_section(path: &[String], value: &Value, origin: &ValueOrigin) -> Failure {
    if let [section, kind, key] = path
        && section == "providers"
        && TYPES.contains(&kind.as_str())
    {
        return Failure::usage(format!("[providers.{kind}] contains `{key}` directly"))
            .because(format!("{origin} has the old format; each provider now has a name"))
            .hint(format!("write [providers.{kind}.default] above it, and `default_provider = \"{kind}.default\"` in [providers]"));
    }
    Failure::usage(format!("`{}` must be a table", path.join(".")))
        .because(format!("{origin} sets it to a value of type {}", value.type_str()))
}
