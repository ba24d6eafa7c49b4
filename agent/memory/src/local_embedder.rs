//! Embeddings from the local model, computed by its host.

use std::sync::Arc;

use base::config::Config;
use base::failure::{Failure, OrFail, Result};
use base::model_host::connection::Connection;
use base::model_host::find::{self, HostQuery};
use base::model_host::wire::{
    self, HostFault, HostFaultKind, HostRequest, HostResponse, TEXT_LIMIT,
};
use futures_util::future::BoxFuture;

use super::embed::Embedder;

/// Number of retries when the host exits before it answers.
const MAX_RETRIES: u32 = 3;

/// A local model.
pub(crate) struct LocalEmbedder {
    embedder: wire::EmbedderId,
    host: Host,
}

/// The connection to the host.
enum Host {
    /// A socket inherited from a supervisor.
    HandedDown(Arc<Connection>),
    /// Found, or started if there is none, with each request.
    Wanted(HostQuery),
}

/// The result of looking for the host.
pub(crate) enum HostLookup {
    /// The host computes embeddings.
    Ready(LocalEmbedder),
    /// The host is of an older version without embeddings.
    Older {
        /// Its process id.
        pid: u32,
    },
}

/// Finds or starts the host of the chat model, unless `memory.model` names another one.
pub(crate) fn open(config: &Config) -> Result<HostLookup> {
    let with_hint = |mut failure: Failure| {
        // The other hints are about chat models.
        failure.hints.truncate(1);
        failure.hint("leave `embedder` out of [memory]: the built-in embedder needs no model")
    };
    let (host, hello) = match find::inherited_connection() {
        Some(socket) => {
            let connection = Connection::new(socket).or_fail(|| "cannot talk to the model host")?;
            let hello = connection.hello().map_err(HostFault::into_failure)?;
            (Host::HandedDown(Arc::new(connection)), hello)
        }
        None => {
            let query = HostQuery::of(
                &config.providers.local(&config.providers.chosen()),
                config.memory.model.as_deref(),
            );
            let query = query.map_err(with_hint)?;
            let (_, hello) = find::open(&query).map_err(with_hint)?;
            (Host::Wanted(query), hello)
        }
    };
    Ok(match hello.embedder {
        Some(embedder) => HostLookup::Ready(LocalEmbedder { embedder, host }),
        None => HostLookup::Older { pid: hello.pid },
    })
}

impl LocalEmbedder {
    async fn ask(&self, texts: &[String]) -> std::result::Result<Vec<Vec<f32>>, String> {
        let truncate = |text: &String| base::text::head(text, TEXT_LIMIT).to_owned();
        let texts: Vec<String> = texts.iter().map(truncate).collect();
        let count = texts.len();
        let mut retries = MAX_RETRIES;
        let reply = loop {
            retries -= 1;
            let connection = self.host.connect().await?;
            // If dropped early because the user cancels, the request is cancelled at the host as
            // well.
            let mut answers = connection.ask(HostRequest::Embed { texts: texts.clone() });
            match answers.next().await {
                HostResponse::Vectors(reply) => break reply,
                // The host exited; retry with another one.
                HostResponse::Error(fault)
                    if fault.kind == HostFaultKind::Broken && retries > 0 => {}
                HostResponse::Error(fault) => return Err(fault.into_failure().sentence()),
                HostResponse::Hello(_)
                | HostResponse::Text { .. }
                | HostResponse::Call { .. }
                | HostResponse::Progress { .. }
                | HostResponse::Done { .. }
                | HostResponse::Status(_) => return Err(wire::UNEXPECTED.to_owned()),
            }
        };
        if reply.embedder != self.embedder {
            return Err("the model host was restarted with another embedding model".to_owned());
        }
        let dimension = self.embedder.dimension as usize;
        let is_valid = |vector: &Vec<f32>| {
            vector.len() == dimension && vector.iter().all(|number| number.is_finite())
        };
        if reply.vectors.len() != count || !reply.vectors.iter().all(is_valid) {
            return Err("the model host answers with vectors that cannot be used".to_owned());
        }
        Ok(reply.vectors)
    }
}

impl Host {
    async fn connect(&self) -> std::result::Result<Arc<Connection>, String> {
        let query = match self {
            Host::HandedDown(connection) => return Ok(Arc::clone(connection)),
            Host::Wanted(query) => query.clone(),
        };
        let result = tokio::task::spawn_blocking(move || find::open(&query)).await;
        let result = result.map_err(|error| error.to_string())?;
        result.map(|(connection, _)| Arc::new(connection)).map_err(|failure| failure.sentence())
    }
}

impl Embedder for LocalEmbedder {
    fn name(&self) -> &str {
        &self.embedder.name
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
    ) -> BoxFuture<'a, std::result::Result<Vec<Vec<f32>>, String>> {
        Box::pin(self.ask(texts))
    }

    fn min_similarity(&self) -> f32 {
        0.25
    }
}
