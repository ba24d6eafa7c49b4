//! Work that blocks, away from the thread of the runtime.

use base::failure::Failure;

/// Does something that may take long without a pause, such as opening a provider whose key comes from
/// a command, beside the runtime's own thread.
pub async fn off_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|why| {
        Err(Failure::new(base::failure::FailureKind::Bug, "a task of g3 broke").because(why))
    })
}
