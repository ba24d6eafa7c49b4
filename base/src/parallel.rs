//! Work on many items, divided among the processors.

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
    let threads = processors().min(items.len() / min_items.max(1)).max(1);
    let size = items.len().div_ceil(threads * TURNS_PER_THREAD).max(1);
    let turns: Vec<&[T]> = items.chunks(size).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let done = std::iter::from_fn(|| {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let items: &[T] = turns.get(turn)?;
            Some((turn, items.iter().map(&run).collect::<Vec<R>>()))
        });
        done.collect::<Vec<_>>()
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        done.extend(others.into_iter().flat_map(joined));
        done
    });
    done.sort_by_key(|(turn, _)| *turn);
    done.into_iter().flat_map(|(_, results)| results).collect()
}

/// Divides items into a chunk for each processor, of at least `min_items`, and runs a function on
/// all chunks at the same time, one of them on this thread: for work that begins with something that
/// each thread needs for itself. The results have the order of the items.
pub fn map_chunks<'i, T: Sync, R: Send>(
    items: &'i [T],
    min_items: usize,
    run: impl Fn(&'i [T]) -> R + Sync,
) -> Vec<R> {
    let size = items.len().div_ceil(processors()).max(min_items).max(1);
    let mut chunks = items.chunks(size);
    let Some(first) = chunks.next() else { return Vec::new() };
    let run = &run;
    thread::scope(|scope| {
        let others: Vec<_> = chunks.map(|chunk| scope.spawn(move || run(chunk))).collect();
        let mut results = vec![run(first)];
        results.extend(others.into_iter().map(joined));
        results
    })
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
            let chunks = map_chunks(&items, min_items, <[usize]>::to_vec);
            assert!(chunks.iter().rev().skip(1).all(|chunk| chunk.len() >= min_items));
            assert_eq!(chunks.concat(), items);
            assert_eq!(map(&items, min_items, |item| *item), items);
        }
    }
}
