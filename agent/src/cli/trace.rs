//! The trace flags, and the start of a trace from flags, environment and configuration.

use std::path::PathBuf;

use base::config::Config;
use base::failure::Result;
use clap::Args;

use super::GlobalArgs;
use super::settings::{directory, load};
use crate::trace::{self, Trace, TraceOptions};
use gate::paths::expand_home;

/// The trace flags.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TraceArgs {
    /// Append a trace as JSON lines to this file (level: G3_LOG)
    #[arg(long, value_name = "FILE")]
    trace_file: Option<PathBuf>,
}

/// Starts the trace of a mode if flags, environment or configuration ask for one.
pub(crate) fn begin(common: &GlobalArgs, config: &Config, mode: &str) -> Result<Trace> {
    let cwd = directory(common)?;
    let from_flag = common.trace.trace_file.as_ref();
    let from_flag = from_flag.map(|file| std::env::current_dir().unwrap_or_default().join(file));
    let configured = || Some(cwd.join(expand_home(&config.trace.file.as_ref()?.to_string_lossy())));
    let options =
        TraceOptions { file: from_flag.or_else(configured), level: config.trace.level.clone() };
    trace::begin(&options, mode, &cwd)
}

/// Like [`begin`], for a mode that works in many directories: the configuration of the directory in
/// which it was started applies.
pub(crate) fn begin_anywhere(common: &GlobalArgs, mode: &str) -> Result<Trace> {
    // A configuration error is reported by the session that needs the configuration.
    let config = directory(common).and_then(|cwd| load(common, &cwd));
    begin(common, &config.map(|loaded| loaded.config).unwrap_or_default(), mode)
}
