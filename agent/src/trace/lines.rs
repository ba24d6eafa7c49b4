//! The trace as JSON, one object a line: when a span begins, when it ends, and what happens in it.

use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use base::clock::Clock;
use base::files::Journal;
use base::sandbox::redact::Redactor;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::ui;

/// The longest text of a field, in bytes.
const LONGEST: usize = 500;

/// Where lines go.
pub(crate) enum Out {
    /// Appended to a file, which other processes may append to as well.
    File(Journal),
    /// To the person at the terminal.
    Stderr,
}

/// Writes lines.
pub(crate) struct Lines {
    out: Mutex<Writer>,
    clock: Clock,
    spans: AtomicU64,
    redactor: Redactor,
}

struct Writer {
    out: Out,
    failed: bool,
}

/// A span that has not ended.
struct Open {
    number: u64,
    since: Instant,
    fields: Fields,
}

/// One line. docs/tracing.md has the words.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    pid: u32,
    level: &'a str,
    target: &'a str,
    phase: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    span: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
    fields: &'a Map<String, Value>,
}

impl Lines {
    /// Writes to this.
    pub(crate) fn new(out: Out) -> Lines {
        Lines {
            out: Mutex::new(Writer { out, failed: false }),
            clock: Clock::from_env(),
            spans: AtomicU64::new(1),
            redactor: Redactor::from_env(),
        }
    }

    fn line<'a>(
        &self,
        metadata: &Metadata<'a>,
        phase: &'a str,
        fields: &'a Map<String, Value>,
    ) -> Line<'a> {
        Line {
            time: self.clock.stamp(),
            pid: std::process::id(),
            level: metadata.level().as_str(),
            target: metadata.target(),
            phase,
            name: metadata.name(),
            span: None,
            parent: None,
            ms: None,
            fields,
        }
    }

    /// A line that cannot be written is lost; the run goes on, and that is said once.
    fn write(&self, line: &Line<'_>) {
        let mut writer = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, why) = match &mut writer.out {
            Out::Stderr => match serde_json::to_string(line) {
                Ok(text) => return ui::say(&text),
                Err(why) => (Path::new("stderr").to_owned(), why.to_string()),
            },
            Out::File(file) => match file.append(line) {
                Ok(()) => return,
                Err(why) => (file.path().to_owned(), why.to_string()),
            },
        };
        if !std::mem::replace(&mut writer.failed, true) {
            ui::say(&format!("warning: the trace in {} is not complete: {why}", path.display()));
        }
    }
}

fn number<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> Option<u64> {
    span.extensions().get::<Open>().map(|open| open.number)
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::new(&self.redactor);
        attributes.record(&mut fields);
        let number_here = self.spans.fetch_add(1, Ordering::Relaxed);
        self.write(&Line {
            span: Some(number_here),
            parent: span.parent().and_then(|parent| number(&parent)),
            ..self.line(span.metadata(), "begin", &fields.all)
        });
        let open = Open { number: number_here, since: Instant::now(), fields };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut open.fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::new(&self.redactor);
        event.record(&mut fields);
        let message = fields.all.shift_remove("message");
        let name = message.as_ref().and_then(Value::as_str);
        let line = self.line(event.metadata(), "event", &fields.all);
        let span = context.event_span(event).and_then(|span| number(&span));
        self.write(&Line { name: name.unwrap_or(line.name), span, ..line });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else { return };
        self.write(&Line {
            span: Some(open.number),
            parent: span.parent().and_then(|parent| number(&parent)),
            ms: Some(open.since.elapsed().as_millis() as u64),
            ..self.line(span.metadata(), "end", &open.fields.all)
        });
    }
}

/// The fields of a span or an event, clean.
struct Fields {
    all: Map<String, Value>,
    redactor: Redactor,
}

impl Fields {
    fn new(redactor: &Redactor) -> Fields {
        Fields { all: Map::new(), redactor: redactor.clone() }
    }

    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        // What only tells an exporter how to show a span.
        if !field.name().starts_with("otel.") {
            self.all.insert(field.name().to_owned(), value.into());
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = self.redactor.clean(base::text::head(value, LONGEST));
        self.put(field, text);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
