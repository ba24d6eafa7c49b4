//! `studio review`: hunks by risk, with decisions and comments; on a terminal, in an editor, as text
//! and as JSON.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::{accept, editor, review_terminal, send};
use crate::report;
use studio_core::interrupt::Interrupt;
use studio_core::landing::{Landed, LandingOptions, Rejection};
use studio_core::review::since::EarlierState;
use studio_core::review::{self, Review, prompt, text_format};
use studio_core::seen;
use studio_core::session::last_shown;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_git::landing_history;

/// The command line of `review`.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Sessions to review (default: all ready ones)
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Show only the hunks that are new since your last look, or since the agent's last turn
    #[arg(long, value_enum, value_name = "WHEN")]
    pub since: Option<SinceArg>,
    /// Print the hunks as plain text
    #[arg(long, group = "output")]
    pub plain: bool,
    /// With --plain: also print the lines of mechanical hunks
    #[arg(long, requires = "plain")]
    pub all: bool,
    /// Open the review as a file in your editor
    #[arg(long, group = "output", conflicts_with = "json")]
    pub edit: bool,
    /// Apply the marks and comments of such a file (`-` for stdin)
    #[arg(long, value_name = "FILE", group = "output", conflicts_with = "json")]
    pub apply: Option<PathBuf>,
    /// Send all comments and returned hunks to the agent as one turn
    #[arg(long)]
    pub send: bool,
    /// Land the accepted hunks; the session stays open with the rest
    #[arg(long, conflicts_with = "send")]
    pub land: bool,
}

/// An earlier state of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SinceArg {
    /// When it was last shown on a terminal
    Last,
    /// Before the agent's last turn
    Turn,
}

impl SinceArg {
    pub(crate) fn state(self) -> EarlierState {
        match self {
            SinceArg::Last => EarlierState::LastLook,
            SinceArg::Turn => EarlierState::LastTurn,
        }
    }
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    let context = CommandContext::open(common)?.with_interrupt(interrupt);
    let views = sessions(&context, args)?;
    let since = args.since.map(SinceArg::state);
    if let Some(file) = &args.apply {
        let mut review = open(&context, only(&views)?, since)?;
        apply_file(&mut review, file)?;
        return act(&context, &mut review, args);
    }
    if args.edit {
        for view in &views {
            let mut review = open(&context, view, since)?;
            edit(&context, &mut review)?;
            act(&context, &mut review, args)?;
        }
        return Ok(0);
    }
    if args.send || args.land {
        let mut code = 0;
        for view in &views {
            code = code.max(act(&context, &mut open(&context, view, since)?, args)?);
        }
        return Ok(code);
    }
    if context.json {
        let reviews = views.iter().map(|view| open(&context, view, since));
        let reviews = reviews.map(|review| Ok(review?.json())).collect::<Result<Vec<_>>>()?;
        report::json_line(&json!({"schema": 1, "reviews": reviews}));
        return Ok(0);
    }
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if is_terminal && !args.plain {
        return review_terminal::run(&context, &views, since);
    }
    for view in &views {
        let review = open(&context, view, since)?;
        report::out_raw(&report::review::plain(&review, args.all));
        seen::mark(&context.repository, view);
    }
    Ok(0)
}

/// Returns the named sessions, or all ready ones.
fn sessions(context: &CommandContext, args: &Args) -> Result<Vec<SessionView>> {
    if !args.ids.is_empty() || context.repository.session.is_some() {
        return context.find_all(&args.ids, |state| !state.is_over());
    }
    let mut views = context.views()?;
    views.retain(|view| view.state == SessionState::Ready);
    if views.is_empty() {
        return Err(Failure::not_found("no session is ready for review")
            .hint("studio list")
            .hint("studio review ID    reviews any session"));
    }
    Ok(views)
}

fn only(views: &[SessionView]) -> Result<&SessionView> {
    match views {
        [view] => Ok(view),
        _ => Err(Failure::usage("--apply needs exactly one session")
            .hint("studio review ID --apply FILE")),
    }
}

/// Opens the review of a session.
pub(crate) fn open(
    context: &CommandContext,
    view: &SessionView,
    since: Option<EarlierState>,
) -> Result<Review> {
    review::open(context, view, &context.views()?, since)
}

