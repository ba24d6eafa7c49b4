//! Spans for a collector, as OTLP over HTTP; the variables of OpenTelemetry say where it is.

use std::sync::{Arc, Mutex, PoisonError};
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

/// How long the end of g3 may wait for a collector.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long one message to it may take.
const MESSAGE: Duration = Duration::from_secs(10);

/// What is sent to a collector.
pub struct Export {
    provider: SdkTracerProvider,
    lost: Lost,
}

/// Why spans did not arrive.
type Lost = Arc<Mutex<Option<String>>>;

impl Export {
    /// The export that the environment asks for.
    pub fn from_env() -> Result<Option<Export>> {
        let says = |name: &str, wanted: &str| {
            std::env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case(wanted))
        };
        let is_named = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if !COLLECTOR.iter().any(is_named)
            || says("OTEL_SDK_DISABLED", "true")
            || says("OTEL_TRACES_EXPORTER", "none")
        {
            return Ok(None);
        }
        let lost = Lost::default();
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_http();
        let exporter = exporter.with_http_client(Door).with_protocol(protocol()?);
        let exporter = exporter.build().map_err(|why| {
            Failure::usage("the trace cannot be exported")
                .because(why)
                .hint("correct the OTEL_EXPORTER_OTLP_ variables, or OTEL_SDK_DISABLED=true")
        })?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(Noticing { exporter, lost: lost.clone() })
            .build();
        Ok(Some(Export { provider, lost }))
    }

    /// Hears spans.
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

    /// Sends what waits; gives a sentence when something was lost.
    pub fn finish(self) -> Option<String> {
        let ended = self.provider.shutdown_with_timeout(GOODBYE);
        let why = self.lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        let late = || format!("it was not sent within {} s", GOODBYE.as_secs());
        let why = why.or_else(|| ended.err().map(|_| late()))?;
        Some(format!("the exported trace is not complete: {why}"))
    }
}

/// How spans are written: protobuf, unless JSON is asked for.
fn protocol() -> Result<Protocol> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    let said = names.iter().find_map(|name| std::env::var(name).ok());
    match said.as_deref().unwrap_or_default().trim() {
        "" | "http/protobuf" => Ok(Protocol::HttpBinary),
        "http/json" => Ok(Protocol::HttpJson),
        other => Err(Failure::usage(format!("g3 cannot export its trace by `{other}`")).hint(
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or http/json, and a collector's \
                   port for HTTP (4318)",
        )),
    }
}

/// Who we are for a collector: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first.
fn resource() -> Resource {
    let names_us = std::env::var_os("OTEL_SERVICE_NAME").is_some()
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES")
            .is_ok_and(|attributes| attributes.contains("service.name="));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    let resource = if names_us { resource } else { resource.with_service_name("g3") };
    resource.build()
}

/// Our own HTTP client, on the exporter's own thread.
#[derive(Debug)]
struct Door;

#[async_trait]
impl HttpClient for Door {
    async fn send_bytes(
        &self,
        request: Request<Bytes>,
    ) -> std::result::Result<Response<Bytes>, HttpError> {
        let request = request.map(|body| body.to_vec());
        // The user's own variables name the address, so that it may be plain http.
        let sent = async { tokio::time::timeout(MESSAGE, http::once(request, true)).await };
        // That thread has no runtime.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(sent) {
            Ok(answer) => Ok(answer?.map(Bytes::from)),
            Err(_) => Err(format!("no answer within {} s", MESSAGE.as_secs()).into()),
        }
    }
}

/// Notices what does not arrive: the SDK would only log it.
#[derive(Debug)]
struct Noticing {
    exporter: opentelemetry_otlp::SpanExporter,
    lost: Lost,
}

impl SpanExporter for Noticing {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.exporter.export(batch).await;
        if let Err(why) = &sent {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            *lost = Some(why.to_string());
        }
        sent
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
