//! The event bus: distributes the events of a session to all sinks.

mod trace_events;

use std::sync::{Arc, Mutex};

use base::clock::Clock;
use base::event::{Event, EventKind};

/// A receiver of events.
pub trait EventSink: Send {
    /// Receives one event. Write errors of a sink are ignored so that the work continues.
    fn on_event(&mut self, event: &Event);

    /// Called after a question was answered: the terminal may be redrawn.
    fn on_question_answered(&mut self) {}
}

/// Numbers and timestamps events and sends them to all sinks.
pub struct Bus {
    clock: Clock,
    inner: Mutex<Inner>,
}

struct Inner {
    seq: u64,
    sinks: Vec<Box<dyn EventSink>>,
}

impl Bus {
    /// Creates a bus with these sinks.
    pub fn new(clock: Clock, sinks: Vec<Box<dyn EventSink>>) -> Arc<Bus> {
        Arc::new(Bus { clock, inner: Mutex::new(Inner { seq: 0, sinks }) })
    }

    /// Sends an event to all sinks.
    pub fn emit(&self, what: EventKind) {
        trace_events::event(&what);
        let mut inner = base::sync::lock(&self.inner);
        inner.seq += 1;
        let event = Event { seq: inner.seq, time: self.clock.stamp(), what };
        inner.sinks.iter_mut().for_each(|sink| sink.on_event(&event));
    }

    /// Notifies all sinks that a question was answered.
    pub fn on_question_answered(&self) {
        let mut inner = base::sync::lock(&self.inner);
        inner.sinks.iter_mut().for_each(|sink| sink.on_question_answered());
    }
}
