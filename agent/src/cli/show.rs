//! The output flags, and the event sinks and the asker that they select.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use base::failure::{Failure, Result};
use clap::Args;

use crate::ui::ask::TerminalAsker;
use crate::ui::json::JsonLines;
use crate::ui::plain_output::PlainOutput;
use crate::ui::rich_output::RichOutput;
use agent_core::bus::{Bus, EventSink};
use gate::Asker;

/// The output flags.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ShowOptions {
    /// Print only events on stdout, one JSON object per line
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Also write events to this file
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Print only the text of the model
    #[arg(long)]
    quiet: bool,
}

impl ShowOptions {
    /// Returns the event sinks: JSON, rich or plain output on stdout, and the file of `--events`.
    pub(crate) fn sinks(&self) -> Result<Vec<Box<dyn EventSink>>> {
        let (out, err) = (std::io::stdout, std::io::stderr);
        let mut sinks: Vec<Box<dyn EventSink>> = vec![if self.json {
            Box::new(JsonLines::new(out()))
        } else if self.quiet {
            Box::new(PlainOutput::new(out(), None::<std::io::Stderr>))
        } else if out().is_terminal() {
            Box::new(RichOutput::new(out()))
        } else {
            Box::new(PlainOutput::new(out(), Some(err())))
        }];
        if let Some(path) = &self.events {
            if path.as_os_str() == "-" {
                return Err(Failure::usage("--events requires a file").hint("--json, for stdout"));
            }
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let file = file.map_err(|error| {
                Failure::usage(format!("cannot write events to {}", path.display())).because(error)
            })?;
            sinks.push(Box::new(JsonLines::new(file)));
        }
        Ok(sinks)
    }

    /// Returns an asker if stdin and stderr are a terminal and `--json` is not set.
    pub(crate) fn asker(&self, bus: &Arc<Bus>) -> Option<Arc<dyn Asker>> {
        let is_interactive = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let terminal = || -> Arc<dyn Asker> { Arc::new(TerminalAsker::new(bus.clone())) };
        (is_interactive && !self.json).then(terminal)
    }
}
