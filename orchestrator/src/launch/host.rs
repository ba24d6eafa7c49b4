//! The model host for g3's own agent: it lives outside every box, and is reached through a socket
//! that is handed down.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use base::config::Config;
use base::failure::{OrFail, Result};
use base::host::catalogue;
use base::host::find::Wanted;
use base::host::relay;

use crate::launch::table::KEYS;

/// A socket that leads to the model host, when the configured provider is a local model. The host
/// is started with the first request.
pub fn socket(config: &Config) -> Option<Result<OwnedFd>> {
    let wanted = wanted(config)?;
    let open = |wanted| relay::open(wanted).or_fail(|| "cannot reach the model host");
    Some(wanted.and_then(open))
}

/// Which model, when the provider that g3 would choose is a local one.
fn wanted(config: &Config) -> Option<Result<Wanted>> {
    let providers = &config.providers;
    let references = providers.references();
    let has_key = || KEYS.iter().any(|key| std::env::var_os(key).is_some());
    let reference = match (&providers.default_provider, references.as_slice()) {
        (Some(reference), _) => reference.clone(),
        (None, [only]) => only.clone(),
        (None, _) if has_key() => return None,
        (None, _) => "embedded".to_owned(),
    };
    let (kind, name) = reference.split_once('.').unwrap_or((&reference, ""));
    if kind != "embedded" {
        return None;
    }
    let entry = providers.embedded.get(name).or_else(|| providers.embedded.values().next());
    let entry = entry.cloned().unwrap_or_default();
    let path = match &entry.model_path {
        Some(path) => Ok(at_home(path.clone())),
        None => catalogue::find(entry.model.as_deref().unwrap_or(catalogue::DEFAULT)),
    };
    Some(path.map(|path| Wanted {
        context: entry.context_length,
        threads: entry.threads,
        ..Wanted::model(path)
    }))
}

/// `~/x` is a path of the home directory.
fn at_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        (Ok(_) | Err(_), _) => path,
    }
}