/// Records that the user has seen all of a review.
pub(crate) fn record_look(context: &CommandContext, review: &Review) {
    let (repository, view) = (&context.repository, &review.view);
    seen::mark(repository, view);
    let tree = landing_history::resolve(repository, &review.head)
        .map_or_else(|_| review.head.clone(), |(_, tree)| tree);
    // Without the record, the next look shows everything.
    let _ = last_shown::record(repository, &view.record.id, &tree);
}

/// Sends or lands, if the command line says so.
fn act(context: &CommandContext, review: &mut Review, args: &Args) -> Result<u8> {
    let id = review.view.record.id.clone();
    if args.send {
        let sent = send_review(context, review)?;
        match (context.json, sent) {
            (true, sent) => {
                report::json_line(&json!({"schema": 1, "id": id, "sent": sent.is_some()}));
            }
            (false, Some(text)) => report::say(&text),
            (false, None) => report::say(&format!("{id}: no new comments or returned hunks")),
        }
    }
    if args.land {
        return match land_accepted(context, review) {
            Ok(landed) => {
                if !context.json {
                    accept::print_landed(&landed, false);
                }
                accept::finish(context, std::slice::from_ref(&landed), &[], None)
            }
            Err(rejection) => Err(rejection.failure),
        };
    }
    if !args.send && !context.json {
        report::say(&report::review::counts(review));
    }
    Ok(0)
}

/// Sends all comments and returned hunks as one turn. Returns what happens next; `None` if there is
/// nothing to send.
pub(crate) fn send_review(context: &CommandContext, review: &mut Review) -> Result<Option<String>> {
    review.reload()?;
    let Some(text) = prompt::message(review) else { return Ok(None) };
    let id = review.view.record.id.clone();
    let comments = review.unsent_comments().count();
    let hunks = review.unsent_returned().count();
    let is_live = send::deliver(context, &id, &text)?;
    step("review.sent");
    review.record_sent()?;
    let comments = base::text::count(comments, "comment");
    let hunks = base::text::count(hunks, "hunk");
    let next = match is_live {
        true => format!("{id} gets them at the end of its turn"),
        false => format!("{id} resumed: studio logs {id} -f"),
    };
    Ok(Some(format!("sent {comments} and {hunks}: {next}")))
}

/// Lands the accepted hunks alone; all of them land the whole session. The caller follows up.
pub(crate) fn land_accepted(
    context: &CommandContext,
    review: &Review,
) -> std::result::Result<Landed, Rejection> {
    let hunks = review.accepted();
    let id = &review.view.record.id;
    if hunks.is_empty() {
        let failure = Failure::refused(format!("no hunk of `{id}` is accepted"));
        return Err(failure.hint(format!("studio review {id}")).into());
    }
    accept::land_one(context, &review.view, &LandingOptions { hunks, ..Default::default() })
}

fn apply_file(review: &mut Review, file: &Path) -> Result<()> {
    let text = match file.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            let mut stdin = std::io::stdin().take(base::files::MAX_READ_BYTES);
            stdin.read_to_string(&mut text).or_fail(|| "cannot read stdin")?;
            text
        }
        false => {
            base::files::read_text(file).or_fail(|| format!("cannot read {}", file.display()))?
        }
    };
    let entries = text_format::parse(review, &text)?;
    review.record(entries).map(|_| ())
}

/// Opens the review in the editor. If the changed file cannot be read back, it is kept.
pub(crate) fn edit(context: &CommandContext, review: &mut Review) -> Result<()> {
    let id = review.view.record.id.clone();
    let directory = context.store.dir(&id);
    let file = tempfile::Builder::new().prefix("review-").suffix(".diff").tempfile_in(directory);
    let file = file.or_fail(|| "cannot make the file for the editor")?;
    let text = text_format::render(review);
    std::fs::write(file.path(), &text).or_fail(|| "cannot write the file for the editor")?;
    let (_, path) = file.keep().or_fail(|| "cannot keep the file for the editor")?;
    let worktree = &review.view.record.session_repo.worktree;
    let directory = if worktree.is_dir() { worktree } else { &context.repository.common_dir };
    let result = editor::edit_file(directory, &context.interrupt, &path, "nothing was recorded")
        .and_then(|()| apply_file(review, &path));
    if result.is_ok() {
        record_look(context, review);
    }
    let is_unchanged = base::files::read_text(&path).is_ok_and(|edited| edited == text);
    if result.is_ok() || is_unchanged {
        let _ = std::fs::remove_file(&path);
        return result;
    }
    let apply = format!("studio review {id} --apply '{}'", path.display());
    result.map_err(|failure| failure.hint(format!("correct the file, then: {apply}")))
}
