//! Embeddings from a server with an `/embeddings` endpoint, such as OpenAI or llama.cpp.

use std::sync::Arc;
use std::time::Duration;

use base::config::Config;
use base::config::agent::EmbedderKind as Kind;
use base::config::hosted_services::{NO_KEY, OPENAI_URL};
use base::failure::{Failure, Result};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;

use super::embed::{Embedder, HashEmbedder, normalize};
use super::local_embedder::{self, HostLookup};
use provider::http::Endpoint;

/// Maximum size of a response in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Idle timeout.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of characters sent of a text, because servers reject texts that do not fit their
/// model.
const MAX_CHARS: usize = 8_000;

/// A server that computes embeddings.
pub(crate) struct EmbeddingServer {
    name: String,
    endpoint: Endpoint,
    model: String,
    dimensions: Option<u32>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<usize>,
    embedding: Vec<f32>,
}

/// An embedder, with a notice for the user.
#[derive(Clone)]
pub(crate) struct ChosenEmbedder {
    /// The embedder.
    pub embedder: Arc<dyn Embedder>,
    /// Why it is not the configured one.
    pub notice: Option<String>,
}

/// Creates the configured embedder: the local model, a URL, a provider's server, or the built-in
/// one.
pub(crate) fn open_configured(config: &Config) -> Result<ChosenEmbedder> {
    let memory = &config.memory;
    let (address, reference) = (&memory.embeddings_endpoint, &memory.embeddings_provider);
    let endpoint = match (memory.embedder, address, reference) {
        (_, Some(_), Some(_)) => {
            return Err(Failure::usage(
                "`memory` sets both an address and a provider for embeddings",
            )
            .hint("keep `embeddings_endpoint` or `embeddings_provider`"));
        }
        (None | Some(Kind::BuiltIn), None, None) => return Ok(built_in(memory.dimensions)),
        (Some(Kind::Local), None, None) => return open_local(config),
        (Some(Kind::Server), None, None) => {
            return Err(Failure::usage("`memory.embedder` is `server`, and none is named")
                .hint("set `embeddings_endpoint` or `embeddings_provider` in [memory]"));
        }
        (Some(Kind::BuiltIn | Kind::Local), _, _) => {
            return Err(Failure::usage(
                "`memory.embedder` is not `server`, but a server is configured",
            )
            .hint("leave `embeddings_endpoint` and `embeddings_provider` out of [memory]")
            .hint("or set `embedder = \"server\"`"));
        }
        (None | Some(Kind::Server), Some(address), None) => Endpoint::new(address, "", false)?,
        (None | Some(Kind::Server), None, Some(reference)) => {
            endpoint_of_provider(config, reference)?
        }
    };
    let model = memory
        .model
        .clone()
        .ok_or_else(|| Failure::usage("embeddings need a model").hint("set `model` in [memory]"))?;
    let dimensions = memory.dimensions;
    let size = dimensions.map_or_else(String::new, |size| format!("-{size}"));
    let name = format!("{}:{model}{size}", endpoint.host());
    let endpoint = endpoint.idle_timeout(IDLE_TIMEOUT);
    let embedder = Arc::new(EmbeddingServer { name, endpoint, model, dimensions });
    Ok(ChosenEmbedder { embedder, notice: None })
}

fn built_in(dimensions: Option<u32>) -> ChosenEmbedder {
    ChosenEmbedder { embedder: Arc::new(HashEmbedder::new(dimensions)), notice: None }
}

/// Returns the local model, or the built-in embedder if the model's host is too old.
fn open_local(config: &Config) -> Result<ChosenEmbedder> {
    if config.memory.dimensions.is_some() {
        return Err(Failure::usage("the vectors of a local model are as long as it makes them")
            .hint("leave `dimensions` out of [memory]"));
    }
    Ok(match local_embedder::open(config)? {
        HostLookup::Ready(local) => ChosenEmbedder { embedder: Arc::new(local), notice: None },
        HostLookup::Older { pid } => {
            let notice = format!(
                "the model host that runs is of an earlier version and makes no vectors; the \
                 built-in embedder stands in. When it has ended (kill {pid}), the next one is asked"
            );
            ChosenEmbedder { notice: Some(notice), ..built_in(None) }
        }
    })
}

/// Returns the URL and key of a configured server with OpenAI's wire format.
fn endpoint_of_provider(config: &Config, reference: &str) -> Result<Endpoint> {
    let name = reference.strip_prefix("openai.");
    let entry = name.and_then(|name| config.providers.openai.get(name)).ok_or_else(|| {
        Failure::usage(format!("provider `{reference}` has no embeddings"))
            .because("it is set in `memory.embeddings_provider`")
            .hint("name one of type openai: openai.NAME")
    })?;
    let key = entry.key_sources(reference);
    let base = config.providers.base_url("openai", entry.base_url.as_deref());
    let base = base.map_or(OPENAI_URL, |base| base.url);
    let endpoint = Endpoint::new(base, "/embeddings", entry.allow_http)?;
    match key.optional()?.filter(|key| key.secret.reveal() != NO_KEY) {
        Some(key) => endpoint.key("authorization", "Bearer ", key.secret),
        None => Ok(endpoint),
    }
}

impl EmbeddingServer {
    async fn ask(&self, texts: &[String]) -> std::result::Result<Vec<Vec<f32>>, String> {
        let truncate = |text: &String| text.chars().take(MAX_CHARS).collect::<String>();
        let input: Vec<String> = texts.iter().map(truncate).collect();
        let mut body = json!({ "model": self.model, "input": input });
        if let Some(dimensions) = self.dimensions {
            body["dimensions"] = dimensions.into();
        }
        let response = self.endpoint.post(body.to_string().into_bytes(), None).await;
        let response = response.map_err(|error| error.failure().sentence())?;
        let (status, host) = (response.status(), self.endpoint.host());
        let bytes = response.head(MAX_BYTES).await;
        if status != 200 {
            let message = self.endpoint.redact_key(&String::from_utf8_lossy(&bytes));
            let message = message.lines().next().unwrap_or_default();
            return Err(format!("{host} answers {status}: {}", base::text::head(message, 200)));
        }
        let response: Answer = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{host} answers with something else than vectors: {error}"))?;
        sort_vectors(response.data, texts.len()).map_err(|error| format!("{host} {error}"))
    }
}

/// Returns the vectors in the order of the texts, each scaled to length 1.
fn sort_vectors(items: Vec<Item>, count: usize) -> std::result::Result<Vec<Vec<f32>>, String> {
    if items.len() != count {
        return Err(format!("answers with {} vectors for {count} texts", items.len()));
    }
    let mut vectors = vec![Vec::new(); count];
    for (index, item) in items.into_iter().enumerate() {
        let slot = vectors.get_mut(item.index.unwrap_or(index));
        let is_valid =
            !item.embedding.is_empty() && item.embedding.iter().all(|value| value.is_finite());
        match slot {
            Some(slot) if slot.is_empty() && is_valid => *slot = normalize(item.embedding),
            Some(_) | None => return Err("answers with vectors that cannot be used".to_owned()),
        }
    }
    Ok(vectors)
}

impl Embedder for EmbeddingServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
    ) -> BoxFuture<'a, std::result::Result<Vec<Vec<f32>>, String>> {
        Box::pin(self.ask(texts))
    }

    fn min_similarity(&self) -> f32 {
        0.3
    }
}
