//! `g3 TASK`: one turn of the user, then the end.

use std::sync::Arc;

use base::event::Status;
use base::failure::Result;

use super::interrupt::{self, Interrupts};
use crate::gate::Asker;
use crate::message::{Message, Role};
use crate::prompt::template;
use crate::run::ends::tell_failure;
use crate::run::{Settings, Which, Work};
use crate::ui::Bus;

/// Runs one task; the failure has been told as an event already.
pub async fn run(
    settings: &Settings,
    which: &Which,
    task: &str,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<Status> {
    let interrupts = Interrupts::listen()?;
    let tokens = interrupts.begin();
    let mut work = Work::begin(settings, which, bus.clone(), asker)?;
    let message = Message::text(Role::User, template(task));
    let ended = tokio::select! {
        ended = work.turn(message, tokens.cancel.clone()) => ended,
        () = tokens.end.cancelled() => {
            let failure = interrupt::failure();
            tell_failure(&bus, &failure);
            return Err(failure);
        }
    };
    tokio::select! {
        () = work.leave().close() => {}
        () = tokens.end.cancelled() => {}
    }
    match ended.failure {
        Some(failure) => Err(failure),
        None => Ok(ended.status),
    }
}
