//! From files, variables and flags to checked settings: each a path, a value and its origin.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::config::agent::GateRule;
use crate::config::base_url;
use crate::config::hooks::Hook;
use crate::config::keys::{self, Key, Kind};
use crate::config::providers::{ModelConfig, TYPES};
use crate::config::{Origin, Sources};
use crate::failure::{Failure, Result};
use crate::test_hooks::is_hook;

/// One value for one key, or an empty table for a name that the user chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The key's path, name by name.
    pub path: Vec<String>,
    /// Its value, of the key's kind.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

impl Setting {
    /// The key as people write it.
    pub fn key(&self) -> String {
        self.path.join(".")
    }
}

impl Sources {
    /// The usual sources for a working directory: `~/.config/g3/config.toml` (under
    /// `XDG_CONFIG_HOME` when that is set), the nearest `g3.toml` up to the root of the repository,
    /// and our environment.
    pub fn from_env(cwd: &Path) -> Sources {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let counts = is_configuration(&name) || base_url::variables().any(|own| own == name);
            let name = Some(name).filter(|_| counts)?;
            Some((name, value.into_string().ok()?))
        });
        Sources {
            user: directory().map(|directory| directory.join("config.toml")),
            repository: Some(in_repository(cwd, "g3.toml")),
            only: None,
            environment: variables.collect(),
            flags: Vec::new(),
        }
    }

    /// Where accepted contents of repositories are remembered: beside the user's file.
    pub fn trust_store(&self) -> Option<PathBuf> {
        self.user.as_deref().and_then(Path::parent).map(|parent| parent.join("trust.json"))
    }
}

/// The directory of the user's configuration, `~/.config/g3`.
pub fn directory() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(base.join("g3"))
}

/// A file in the directory or the nearest above it, as far as the repository reaches.
pub(super) fn in_repository(cwd: &Path, name: &str) -> PathBuf {
    let own = cwd.join(name);
    let Some(root) = cwd.ancestors().find(|path| path.join(".git").exists()) else { return own };
    let inside = cwd.ancestors().take_while(|path| path.starts_with(root));
    inside.map(|path| path.join(name)).find(|file| file.exists()).unwrap_or(own)
}

/// Whether a variable belongs to the configuration.
fn is_configuration(name: &str) -> bool {
    name.starts_with("G3_") && name.contains("__") && !is_hook(name)
}

/// A configuration file is never larger.
const MAX_BYTES: u64 = 1 << 20;

/// The bytes of a file; `None` when there is none.
pub fn read(file: &Path) -> Result<Option<Vec<u8>>> {
    let refused =
        |why: io::Error| Failure::usage(format!("cannot read {}", file.display())).because(why);
    match fs::metadata(file) {
        Ok(meta) if !meta.is_file() => Err(refused(io::Error::other("it is not a regular file"))),
        Ok(meta) if meta.len() > MAX_BYTES => {
            Err(refused(io::Error::other("it is larger than 1 MiB")))
        }
        Ok(_) => fs::read(file).map(Some).map_err(refused),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(e) => Err(refused(e)),
    }
}

/// The settings of a file.
pub fn from_file(bytes: &[u8], origin: &Origin) -> Result<Vec<Setting>> {
    let broken = |why: String| Failure::usage(format!("cannot read {origin}")).because(why);
    let text = std::str::from_utf8(bytes).map_err(|_| broken("it is not UTF-8".into()))?;
    // The error's own text quotes the line, which may hold a key.
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        broken(format!("line {}: {}", before.matches('\n').count() + 1, error.message()))
    })?;
    let mut settings = Vec::new();
    flatten(&mut Vec::new(), table, origin, &mut settings)?;
    Ok(settings)
}

