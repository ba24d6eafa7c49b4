//! The model host for a g3 agent: it runs outside all sandboxes and is reached through a socket
//! that is passed down.

use std::os::fd::OwnedFd;

use base::config::Config;
use base::failure::{OrFail, Result};
use base::model_host::find::HostQuery;
use base::model_host::relay;

/// Returns a socket to the model host, if the configured provider is a local model. The first
/// request starts the host.
pub(crate) fn socket(config: &Config) -> Option<Result<OwnedFd>> {
    let query = model_host(config)?;
    let connect = |query| relay::open(query).or_fail(|| "cannot reach the model host");
    Some(query.and_then(connect))
}

/// Returns the model host to use, if the provider that g3 will select is a local one.
fn model_host(config: &Config) -> Option<Result<HostQuery>> {
    let providers = &config.providers;
    let reference = providers.chosen();
    let is_local = reference.split('.').next() == Some("embedded");
    is_local.then(|| HostQuery::of(&providers.local(&reference), None))
}
