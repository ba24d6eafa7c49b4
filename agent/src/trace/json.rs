//! The trace as JSON lines: `tracing-subscriber`'s JSON format, for the allowed fields only.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use base::clock::Clock;
use base::redact::Redactor;
use tracing::field::{Field, FieldSet, Value};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::{FmtSpan, Format, Json, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::{ALLOWED, AllowedFields, FieldValue, SpanFields};

/// A layer that writes a line for every event, and for the beginning and the end of every span.
pub(crate) fn layer<S, W>(writer: W, clock: Clock, redactor: Redactor) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let redactor = Arc::new(redactor);
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .with_span_list(false)
        .with_timer(Timestamp(clock))
        .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
        .with_writer(writer)
        .fmt_fields(SpanFields { redactor: redactor.clone() })
        .map_event_format(|json| AllowedEvents { json, redactor });
    SpanStarts::default().and_then(lines)
}

/// Times as RFC 3339 in UTC.
struct Timestamp(Clock);

impl FormatTime for Timestamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&self.0.stamp())
    }
}

/// When a span began, and its number.
struct SpanStart {
    id: u64,
    parent_id: Option<u64>,
    started: Instant,
}

/// Numbers spans, because the ids of `tracing` are used again.
#[derive(Default)]
struct SpanStarts {
    last_id: AtomicU64,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanStarts {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent();
        let parent_id = parent.and_then(|it| it.extensions().get::<SpanStart>().map(|it| it.id));
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        span.extensions_mut().insert(SpanStart { id, parent_id, started: Instant::now() });
    }
}

/// Passes on events to the JSON format with their allowed fields, and adds the process and the span.
struct AllowedEvents {
    json: Format<Json, Timestamp>,
    redactor: Arc<Redactor>,
}

impl<S, N> FormatEvent<S, N> for AllowedEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut allowed = AllowedFields::new(&self.redactor);
        event.record(&mut allowed);
        allowed.set("pid", FieldValue::Unsigned(std::process::id().into()));
        if let Some(span) = context.parent_span()
            && let Some(start) = span.extensions().get::<SpanStart>()
        {
            allowed.set("span_id", FieldValue::Unsigned(start.id));
            if metadata.is_span() {
                if let Some(id) = start.parent_id {
                    allowed.set("parent_id", FieldValue::Unsigned(id));
                }
                let ms = FieldValue::Unsigned(start.started.elapsed().as_millis() as u64);
                allowed.set("ms", ms);
            }
        }
        let names = FieldSet::new(&ALLOWED, metadata.callsite());
        let fields: Vec<Field> = names.iter().collect();
        let values: [(&Field, Option<&dyn Value>); ALLOWED.len()] = std::array::from_fn(|index| {
            (&fields[index], allowed.values()[index].as_ref().map(FieldValue::as_value))
        });
        let values = names.value_set(&values);
        let event = match event.parent() {
            Some(parent) => Event::new_child_of(parent.clone(), metadata, &values),
            None => Event::new(metadata, &values),
        };
        self.json.format_event(context, writer, &event)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Mutex;

    use serde_json::json;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Keeps what is written to it.
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that `work` leaves in the trace.
    fn traced(work: impl FnOnce()) -> Vec<serde_json::Value> {
        let buffer = Buffer::default();
        let (writer, clock) =
            (buffer.clone(), Clock::fixed("2026-01-02T10:00:00Z".parse().unwrap()));
        let layer = layer(move || writer.clone(), clock, Redactor::from_env());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
        let bytes = buffer.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn only_allowed_fields_are_written() {
        let lines = traced(|| {
            let prompt = "private words";
            let span = tracing::info_span!("chat", prompt, otel.name = "x", g3.stop = prompt.len());
            let _entered = span.enter();
            tracing::warn!(target: "g3::model", prompt, why = "busy", "retry");
        });
        let pid = std::process::id();
        assert_eq!(
            lines[1],
            json!({
                "timestamp": "2026-01-02T10:00:00.000Z",
                "level": "WARN",
                "target": "g3::model",
                "fields": {"message": "retry", "pid": pid, "span_id": 1, "why": "busy"},
                "span": {"name": "chat", "g3.stop": 13},
            })
        );
        assert_eq!(lines.len(), 3);
        for line in &lines {
            assert!(!line.to_string().contains("private words"), "{line}");
        }
    }

    #[test]
    fn lines_of_spans_name_their_parent_and_have_later_fields() {
        let lines = traced(|| {
            let turn = tracing::info_span!("invoke_agent", g3.status = tracing::field::Empty);
            turn.in_scope(|| drop(tracing::info_span!("chat")));
            turn.record("g3.status", "done");
        });
        let facts: Vec<_> = lines
            .iter()
            .map(|line| {
                let fields = &line["fields"];
                let name = line["span"]["name"].as_str().unwrap();
                (
                    name,
                    fields["message"].as_str().unwrap(),
                    &fields["span_id"],
                    &fields["parent_id"],
                )
            })
            .collect();
        let (one, two, none) = (json!(1), json!(2), json!(null));
        assert_eq!(
            facts,
            [
                ("invoke_agent", "new", &one, &none),
                ("chat", "new", &two, &one),
                ("chat", "close", &two, &one),
                ("invoke_agent", "close", &one, &none),
            ]
        );
        assert_eq!(lines[0]["span"]["g3.status"], none);
        assert_eq!(lines[3]["span"]["g3.status"], "done");
        assert!(lines[3]["fields"]["ms"].is_u64());
    }

    #[test]
    fn long_texts_are_cut() {
        let lines = traced(|| tracing::info!(cwd = "x".repeat(2000), "process started"));
        assert_eq!(lines[0]["fields"]["cwd"].as_str().unwrap().len(), 500);
    }
}
