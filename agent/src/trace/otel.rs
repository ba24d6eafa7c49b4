//! Spans for a collector, as OTLP over HTTP, configured by OpenTelemetry's variables.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base::failure::{Failure, Result};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData, SpanExporter};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

use super::COLLECTOR;
use provider::http;

/// Whether spans can be exported.
pub const IS_BUILT: bool = true;

/// How long g3 waits for a collector when it exits.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one request to it may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The export to a collector.
pub struct Export {
    provider: SdkTracerProvider,
    last_error: LastError,
}

/// Why spans did not arrive.
type LastError = Arc<Mutex<Option<String>>>;

impl Export {
    /// The export that the environment asks for, if any.
    pub fn from_env() -> Result<Option<Export>> {
        let is_set_to = |name: &str, expected: &str| {
            std::env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case(expected))
        };
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if !COLLECTOR.iter().any(is_set)
            || is_set_to("OTEL_SDK_DISABLED", "true")
            || is_set_to("OTEL_TRACES_EXPORTER", "none")
        {
            return Ok(None);
        }
        let last_error = LastError::default();
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_http();
        let exporter = exporter.with_http_client(ExportClient).with_protocol(protocol()?);
        let exporter = exporter.build().map_err(|error| {
            Failure::usage("the trace cannot be exported")
                .because(error)
                .hint("correct the OTEL_EXPORTER_OTLP_ variables, or OTEL_SDK_DISABLED=true")
        })?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(ErrorRecorder { exporter, last_error: last_error.clone() })
            .build();
        Ok(Some(Export { provider, last_error }))
    }

    /// The layer that exports spans.
    pub fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_tracer(self.provider.tracer("g3"))
    }

    /// Sends pending spans; returns a sentence if some were lost.
    pub fn finish(self) -> Option<String> {
        let result = self.provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT);
        let error = base::sync::lock(&self.last_error).take();
        let timeout_text = || format!("it was not sent within {} s", SHUTDOWN_TIMEOUT.as_secs());
        let error = error.or_else(|| result.err().map(|_| timeout_text()))?;
        Some(format!("the exported trace is not complete: {error}"))
    }
}

/// The encoding of spans: protobuf, unless JSON is configured.
fn protocol() -> Result<Protocol> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    let value = names.iter().find_map(|name| std::env::var(name).ok());
    match value.as_deref().unwrap_or_default().trim() {
        "" | "http/protobuf" => Ok(Protocol::HttpBinary),
        "http/json" => Ok(Protocol::HttpJson),
        other => Err(Failure::usage(format!("g3 cannot export its trace by `{other}`")).hint(
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or http/json, and a collector's \
                   port for HTTP (4318)",
        )),
    }
}

/// The resource of our spans: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence.
fn resource() -> Resource {
    let has_service_name = std::env::var_os("OTEL_SERVICE_NAME").is_some()
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES")
            .is_ok_and(|attributes| attributes.contains("service.name="));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    let resource = if has_service_name { resource } else { resource.with_service_name("g3") };
    resource.build()
}

/// Our HTTP client, on the exporter's thread.
#[derive(Debug)]
struct ExportClient;

#[async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(
        &self,
        request: Request<Bytes>,
    ) -> std::result::Result<Response<Bytes>, HttpError> {
        let request = request.map(|body| body.to_vec());
        // The user's variables name the address, so plain http is allowed.
        let send =
            async { tokio::time::timeout(REQUEST_TIMEOUT, http::send_short(request, true)).await };
        // The exporter's thread has no runtime.
        let runtime = base::runtime::current_thread()?;
        match runtime.block_on(send) {
            Ok(answer) => Ok(answer?.map(Bytes::from)),
            Err(_) => Err(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()).into()),
        }
    }
}

/// Records the errors of an exporter, which the SDK only logs.
#[derive(Debug)]
struct ErrorRecorder {
    exporter: opentelemetry_otlp::SpanExporter,
    last_error: LastError,
}

impl SpanExporter for ErrorRecorder {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        if let Err(error) = &result {
            let mut last = base::sync::lock(&self.last_error);
            *last = Some(error.to_string());
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
