//! The trace of g3: JSON lines in a file or on stderr, and spans for a collector. Off by default.
//!
//! Modules report what they do with the macros of `tracing`, under the targets of [`TARGETS`]; the
//! logs of libraries are not traced, because they contain messages. Lines contain the fields of
//! [`fields::ALLOWED`] only, and no field may contain text of people, models, files or servers.

mod fields;
mod filter;
mod json;
#[cfg_attr(not(feature = "otel"), path = "without_otel.rs")]
mod otel;
mod writer;

use std::path::{Path, PathBuf};
use std::time::Instant;

use base::clock::Clock;
use base::failure::{Failure, Result};
use base::files::Journal;
use base::redact::Redactor;
use tracing_subscriber::layer::SubscriberExt;

use writer::{TraceOutput, TraceWriter};

/// The variable with the log filter.
const LEVEL_VARIABLE: &str = "G3_LOG";
/// The variables that name a collector.
const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The targets that can be traced.
pub(crate) const TARGETS: [&str; 9] = [
    "g3::process",
    "g3::session",
    "g3::model",
    "g3::tool",
    "g3::gate",
    "g3::hook",
    "g3::mcp",
    "g3::lsp",
    "g3::desktop",
];

/// The trace that flags and configuration ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceOptions {
    /// The file to append lines to.
    pub file: Option<PathBuf>,
    /// The log filter, unless `G3_LOG` is set.
    pub level: Option<String>,
}

/// The trace of this process.
pub(crate) struct Trace {
    started: Instant,
    export: Option<otel::Export>,
}

/// Begins to trace the whole process, where that is wanted. A filter, file or collector that cannot
/// be used is an error.
pub(crate) fn begin(options: &TraceOptions, mode: &str, cwd: &Path) -> Result<Trace> {
    let started = Instant::now();
    let env_level = std::env::var(LEVEL_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let out = match (&options.file, &env_level) {
        (Some(file), _) => Some(TraceOutput::File(open(file)?)),
        (None, Some(_)) => Some(TraceOutput::Stderr),
        (None, None) => None,
    };
    let export = otel::Export::from_env()?;
    if out.is_none() && export.is_none() {
        return Ok(Trace { started, export });
    }
    let filter =
        filter::parse(env_level.as_deref().or(options.level.as_deref()).unwrap_or("info"))?;
    let lines = |out| json::layer(TraceWriter::new(out), Clock::from_env(), Redactor::from_env());
    let subscriber = tracing_subscriber::registry().with(filter).with(out.map(lines));
    let subscriber = subscriber.with(export.as_ref().map(otel::Export::layer));
    // Only a test has set one before.
    let _ = tracing::subscriber::set_global_default(subscriber);
    tracing::info!(
        target: "g3::process",
        version = env!("CARGO_PKG_VERSION"),
        mode,
        cwd = %cwd.display(),
        otel = export.is_some(),
        "process started"
    );
    if !otel::IS_BUILT && COLLECTOR.iter().any(|name| std::env::var_os(name).is_some()) {
        tracing::warn!(
            target: "g3::process",
            "a collector is named, but this g3 was built without the feature `otel`"
        );
    }
    Ok(Trace { started, export })
}

fn open(file: &Path) -> Result<Journal> {
    Journal::open(file).map_err(|error| {
        Failure::usage(format!("cannot write the trace to {}", file.display()))
            .because(error)
            .hint("name a file that can be written: --trace-file FILE, or `file` in [trace]")
    })
}

impl Trace {
    /// Traces the end of the process, and sends pending spans to the collector within its timeout.
    pub(crate) fn finish(self, result: Result<u8>) -> Result<u8> {
        let exit = result.as_ref().map_or_else(Failure::exit_code, |code| *code);
        let ms = self.started.elapsed().as_millis() as u64;
        tracing::info!(target: "g3::process", exit, ms, "process ended");
        if let Some(warning) = self.export.and_then(otel::Export::finish) {
            crate::ui::say(&format!("warning: {warning}"));
        }
        result
    }
}
