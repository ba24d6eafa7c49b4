//! The tool call that is being carried out: questions of the gate name it.

use std::sync::atomic::{AtomicU64, Ordering};

tokio::task_local! {
    /// The id of the call that is being carried out.
    static CALL: String;
}

/// Work of a call. Where it works for another one, that is the call which the user knows.
pub(crate) async fn within<T>(call: &str, work: impl Future<Output = T>) -> T {
    let known = CALL.try_with(Clone::clone).unwrap_or_else(|_| call.to_owned());
    CALL.scope(known, work).await
}

/// The call that asks, or a number where no call is known.
pub fn call_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CALL.try_with(Clone::clone)
        .unwrap_or_else(|_| format!("ask-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}
