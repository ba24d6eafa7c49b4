//! The id of the running tool call; permission questions name it.

use std::sync::atomic::{AtomicU64, Ordering};

tokio::task_local! {
    /// The id of the running call.
    static CALL_ID: String;
}

/// Runs the work of a call. Inside the work of another call, keeps the id of the outer call, which
/// is the one the user sees.
pub(crate) async fn with_call_id<T>(call: &str, work: impl Future<Output = T>) -> T {
    let id = CALL_ID.try_with(Clone::clone).unwrap_or_else(|_| call.to_owned());
    CALL_ID.scope(id, work).await
}

/// Returns the id of the running call, or a new number outside of calls.
pub fn call_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CALL_ID
        .try_with(Clone::clone)
        .unwrap_or_else(|_| format!("ask-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}
