//! Events on their way: whatever happens in a session is told once and reaches every sink.

mod trace_events;

use std::sync::{Arc, Mutex, PoisonError};

use base::clock::Clock;
use base::event::{Event, EventKind};

/// Somebody who hears events.
pub trait EventSink: Send {
    /// Hears one event. A sink that cannot write stays silent: the work goes on.
    fn hear(&mut self, event: &Event);

    /// A question was answered: the terminal may be drawn on again.
    fn answered(&mut self) {}
}

/// Numbers and dates events, and hands them to every sink.
pub struct Bus {
    clock: Clock,
    inner: Mutex<Inner>,
}

struct Inner {
    seq: u64,
    sinks: Vec<Box<dyn EventSink>>,
}

impl Bus {
    /// A bus with these sinks.
    pub fn new(clock: Clock, sinks: Vec<Box<dyn EventSink>>) -> Arc<Bus> {
        Arc::new(Bus { clock, inner: Mutex::new(Inner { seq: 0, sinks }) })
    }

    /// Something happened.
    pub fn emit(&self, what: EventKind) {
        trace_events::event(&what);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.seq += 1;
        let event = Event { seq: inner.seq, time: self.clock.stamp(), what };
        inner.sinks.iter_mut().for_each(|sink| sink.hear(&event));
    }

    /// A question was answered.
    pub fn answered(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sinks.iter_mut().for_each(|sink| sink.answered());
    }
}
