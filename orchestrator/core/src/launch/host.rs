//! The model host for g3's own agent: it lives outside every box, and is reached through a socket
//! that is handed down.

use std::os::fd::OwnedFd;

use base::config::Config;
use base::failure::{OrFail, Result};
use base::host::find::HostQuery;
use base::host::relay;

/// Returns a socket that leads to the model host, when the configured provider is a local model.
/// The host is started with the first request.
pub(crate) fn socket(config: &Config) -> Option<Result<OwnedFd>> {
    let wanted = wanted(config)?;
    let open = |wanted| relay::open(wanted).or_fail(|| "cannot reach the model host");
    Some(wanted.and_then(open))
}

/// Returns which model, when the provider that g3 will choose is a local one.
fn wanted(config: &Config) -> Option<Result<HostQuery>> {
    let providers = &config.providers;
    let reference = providers.chosen();
    let is_local = reference.split('.').next() == Some("embedded");
    is_local.then(|| HostQuery::of(&providers.local(&reference), None))
}
