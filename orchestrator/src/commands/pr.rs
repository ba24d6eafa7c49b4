//! `studio pr`: publishes a session as a pull or merge request, and brings reviews back.

use base::failure::{Failure, Result};
use serde_json::{Value, json};
use studio_core::forge::publish::{self, PublishOptions};
use studio_core::forge::record;
use studio_core::forge::sync::{self, Synced};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::send;
use crate::report;

/// The command line of `pr`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub command: Option<PrCommand>,
    /// Session (default: the only ready one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Remote to push to
    #[arg(long, value_name = "NAME", default_value = "origin")]
    pub remote: String,
    /// Title and description (default: written by a model)
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Also publish stopped, failed or crashed sessions
    #[arg(long)]
    pub force: bool,
    /// Allow lines that look like a private key or a token
    #[arg(long)]
    pub allow_secrets: bool,
}

/// What to do with requests that are open.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum PrCommand {
    /// Send new review comments and failed checks to the agents, and close merged sessions
    Sync(SyncArgs),
}

/// The command line of `pr sync`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SyncArgs {
    /// Session (default: all with a request)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Also send comments of people who cannot write to the repository
    #[arg(long)]
    pub all_authors: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    match &args.command {
        Some(PrCommand::Sync(args)) => run_sync(&context, args),
        None => run_publish(&context, args),
    }
}

fn run_publish(context: &CommandContext, args: &Args) -> Result<u8> {
    if args.message.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return Err(Failure::usage("the message is empty").hint("studio pr ID -m 'title'"));
    }
    let view = context.find(args.id.as_deref(), |state| *state == SessionState::Ready)?;
    let id = view.record.id.clone();
    let Some(_lock) = context.lock_with_timeout(&id)? else { return Err(busy(&view)) };
    let Some(_request_lock) = record::lock(context, &id)? else { return Err(busy(&view)) };
    let options = PublishOptions {
        remote: args.remote.clone(),
        message: args.message.clone(),
        force: args.force,
        allow_secrets: args.allow_secrets,
    };
    // The session may have changed before the lock was taken.
    let published = publish::publish(context, &context.view(&id)?, &options)?;
    let url = base::text::printable(&published.request.url);
    if context.json {
        report::json_line(&json!({
            "schema": 1, "id": id, "forge": published.record.project.forge,
            "number": published.request.number, "url": published.request.url,
            "branch": published.record.branch, "target": published.record.target,
            "commit": published.commit, "created": published.is_new, "pushed": published.is_pushed,
        }));
        return Ok(0);
    }
    published.notes.iter().for_each(|note| report::say(&format!("note: {note}")));
    let kind = published.record.project.forge.request_name();
    report::out(&match (published.is_new, published.is_pushed) {
        (true, _) => format!("opened {kind} {}: {url}", published.request.number),
        (false, true) => format!("updated {kind} {}: {url}", published.request.number),
        (false, false) => format!("{kind} {} is up to date: {url}", published.request.number),
    });
    report::say(&format!("reviews: studio pr sync {id}"));
    Ok(0)
}

fn run_sync(context: &CommandContext, args: &SyncArgs) -> Result<u8> {
    let views = match &args.id {
        Some(id) => vec![context.find(Some(id), |_| true)?],
        None => context.open_views()?,
    };
    let (mut results, mut first_failure) = (Vec::new(), None);
    for view in &views {
        match sync_one(context, view, args) {
            Ok(Some(result)) => results.push(result),
            Ok(None) if args.id.is_some() => {
                let id = &view.record.id;
                return Err(Failure::not_found(format!("session `{id}` has no request"))
                    .hint(format!("studio pr {id}")));
            }
            Ok(None) => {}
            Err(failure) => {
                report::say(&format!("{}: {failure}", view.record.id));
                first_failure = first_failure.or(Some(failure.exit_code()));
            }
        }
    }
    if context.json {
        report::json_line(&json!({"schema": 1, "requests": results}));
    } else if results.is_empty() && first_failure.is_none() {
        report::say("no session has a request: studio pr ID opens one");
    }
    Ok(first_failure.unwrap_or(0))
}

/// Brings the news of one request; `None` if the session has none.
fn sync_one(
    context: &CommandContext,
    view: &SessionView,
    args: &SyncArgs,
) -> Result<Option<Value>> {
    let id = &view.record.id;
    let Some(_lock) = record::lock(context, id)? else { return Err(busy(view)) };
    let Some(mut record) = record::read(context, id)? else { return Ok(None) };
    let Some(synced) = sync::fetch(context, view, &mut record, args.all_authors)? else {
        return Ok(None);
    };
    let count = synced.turn.as_ref().map_or(0, |turn| turn.ids.len());
    if let Some(turn) = &synced.turn {
        send::deliver(context, id, &turn.prompt)?;
        sync::confirm(context, view, &mut record)?;
    }
    if !context.json {
        print_synced(view, &synced, count);
    }
    Ok(Some(json!({
        "id": id, "number": synced.request.number, "url": synced.request.url,
        "state": state_name(&synced), "sent": count, "operation": synced.closed,
        "notes": synced.notes,
    })))
}

fn state_name(synced: &Synced) -> &'static str {
    synced.request.state.name()
}

fn print_synced(view: &SessionView, synced: &Synced, sent: usize) {
    let id = &view.record.id;
    for note in &synced.notes {
        report::say(&format!("note: {id}: {note}"));
    }
    match &synced.closed {
        Some(operation) => {
            report::out(&format!("{id} was merged on the forge; the session is closed"));
            report::say(&format!("undo: studio undo {operation}"));
        }
        None if sent > 0 => {
            let count = base::text::count(sent, "comment");
            report::out(&format!("{id} got {count}: studio logs {id} -f"));
        }
        None => report::out(&format!("{id} is {}, nothing new", state_name(synced))),
    }
}

fn busy(view: &SessionView) -> Failure {
    let id = &view.record.id;
    Failure::refused(format!("session `{id}` is in use"))
        .because("its agent or another command is at work on it")
        .hint(format!("studio status {id}"))
}
