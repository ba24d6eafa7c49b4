//! The fields that a trace may contain. Every other field is left out, and texts are redacted and
//! shortened.

use std::fmt;
use std::sync::Arc;

use base::redact::Redactor;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FormatFields, FormattedFields};

/// The longest text of a field, in bytes.
const MAX_TEXT: usize = 500;

/// Every field that may be written, in the order of a line. A field that only tells an exporter how
/// to show a span (`otel.*`) is not here.
pub(crate) static ALLOWED: [&str; 70] = [
    // Of every line, of spans, of the ends of spans.
    "message",
    "pid",
    "span_id",
    "parent_id",
    "ms",
    // Spans, by OpenTelemetry's semantic conventions.
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.request.model",
    "gen_ai.request.max_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "gen_ai.tool.type",
    "server.address",
    "http.response.status_code",
    "error.type",
    // Spans, our own.
    "g3.provider",
    "g3.attempt",
    "g3.messages",
    "g3.request_id",
    "g3.stop",
    "g3.cost_usd",
    "g3.questions",
    "g3.status",
    "g3.ok",
    "g3.bytes",
    // g3::process
    "version",
    "mode",
    "cwd",
    "otel",
    "exit",
    // g3::session
    "session",
    "provider",
    "model",
    "n",
    "used",
    "limit",
    "before",
    "after",
    "results",
    "messages",
    "state",
    "round",
    "kind",
    "status",
    "turns",
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cost_usd",
    // g3::model
    "why",
    "after_ms",
    "attempt",
    // g3::gate
    "tool",
    "access",
    "decision",
    "by",
    "answer",
    // g3::hook, g3::mcp, g3::lsp
    "event",
    "program",
    "said",
    "server",
    "ok",
    "tools",
];

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum FieldValue {
    /// A text, redacted and shortened.
    Text(String),
    /// A number.
    Unsigned(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// Yes or no.
    Bool(bool),
}

impl FieldValue {
    /// The value as `tracing` takes it.
    pub(crate) fn as_value(&self) -> &dyn tracing::Value {
        match self {
            FieldValue::Text(text) => text,
            FieldValue::Unsigned(number) => number,
            FieldValue::Signed(number) => number,
            FieldValue::Float(number) => number,
            FieldValue::Bool(flag) => flag,
        }
    }
}

/// Collects the allowed fields of a span or an event.
pub(crate) struct AllowedFields<'a> {
    redactor: &'a Redactor,
    /// One for each name of [`ALLOWED`].
    values: [Option<FieldValue>; ALLOWED.len()],
}

impl<'a> AllowedFields<'a> {
    /// No fields yet.
    pub(crate) fn new(redactor: &'a Redactor) -> Self {
        AllowedFields { redactor, values: std::array::from_fn(|_| None) }
    }

    /// Sets a field, if it is allowed.
    pub(crate) fn set(&mut self, name: &str, value: FieldValue) {
        if let Some(index) = ALLOWED.iter().position(|allowed| *allowed == name) {
            self.values[index] = Some(value);
        }
    }

    /// The values, one for each name of [`ALLOWED`].
    pub(crate) fn values(&self) -> &[Option<FieldValue>; ALLOWED.len()] {
        &self.values
    }

    /// Adds the fields to a JSON object.
    fn add_to(self, object: &mut Map<String, Value>) -> Result<(), fmt::Error> {
        for (name, value) in ALLOWED.iter().zip(self.values) {
            if let Some(value) = value {
                let value = serde_json::to_value(value).map_err(|_| fmt::Error)?;
                object.insert((*name).to_owned(), value);
            }
        }
        Ok(())
    }
}

impl Visit for AllowedFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = self.redactor.clean(value);
        self.set(field.name(), FieldValue::Text(base::text::head(&text, MAX_TEXT).to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), FieldValue::Unsigned(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), FieldValue::Signed(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), FieldValue::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), FieldValue::Bool(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Formats the fields of spans as a JSON object of the allowed ones.
pub(crate) struct SpanFields {
    /// Removes secrets from texts.
    pub redactor: Arc<Redactor>,
}

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut allowed = AllowedFields::new(&self.redactor);
        fields.record(&mut allowed);
        let mut object = Map::new();
        allowed.add_to(&mut object)?;
        write!(writer, "{}", Value::Object(object))
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        let mut object: Map<String, Value> =
            serde_json::from_str(&current.fields).map_err(|_| fmt::Error)?;
        let mut allowed = AllowedFields::new(&self.redactor);
        fields.record(&mut allowed);
        allowed.add_to(&mut object)?;
        current.fields = Value::Object(object).to_string();
        Ok(())
    }
}