fn flatten(
    path: &mut Vec<String>,
    table: Table,
    origin: &Origin,
    settings: &mut Vec<Setting>,
) -> Result<()> {
    for (name, value) in table {
        path.push(alias(path, name));
        match (keys::find(path), value) {
            (Some(key), value) => settings.push(checked(key, path.clone(), value, origin)?),
            (None, _) if !keys::is_section(path) => return Err(unknown(path, origin)),
            (None, Value::Table(table)) => {
                if table.is_empty() && keys::names_are_free(&path[..path.len() - 1]) {
                    let value = Value::Table(Table::new());
                    settings.push(Setting { path: path.clone(), value, origin: origin.clone() });
                }
                flatten(path, table, origin, settings)?;
            }
            (None, value) => return Err(not_a_section(path, &value, origin)),
        }
        path.pop();
    }
    Ok(())
}

/// `openai_compatible` is another word for `openai`.
fn alias(section: &[String], name: String) -> String {
    if section == ["providers"] && name == "openai_compatible" { "openai".into() } else { name }
}

/// The settings of the environment; `known` gives the spelling of names that files introduced.
pub fn from_environment(variables: &[(String, String)], known: &[Setting]) -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for (name, text) in variables.iter().filter(|(name, _)| is_configuration(name)) {
        let origin = Origin::Environment(name.clone());
        let mut path = Vec::new();
        for part in name["G3_".len()..].split("__") {
            let part = spelled(&path, part, known);
            path.push(alias(&path, part));
        }
        settings.push(from_text(path, text, origin)?);
    }
    Ok(settings)
}

/// A variable's part in the spelling of a file: `MY_KEY` means `my-key` where that exists.
fn spelled(section: &[String], part: &str, known: &[Setting]) -> String {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(part);
    let names = known.iter().filter(|setting| setting.path.starts_with(section));
    let mut names = names.filter_map(|setting| setting.path.get(section.len()));
    if !keys::names_are_free(section) {
        return wanted;
    }
    names.find(|name| plain(name) == wanted).cloned().unwrap_or(wanted)
}

/// The settings of the flags.
pub fn from_flags(flags: &[(String, String)]) -> Result<Vec<Setting>> {
    let setting = |(key, text): &(String, String)| {
        let mut path = Vec::new();
        for part in key.split('.') {
            path.push(alias(&path, part.to_owned()));
        }
        from_text(path, text, Origin::Flag)
    };
    flags.iter().map(setting).collect()
}

fn from_text(path: Vec<String>, text: &str, origin: Origin) -> Result<Setting> {
    let Some(key) = keys::find(&path) else { return Err(unknown(&path, &origin)) };
    let list = || format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    let value = match key.kind {
        Kind::Text | Kind::Hidden | Kind::OneOf(_) | Kind::Reference => None,
        Kind::Whole(_) => text.trim().parse().ok().map(Value::Integer),
        Kind::Number => text.trim().parse().ok().map(Value::Float),
        Kind::Switch => match text.trim() {
            "true" | "1" => Some(Value::Boolean(true)),
            "false" | "0" => Some(Value::Boolean(false)),
            _ => None,
        },
        Kind::Texts if !text.trim_start().starts_with('[') => {
            Some(Value::Array(vec![Value::String(text.to_owned())]))
        }
        Kind::TextOrTexts if !text.trim_start().starts_with('[') => None,
        Kind::Texts | Kind::TextOrTexts | Kind::Rules | Kind::Models | Kind::Hooks => list(),
    };
    checked(key, path, value.unwrap_or_else(|| Value::String(text.to_owned())), &origin)
}

