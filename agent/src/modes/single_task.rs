//! `g3 TASK`: runs one turn and exits.

use std::sync::Arc;

use base::event::{EventKind, NoticeLevel, RunStatus};
use base::failure::Result;

use super::attachments;
use super::interrupt::{self, Interrupts};
use crate::ui::terminal::QuietInput;
use agent_core::bus::Bus;
use agent_core::prompt::template;
use agent_core::run::outcome::report_failure;
use agent_core::run::{AgentSession, AgentSettings, SessionSelector};
use gate::Asker;
use provider::message::Image;

/// Runs one task with these images. A failure has already been emitted as an event.
pub(crate) async fn run(
    settings: &AgentSettings,
    selector: &SessionSelector,
    (task, pictures): (&str, Vec<Image>),
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<RunStatus> {
    let interrupts = Interrupts::listen()?;
    let tokens = interrupts.begin();
    let mut work = AgentSession::begin(settings, selector, bus.clone(), asker)?;
    let attached = attachments::message(template(task), pictures, &settings.cwd);
    for text in attached.notes {
        bus.emit(EventKind::Notice { level: NoticeLevel::Info, text });
    }
    let message = attached.message;
    let _quiet = QuietInput::begin();
    let ended = tokio::select! {
        ended = work.turn(message, tokens.cancel.clone()) => ended,
        () = tokens.end.cancelled() => {
            let failure = interrupt::failure();
            report_failure(&bus, &failure);
            return Err(failure);
        }
    };
    tokio::select! {
        () = work.shutdown().finish() => {}
        () = tokens.end.cancelled() => {}
    }
    let status = ended.status;
    ended.into_failure().map_or(Ok(status), Err)
}
