//! Work on many items, divided among the processors.

use std::convert::Infallible;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

/// How often a thread of [`map`] takes further items, about: some items take longer than others, and
/// some processors are busy with other work.
const TURNS_PER_THREAD: usize = 8;

/// Maps all items on several threads, one of them this thread, and at most one for each `min_items`
/// items. The results have the order of the items.
pub fn map<'i, T: Sync, R: Send>(
    items: &'i [T],
    min_items: usize,
    run: impl Fn(&'i T) -> R + Sync,
) -> Vec<R> {
    let Ok(results) = map_with(items, min_items, || Ok::<_, Infallible>(()), |(), item| run(item));
    results
}

/// Like [`map`], for work that needs something which each thread makes for itself; fails if one of
/// them cannot.
pub fn map_with<'i, T: Sync, S, R: Send, E: Send>(
    items: &'i [T],
    min_items: usize,
    make: impl Fn() -> Result<S, E> + Sync,
    run: impl Fn(&mut S, &'i T) -> R + Sync,
) -> Result<Vec<R>, E> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let threads = processors().min(items.len() / min_items.max(1)).max(1);
    let size = items.len().div_ceil(threads * TURNS_PER_THREAD).max(1);
    let turns: Vec<&[T]> = items.chunks(size).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut own = make()?;
        let mut done: Vec<(usize, Vec<R>)> = Vec::new();
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let Some(items) = turns.get(turn) else { return Ok(done) };
            done.push((turn, items.iter().map(|item| run(&mut own, item)).collect()));
        }
    };
    let done: Result<Vec<_>, E> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let first = work();
        [first].into_iter().chain(others.into_iter().map(joined)).collect()
    });
    let mut done: Vec<(usize, Vec<R>)> = done?.into_iter().flatten().collect();
    done.sort_by_key(|(turn, _)| *turn);
    Ok(done.into_iter().flat_map(|(_, results)| results).collect())
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns the result of a thread, or continues its panic.
fn joined<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_the_order_is_kept() {
        for (count, min_items) in [(0, 1), (1, 1), (5, 0), (7, 3), (1000, 1), (1000, 5000)] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(map(&items, min_items, |item| *item), items);
            let made = AtomicUsize::new(0);
            let make = || Ok::<_, ()>(made.fetch_add(1, Ordering::Relaxed));
            let results = map_with(&items, min_items, make, |_, item| *item);
            assert_eq!(results.as_ref(), Ok(&items));
            let threads = made.into_inner();
            assert!(threads <= processors().min(items.len()), "{threads}");
            assert!(threads <= 1 || items.len() >= threads * min_items, "{threads}");
            let failed = map_with(&items, min_items, || Err::<(), _>("no"), |(), item| *item);
            assert_eq!(failed, if items.is_empty() { Ok(Vec::new()) } else { Err("no") });
        }
    }
}
