//! Work on many items, divided among the processors.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

/// Divides items into a chunk for each processor, of at least `min_items`, and runs a function on
/// all chunks at the same time, one of them on this thread. The results have the order of the items.
pub fn map_chunks<'i, T: Sync, R: Send>(
    items: &'i [T],
    min_items: usize,
    run: impl Fn(&'i [T]) -> R + Sync,
) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let size = items.len().div_ceil(processors).max(min_items).max(1);
    let mut chunks = items.chunks(size);
    let Some(first) = chunks.next() else { return Vec::new() };
    let run = &run;
    thread::scope(|scope| {
        let others: Vec<_> = chunks.map(|chunk| scope.spawn(move || run(chunk))).collect();
        let mut results = vec![run(first)];
        let others = others.into_iter().map(thread::ScopedJoinHandle::join);
        results.extend(others.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))));
        results
    })
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
        }
    }
}
