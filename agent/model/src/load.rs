//! Loads a model and creates contexts for it.

use base::failure::{OrFail, Result};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;

use crate::options::Serve;

/// Loads the model of a command line.
pub(crate) fn model(serve: &Serve) -> Result<(LlamaBackend, LlamaModel)> {
    let mut backend = LlamaBackend::init().or_fail(|| "cannot start llama.cpp")?;
    backend.void_logs();
    let gpu = LlamaModelParams::default().with_n_gpu_layers(u32::from(u16::MAX));
    let model = LlamaModel::load_from_file(&backend, &serve.model, &gpu)
        .or_fail(|| format!("llama.cpp cannot load `{}`", serve.model.display()))?;
    Ok((backend, model))
}

/// Creates a context with this many threads. Calls must not overlap: creating several contexts of
/// one model concurrently is unsound (see its `new_context`).
pub(crate) fn context<'m>(
    backend: &LlamaBackend,
    model: &'m LlamaModel,
    parameters: &LlamaContextParams,
    threads: u32,
) -> Result<LlamaContext<'m>> {
    let threads = i32::try_from(threads).unwrap_or(1);
    let parameters = parameters.clone().with_n_threads(threads).with_n_threads_batch(threads);
    model.new_context(backend, parameters).or_fail(|| "llama.cpp has no room for conversations")
}

/// Returns the texts of control tokens; in the text of others they are treated as plain text.
pub(crate) fn controls(model: &LlamaModel) -> Vec<String> {
    let vocab = model.vocab();
    let steering = vocab.tokens().filter(|token| vocab.is_control(*token));
    let texts = steering.map(|token| vocab.token_to_piece(token, true, None));
    texts.filter_map(|text| String::from_utf8(text).ok()).filter(|text| text.len() > 2).collect()
}