fn checked(key: &Key, path: Vec<String>, value: Value, origin: &Origin) -> Result<Setting> {
    let value = normal(key.kind, value);
    let is_text = |value: &Value| value.is_str();
    let are_texts = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(is_text));
    let fits = match key.kind {
        Kind::Text | Kind::Hidden | Kind::Reference => is_text(&value),
        Kind::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
        Kind::Whole(max) => value
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .is_some_and(|number| number <= max),
        Kind::Number => value.as_float().is_some_and(|n| n.is_finite() && n >= 0.0),
        Kind::Switch => value.is_bool(),
        Kind::Texts => are_texts(&value),
        Kind::TextOrTexts => is_text(&value) || are_texts(&value),
        Kind::Rules => value.clone().try_into::<Vec<GateRule>>().is_ok(),
        Kind::Models => value
            .clone()
            .try_into::<Vec<ModelConfig>>()
            .is_ok_and(|all| all.iter().all(ModelConfig::is_sound)),
        Kind::Hooks => {
            let hooks = value.clone().try_into::<Vec<Hook>>();
            hooks.is_ok_and(|hooks| hooks.iter().all(Hook::makes_sense))
        }
    };
    if fits {
        return Ok(Setting { path, value, origin: origin.clone() });
    }
    let found = match (&key.kind, &value) {
        (Kind::Hidden, _) => value.type_str().to_owned(),
        (_, Value::String(text)) => format!("the text `{text}`"),
        (_, Value::Integer(number)) => format!("the number {number}"),
        (_, other) => format!("a value of type {}", other.type_str()),
    };
    Err(Failure::usage(format!("`{}` must be {}", path.join("."), wanted(key.kind)))
        .because(format!("{origin} gives it {found}")))
}

/// Numbers may be written without a point, and references in their older form.
fn normal(kind: Kind, value: Value) -> Value {
    match (kind, value) {
        (Kind::Number, Value::Integer(number)) => Value::Float(number as f64),
        (Kind::Reference, Value::String(text)) => {
            let name = text.strip_prefix("openai_compatible.");
            Value::String(name.map_or_else(|| text.clone(), |name| format!("openai.{name}")))
        }
        (_, value) => value,
    }
}

fn wanted(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Hidden => "a text".into(),
        Kind::Reference => "a text of the form `type.name`".into(),
        Kind::OneOf(texts) => format!("one of the texts `{}`", texts.join("`, `")),
        Kind::Whole(max) if max <= 65_535 => format!("a whole number from 0 to {max}"),
        Kind::Whole(_) => "a whole number, 0 or more".into(),
        Kind::Number => "a number, 0 or more".into(),
        Kind::Switch => "`true` or `false`".into(),
        Kind::Texts => "a list of texts".into(),
        Kind::TextOrTexts => "a text or a list of texts".into(),
        Kind::Models => {
            "a list of models {name, context, max_output, price = {input, output}}".into()
        }
        Kind::Rules => {
            "a list of rules {tool, command, path, host, action = \"allow|ask|box|deny\"}".into()
        }
        Kind::Hooks => "a list of hooks {event = \"session_start|session_end|user_prompt|\
                        before_tool|after_tool|stop\", match (of the two about tools), command = \
                        [PROGRAM, …], timeout_seconds, required (of before_tool)}"
            .into(),
    }
}

fn unknown(path: &[String], origin: &Origin) -> Failure {
    let failure = Failure::usage(format!("there is no configuration key `{}`", path.join(".")))
        .because(format!("it stands in {origin}"));
    match keys::nearest(path) {
        Some(nearest) => failure.next(format!("`{nearest}` is the nearest key")),
        None => failure,
    }
}

/// A value where a table must be: the old flat format gets its own explanation.
fn not_a_section(path: &[String], value: &Value, origin: &Origin) -> Failure {
    if let [section, kind, key] = path
        && section == "providers"
        && TYPES.contains(&kind.as_str())
    {
        return Failure::usage(format!("[providers.{kind}] holds `{key}` directly"))
            .because(format!("{origin} is in the old format; each provider now has a name"))
            .next(format!("write [providers.{kind}.default] above it, and `default_provider = \"{kind}.default\"` in [providers]"));
    }
    Failure::usage(format!("`{}` must be a table", path.join(".")))
        .because(format!("{origin} gives it a value of type {}", value.type_str()))
}
