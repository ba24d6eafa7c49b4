//! `studio inbox`: what needs the user, over all sessions. On a terminal, permission requests are
//! answered in place.

use std::collections::BTreeSet;
use std::time::Duration;

use base::failure::{OrFail, Result};
use serde_json::json;
use studio_core::inbox::UserInbox;
use studio_core::session_view::SessionView;
use studio_core::standing;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::permission_prompt::PermissionPrompt;
use crate::commands::watch::TerminationSignals;
use crate::commands::{all_repositories, list};
use crate::report;
use crate::report::progress::SessionProgress;

/// How often an answer that was given elsewhere is looked for.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The command line of `inbox`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Show what needs you in all repositories in which studio has sessions
    #[arg(long, short = 'A')]
    pub all_repositories: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: Args) -> Result<u8> {
    if args.all_repositories {
        return run_everywhere(common);
    }
    let context = CommandContext::open(common)?;
    let views = views(&context)?;
    let inbox = UserInbox::of(&context.repository, &views, context.clock.now());
    if context.json {
        report::json_line(&inbox.json());
        return Ok(0);
    }
    if inbox.is_empty() {
        report::say("nothing needs you");
    }
    show_sessions(&context, &inbox)?;
    if inbox.questions.is_empty() {
        return Ok(0);
    }
    match answer_in_place(&context)? {
        Some(code) => Ok(code),
        None => {
            show_questions(&context, &inbox);
            Ok(0)
        }
    }
}

/// Shows what needs the user in each repository, under the command that goes there.
fn run_everywhere(common: &CommonArgs) -> Result<u8> {
    let (mut found, mut separator) = (Vec::new(), "");
    for repository in all_repositories::open(common) {
        let directory = repository.directory;
        let read = repository.context.and_then(|context| Ok((views(&context)?, context)));
        let (views, context) = match read {
            Ok(read) => read,
            Err(failure) => {
                report::say(&failure.sentence());
                found.push(json!({"directory": directory, "why": failure.sentence()}));
                continue;
            }
        };
        let inbox = UserInbox::of(&context.repository, &views, context.clock.now());
        if inbox.is_empty() {
            continue;
        }
        let mut json = inbox.json();
        json["directory"] = json!(directory);
        found.push(json);
        if !context.json {
            let cd = all_repositories::change_directory(&directory);
            report::out(&format!("{separator}{cd}"));
            separator = "\n";
            show_sessions(&context, &inbox)?;
            show_questions(&context, &inbox);
        }
    }
    if common.json {
        report::json_line(&json!({"schema": 1, "repositories": found}));
    } else if found.is_empty() {
        report::say("nothing needs you in any repository");
    }
    Ok(0)
}

fn show_sessions(context: &CommandContext, inbox: &UserInbox<'_>) -> Result<()> {
    if !inbox.conflicts.is_empty() {
        report::say(&report::inbox::conflicts(&inbox.conflicts));
    }
    for (title, group) in sections(inbox) {
        if !group.is_empty() {
            report::out(&format!("{title}:"));
            let group: Vec<SessionView> = group.iter().map(|view| (*view).clone()).collect();
            list::show(context, &group)?;
        }
    }
    Ok(())
}

fn show_questions(context: &CommandContext, inbox: &UserInbox<'_>) {
    if inbox.questions.is_empty() {
        return;
    }
    if sections(inbox).iter().any(|(_, group)| !group.is_empty()) {
        report::out("");
    }
    report::out(&report::inbox::questions(&inbox.questions, context.clock.now()));
}

/// Returns the lists of sessions, with their titles.
fn sections<'i, 'v>(inbox: &'i UserInbox<'v>) -> [(&'static str, &'i Vec<&'v SessionView>); 5] {
    [
        ("No event for 10 minutes or more", &inbox.quiet),
        ("Stalled", &inbox.stalled),
        ("Waiting for a rate limit", &inbox.parked),
        ("New", &inbox.unseen),
        ("Seen", &inbox.seen),
    ]
}

fn views(context: &CommandContext) -> Result<Vec<SessionView>> {
    let (views, unreadable) = context.sessions()?;
    for (_, failure) in unreadable {
        report::say(&format!("{}: studio doctor", failure.sentence()));
    }
    let mut views: Vec<SessionView> = views.into_iter().map(|view| context.salvage(view)).collect();
    standing::compare_pairs(&context.repository, &mut views);
    Ok(views)
}

/// Shows one request after the other until all are answered or skipped. Returns the exit code, or
/// `None` in a non-interactive run.
fn answer_in_place(context: &CommandContext) -> Result<Option<u8>> {
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let _guard = runtime.enter();
    let Some(mut prompt) = PermissionPrompt::new() else { return Ok(None) };
    let mut signals = TerminationSignals::listen()?;
    let mut progress = SessionProgress::new(context.json);
    let mut done = BTreeSet::new();
    loop {
        let (views, _) = context.sessions()?;
        let inbox = UserInbox::of(&context.repository, &views, context.clock.now());
        let is_open = |id: &str, number| !done.contains(&(id.to_owned(), number));
        let open = inbox.questions.iter().copied();
        let open =
            open.filter(|question| is_open(question.view.record.id.as_str(), question.number));
        prompt.update(open, "  [s] skip  [q] quit", &mut progress);
        let Some((id, number)) = prompt.shown().cloned() else { return Ok(Some(0)) };
        let key = runtime.block_on(async {
            tokio::select! {
                key = prompt.read_key() => Some(key),
                () = signals.recv() => None,
                () = tokio::time::sleep(REFRESH_INTERVAL) => Some('\0'),
            }
        });
        match key {
            None => return Ok(Some(130)),
            Some('q' | 'Q') => return Ok(Some(0)),
            Some('s' | 'S') => {
                done.insert((id.as_str().to_owned(), number));
            }
            Some(key @ ('y' | 'Y' | 'n' | 'N' | 'a' | 'A')) => {
                prompt.answer(context, key, &mut progress)?;
                done.insert((id.as_str().to_owned(), number));
            }
            Some(_) => {}
        }
    }
}
