//! What g3 itself does, for whoever looks into it: lines in a file or on stderr, and spans for a
//! collector. Off unless it is wanted.
//!
//! Modules say what they do with the macros of `tracing`, under the targets of [`TARGETS`]. Only
//! these are heard: other crates would tell what is in messages. Nobody puts words of people,
//! models, files or servers into a field.

mod levels;
mod lines;
#[cfg_attr(not(feature = "otel"), path = "without_otel.rs")]
mod otel;

use std::path::{Path, PathBuf};
use std::time::Instant;

use base::failure::{Failure, Result};
use base::files::Journal;
use tracing_subscriber::layer::SubscriberExt;

use lines::{Lines, Out};

/// The variable that says how much is told.
const LEVEL: &str = "G3_LOG";
/// The variables by which a collector is named.
const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What may be told, by its target.
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

/// What is wanted, from flags and configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The file that lines are appended to.
    pub file: Option<PathBuf>,
    /// How much is told, unless `G3_LOG` says it.
    pub level: Option<String>,
}

/// The trace of this process.
pub(crate) struct Trace {
    begun: Instant,
    export: Option<otel::Export>,
}

/// Begins to trace, where that is wanted; from then on it holds for the whole process. The failure
/// says what is wrong with the wish.
pub(crate) fn begin(wanted: &Wanted, mode: &str, cwd: &Path) -> Result<Trace> {
    let begun = Instant::now();
    let said = std::env::var(LEVEL).ok().filter(|text| !text.trim().is_empty());
    let out = match (&wanted.file, &said) {
        (Some(file), _) => Some(Out::File(open(file)?)),
        (None, Some(_)) => Some(Out::Stderr),
        (None, None) => None,
    };
    let export = otel::Export::from_env()?;
    if out.is_none() && export.is_none() {
        return Ok(Trace { begun, export });
    }
    let levels = levels::parse(said.as_deref().or(wanted.level.as_deref()).unwrap_or("info"))?;
    let subscriber = tracing_subscriber::registry().with(levels).with(out.map(Lines::new));
    let subscriber = subscriber.with(export.as_ref().map(otel::Export::layer));
    // Who has set one before us is a test; it hears what it wants.
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
    Ok(Trace { begun, export })
}

fn open(file: &Path) -> Result<Journal> {
    Journal::open(file).map_err(|why| {
        Failure::usage(format!("cannot write the trace to {}", file.display()))
            .because(why)
            .hint("name a file that can be written: --trace-file FILE, or `file` in [trace]")
    })
}

impl Trace {
    /// The process ends so; what waits for a collector is sent, for a moment at most.
    pub(crate) fn over(self, done: Result<u8>) -> Result<u8> {
        let exit = done.as_ref().map_or_else(Failure::exit_code, |code| *code);
        let ms = self.begun.elapsed().as_millis() as u64;
        tracing::info!(target: "g3::process", exit, ms, "process ended");
        if let Some(lost) = self.export.and_then(otel::Export::finish) {
            crate::ui::say(&format!("warning: {lost}"));
        }
        done
    }
}
