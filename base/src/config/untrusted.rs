//! What a repository's own file may do before the user trusts it: narrow, never widen.

use std::collections::BTreeSet;
use std::path::Path;

use toml::Value;

use crate::config::keys::{self, Untrusted};
use crate::config::layers::Setting;
use crate::config::providers::TYPES;

/// Splits the settings of an untrusted file: what holds, and a notice for each key that does not.
pub fn narrowed(
    settings: Vec<Setting>,
    user: &[Setting],
    file: &Path,
) -> (Vec<Setting>, Vec<String>) {
    let mut kept = Vec::new();
    let mut notices = Vec::new();
    for setting in settings {
        match refusal(&setting, user) {
            None => kept.push(setting),
            Some(why) => notices.push(format!(
                "`{}` in {} is ignored: {why}; `g3 trust` accepts this file",
                setting.key(),
                file.display(),
            )),
        }
    }
    (kept, notices)
}

fn refusal(setting: &Setting, user: &[Setting]) -> Option<String> {
    let rule = keys::find(&setting.path).map_or(Untrusted::Nothing, |key| key.untrusted);
    let users = user.iter().rev().find(|own| own.path == setting.path).map(|own| &own.value);
    match rule {
        Untrusted::Nothing => Some("the repository is not trusted with it".into()),
        Untrusted::Chooses => {
            let name = setting.value.as_str().unwrap_or_default();
            (!has(user, name)).then(|| format!("`{name}` is not among your own providers"))
        }
        Untrusted::Lowers(without) => {
            let limit = users.and_then(number).or(without.map(|limit| limit as f64));
            let wanted = number(&setting.value)?;
            limit
                .filter(|limit| wanted > *limit)
                .map(|limit| format!("the repository may lower it from {limit}, not raise it"))
        }
        Untrusted::SwitchesOff => (setting.value != Value::Boolean(false))
            .then(|| "the repository may switch it off, not on".into()),
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// Whether a reference names a provider of the user's, or a bare type, which is theirs as well.
fn has(user: &[Setting], reference: &str) -> bool {
    let Some((kind, name)) = reference.split_once('.') else { return TYPES.contains(&reference) };
    let own: BTreeSet<&[String]> = user.iter().filter_map(|own| own.path.get(..3)).collect();
    own.contains(["providers", kind, name].map(str::to_owned).as_slice())
}
