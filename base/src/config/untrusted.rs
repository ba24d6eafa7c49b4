//! Restricts the settings of an untrusted repository: they can narrow the user's, never widen them.

use std::collections::BTreeSet;
use std::path::Path;

use toml::Value;

use crate::config::keys::{self, UntrustedRule};
use crate::config::layers::RawSetting;
use crate::config::network::NetworkPolicy;
use crate::config::providers::TYPES;

/// The settings that a repository's file never sets, not even a trusted one, and why.
const USERS_OWN: [([&str; 2], &str); 4] = [
    (["studio", "filters"], "names filters"),
    (["studio", "places"], "names places"),
    (["studio", "on"], "chooses places"),
    (["studio", "checks_on"], "chooses places"),
];

/// Splits the settings of an untrusted file into the allowed ones and a notice for each ignored
/// key.
pub(crate) fn filter(
    settings: Vec<RawSetting>,
    user: &[RawSetting],
    file: &Path,
) -> (Vec<RawSetting>, Vec<String>) {
    let mut accepted = Vec::new();
    let mut notices = Vec::new();
    for setting in settings {
        match refusal(&setting, user) {
            None => accepted.push(setting),
            Some(reason) => notices.push(format!(
                "`{}` in {} is ignored: {reason}; run `g3 trust` to trust this file",
                setting.key(),
                file.display(),
            )),
        }
    }
    (accepted, notices)
}

/// Removes the settings that only the user's own configuration may contain, whether the repository is
/// trusted or not; returns the others and a notice for each removed key.
pub(crate) fn remove_users_own(
    settings: Vec<RawSetting>,
    file: &Path,
) -> (Vec<RawSetting>, Vec<String>) {
    let (mut accepted, mut notices) = (Vec::new(), Vec::new());
    for setting in settings {
        let own = USERS_OWN
            .iter()
            .find(|(section, _)| setting.path.starts_with(&section.map(str::to_owned)));
        match own {
            Some((_, what)) => notices.push(format!(
                "`{}` in {} is ignored: only your own configuration {what}",
                setting.key(),
                file.display()
            )),
            None => accepted.push(setting),
        }
    }
    (accepted, notices)
}

fn refusal(setting: &RawSetting, user: &[RawSetting]) -> Option<String> {
    let rule = keys::find(&setting.path).map_or(UntrustedRule::Nothing, |key| key.untrusted);
    let user_value =
        user.iter().rev().find(|known| known.path == setting.path).map(|known| &known.value);
    match rule {
        UntrustedRule::Nothing => Some("the repository is not trusted".into()),
        UntrustedRule::Chooses => {
            let name = setting.value.as_str().unwrap_or_default();
            (!has_provider(user, name)).then(|| format!("`{name}` is not one of your providers"))
        }
        UntrustedRule::Lowers(without) => {
            let limit = user_value.and_then(number).or(without.map(|limit| limit as f64));
            let requested = number(&setting.value)?;
            limit
                .filter(|limit| requested > *limit)
                .map(|limit| format!("a repository may only lower it (from {limit})"))
        }
        UntrustedRule::SwitchesOff => (setting.value != Value::Boolean(false))
            .then(|| "a repository may only disable it".into()),
        UntrustedRule::NarrowsNetwork(without) => {
            let policy = |value: &Value| NetworkPolicy::parse(value.as_str()?);
            let limit = user_value.and_then(policy).or(NetworkPolicy::parse(without))?;
            (policy(&setting.value)? < limit)
                .then(|| format!("a repository may only narrow it (from `{}`)", limit.name()))
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// Returns whether a reference names a provider of the user, or a bare type, which is always
/// allowed.
fn has_provider(user: &[RawSetting], reference: &str) -> bool {
    let Some((kind, name)) = reference.split_once('.') else { return TYPES.contains(&reference) };
    let configured: BTreeSet<&[String]> =
        user.iter().filter_map(|configured| configured.path.get(..3)).collect();
    configured.contains(["providers", kind, name].map(str::to_owned).as_slice())
}
