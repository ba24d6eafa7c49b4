//! Runs blocking work outside of the runtime's thread.

use base::failure::Failure;

/// Runs a function that may block for long, such as opening a provider whose key comes from a
/// command, on a separate thread.
pub async fn off_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|error| {
        Err(Failure::new(base::failure::FailureKind::Bug, "a task of g3 broke").because(error))
    })
}
