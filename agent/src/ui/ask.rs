//! Questions of the gate to a person at the terminal.

use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::event::What;
use base::text::printable;
use futures_util::future::BoxFuture;

use super::Bus;
use crate::gate::{Answer, Asker, Question};

tokio::task_local! {
    /// The id of the call that is being carried out.
    static CALL: String;
}

/// The answers that are offered.
pub const OPTIONS: [&str; 3] = ["once", "always", "no"];

/// The event for a question.
pub fn event(id: &str, question: &Question) -> What {
    let what = format!("{} wants to {}, and {}", question.tool, question.what, question.why);
    let options = OPTIONS.iter().map(|option| (*option).to_owned()).collect();
    What::Ask { id: id.to_owned(), what, options }
}

/// Work of a call. Where it works for another one, that is the call which the user knows.
pub async fn within<T>(call: &str, work: impl Future<Output = T>) -> T {
    let known = CALL.try_with(Clone::clone).unwrap_or_else(|_| call.to_owned());
    CALL.scope(known, work).await
}

/// The call that asks, or a number where no call is known.
pub fn call_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CALL.try_with(Clone::clone)
        .unwrap_or_else(|_| format!("ask-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Asks on the terminal, one question at a time.
#[derive(Default)]
pub struct Terminal {
    bus: OnceLock<Arc<Bus>>,
    turn: tokio::sync::Mutex<()>,
}

impl Terminal {
    /// A terminal that tells questions to this bus as well.
    pub fn new(bus: Arc<Bus>) -> Terminal {
        Terminal { bus: OnceLock::from(bus), turn: tokio::sync::Mutex::default() }
    }
}

/// Set when the question is dropped, so that its thread stops reading the user's next words.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Asker for Terminal {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            if let Some(bus) = self.bus.get() {
                bus.tell(event(&call_id(), question));
            }
            let text = format!(
                "{} wants to {}\n  ({})\nAllow? [y]es, [a]lways in this session, [N]o: ",
                printable(&question.tool),
                printable(&question.what),
                printable(&question.why)
            );
            let dropped = Arc::new(AtomicBool::new(false));
            let _guard = Dropped(dropped.clone());
            let answer = tokio::task::spawn_blocking(move || {
                let _ = std::io::stderr().write_all(text.as_bytes());
                read_line(&dropped)
            });
            match answer.await.ok().flatten().as_deref().map(str::trim) {
                Some("y" | "yes" | "Y") => Answer::Once,
                Some("a" | "always" | "A") => Answer::Always,
                Some(_) | None => Answer::No,
            }
        })
    }
}

/// A line from the terminal; `None` at its end or when nobody waits for it any more.
fn read_line(dropped: &AtomicBool) -> Option<String> {
    let stdin = std::io::stdin();
    let tick = rustix::event::Timespec::try_from(Duration::from_millis(100)).ok()?;
    while !dropped.load(Ordering::Relaxed) {
        let mut fds =
            [rustix::event::PollFd::from_borrowed_fd(stdin.as_fd(), rustix::event::PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&tick)).is_ok_and(|ready| ready > 0) {
            let mut line = String::new();
            let read = stdin.lock().read_line(&mut line).ok()?;
            return (read > 0).then_some(line);
        }
    }
    None
}
