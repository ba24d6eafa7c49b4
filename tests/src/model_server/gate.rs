//! A gate that holds the pieces of a reply until a test lets them go.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Holds the pieces of a reply until a test lets them go, one by one. What comes before the
/// first piece (headers, the opening event) is not held; the closing event is. An answer that is
/// no stream is one piece.
#[derive(Clone, Debug, Default)]
pub struct ReplyGate(Arc<(Mutex<Doors>, Condvar)>);

#[derive(Debug, Default)]
struct Doors {
    opened: usize,
    reached: usize,
}

impl ReplyGate {
    /// Returns a closed gate.
    pub fn new() -> ReplyGate {
        ReplyGate::default()
    }

    /// Lets the next piece go.
    pub fn open(&self) {
        self.change(|doors| doors.opened = doors.opened.saturating_add(1));
    }

    /// Lets all pieces go.
    pub fn open_all(&self) {
        self.change(|doors| doors.opened = usize::MAX);
    }

    /// Waits until so many pieces (counted from 1) stand before the gate; panics after 20 s.
    pub fn wait_until_reached(&self, count: usize) {
        assert!(
            self.wait(|doors| doors.reached >= count),
            "the gate was not reached {count} times"
        );
    }

    /// Called by the server before each piece; false when nobody opened for two minutes.
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
