//! A gate that holds the chunks of a reply until a test releases them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Holds the chunks of a reply until a test releases them, one by one. Everything before the first
/// chunk (headers, the opening event) is not held; the closing event is. A response that is not a
/// stream is one chunk.
#[derive(Clone, Debug, Default)]
pub struct ReplyGate(Arc<(Mutex<Doors>, Condvar)>);

#[derive(Debug, Default)]
struct Doors {
    opened: usize,
    reached: usize,
}

impl ReplyGate {
    /// Creates a closed gate.
    pub fn new() -> ReplyGate {
        ReplyGate::default()
    }

    /// Releases the next chunk.
    pub fn open(&self) {
        self.change(|doors| doors.opened = doors.opened.saturating_add(1));
    }

    /// Releases all chunks.
    pub fn open_all(&self) {
        self.change(|doors| doors.opened = usize::MAX);
    }

    /// Waits until this many chunks have reached the gate; panics after 20 s.
    pub fn wait_until_reached(&self, count: usize) {
        assert!(
            self.wait(|doors| doors.reached >= count),
            "the gate was not reached {count} times"
        );
    }

    /// Called by the server before each chunk; returns `false` if the gate was not opened for two
    /// minutes.
    pub fn pass(&self) -> bool {
        let mut number = 0;
        self.change(|doors| {
            doors.reached += 1;
            number = doors.reached;
        });
        (0..6).any(|_| self.wait(|doors| doors.opened >= number))
    }

    fn change(&self, change: impl FnOnce(&mut Doors)) {
        change(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_all();
    }

    fn wait(&self, done: impl Fn(&Doors) -> bool) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        let mut doors = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !done(&doors) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            doors = self.0.1.wait_timeout(doors, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
