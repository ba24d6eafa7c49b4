//! What is shown, and where: the flags, and who hears the events for them.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use base::failure::{Failure, Result};
use clap::Args;

use crate::ui::ask::Terminal;
use crate::ui::json::JsonLines;
use crate::ui::plain::Plain;
use crate::ui::rich::Rich;
use crate::ui::{Bus, Sink};
use gate::Asker;

/// What is shown, and where.
#[derive(Clone, Debug, Default, Args)]
pub struct Show {
    /// Print events on stdout, one JSON object a line, and nothing else
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Write events into this file as well
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Print the model's words only
    #[arg(long)]
    quiet: bool,
}

impl Show {
    /// Who hears the events: stdout as JSON, or a terminal, or plain text; and a file.
    pub fn views(&self) -> Result<Vec<Box<dyn Sink>>> {
        let (out, err) = (std::io::stdout, std::io::stderr);
        let mut sinks: Vec<Box<dyn Sink>> = vec![if self.json {
            Box::new(JsonLines::new(out()))
        } else if self.quiet {
            Box::new(Plain::new(out(), None::<std::io::Stderr>))
        } else if out().is_terminal() {
            Box::new(Rich::new(out()))
        } else {
            Box::new(Plain::new(out(), Some(err())))
        }];
        if let Some(path) = &self.events {
            if path.as_os_str() == "-" {
                return Err(Failure::usage("--events takes a file").next("--json, for stdout"));
            }
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let file = file.map_err(|why| {
                Failure::usage(format!("cannot write events to {}", path.display())).because(why)
            })?;
            sinks.push(Box::new(JsonLines::new(file)));
        }
        Ok(sinks)
    }

    /// The person at the terminal, when there is one to ask.
    pub fn asker(&self, bus: &Arc<Bus>) -> Option<Arc<dyn Asker>> {
        let here = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let terminal = || -> Arc<dyn Asker> { Arc::new(Terminal::new(bus.clone())) };
        (here && !self.json).then(terminal)
    }
}
