//! Publishes a session: pushes its branch, and opens or updates its request.

use base::failure::{Failure, Result};
use base::files::step;
use base::text::{cut_columns, printable, printable_output};
use studio_git::landing_history;
use studio_git::publish as git_publish;
use studio_git::secrets;
use studio_git::snapshot::{self, SnapshotLimits};

use crate::exec::hidden_trees::writable_trees;
use crate::forge::ForgeProject;
use crate::forge::client::{ForgeClient, ForgeRequest};
use crate::forge::record::{self, RequestRecord};
use crate::landing;
use crate::project::Project;
use crate::session::collect;
use crate::session::journal::CheckResult;
use crate::session::record::SessionRecord;
use crate::session::state::SessionState;
use crate::session_view::SessionView;

/// Maximum width of a title in columns.
const MAX_TITLE: usize = 200;
/// The start and the end of the part of a description that studio writes.
const RECEIPT_START: &str = "<!-- studio:receipt -->";
const RECEIPT_END: &str = "<!-- /studio:receipt -->";

/// The options of a publication.
#[derive(Clone, Debug, Default)]
pub struct PublishOptions {
    /// The remote.
    pub remote: String,
    /// Title and description; written by a model when absent.
    pub message: Option<String>,
    /// Whether to publish a session that is not ready.
    pub force: bool,
    /// Whether to publish text that looks like a private key or a token.
    pub allow_secrets: bool,
}

/// A published session.
#[derive(Clone, Debug)]
pub struct Published {
    /// Its record.
    pub record: RequestRecord,
    /// The request.
    pub request: ForgeRequest,
    /// The pushed commit.
    pub commit: String,
    /// Whether the request was opened now.
    pub is_new: bool,
    /// Whether something was pushed.
    pub is_pushed: bool,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Publishes a session whose lock, and whose request's lock, the caller holds.
pub fn publish(
    project: &Project,
    view: &SessionView,
    options: &PublishOptions,
) -> Result<Published> {
    let session = &view.record;
    refuse_state(view, options.force)?;
    let earlier = record::read(project, &session.id)?;
    let urls = git_publish::remote_urls(&project.repository, &options.remote)?;
    let configured = project.config.studio.forge.as_deref();
    let forge_project = ForgeProject::of_url(&urls.fetch, configured)?;
    let mut request = new_record(session, options, forge_project, earlier)?;
    let project_of_request = request.project.clone();
    let trees = writable_trees(&project.repository, &session.session_repo);
    let client = ForgeClient::open(&project_of_request, &trees)?;
    let (collected, snapshot) =
        collect::fetch(&project.repository, session, &SnapshotLimits::default())?;
    snapshot::refuse_omissions(&snapshot, &session.session_repo.worktree)?;
    let repo = project.repository.open()?;
    let branch = session.base.branch.as_ref();
    let base = collect::base_for(&repo, &project.repository, session, &snapshot.head, branch)?;
    let message = match &options.message {
        Some(text) => text.clone(),
        None => landing::message::text_between(project, session, base.commit(), &snapshot.work)?,
    };
    let previous = request.pushed.as_deref();
    let signer = landing::signer(project, session)?;
    let commit = git_publish::commit(
        &project.repository,
        &session.session_repo,
        &snapshot,
        &message,
        previous,
        signer.as_ref(),
        project.clock.now(),
    )?;
    refuse_secrets(project, session, base.commit(), &commit.id, options)?;
    request.pushing.insert(commit.id.clone());
    record::write(project, &session.id, &request)?;
    step("pr.pushing");
    let own: Vec<&str> =
        request.pushed.iter().chain(&request.pushing).map(String::as_str).collect();
    let is_pushed = {
        let _step = project.console.step(&session.id, "pushing the branch");
        git_publish::push(&project.repository, &urls.push, &commit.id, &request.branch, &own)?
    };
    step("pr.pushed");
    request.pushed = Some(commit.id.clone());
    request.pushed_tree = Some(landing_history::resolve(&project.repository, &commit.id)?.1);
    request.pushing.clear();
    record::write(project, &session.id, &request)?;
    let mut notes = collected.notes;
    let (opened, is_new) = {
        let _step = project.console.step(&session.id, "opening the request");
        open_request(&client, view, &mut request, &message, &mut notes)?
    };
    request.number = Some(opened.number);
    request.url = Some(printable(&opened.url));
    record::write(project, &session.id, &request)?;
    step("pr.opened");
    Ok(Published { record: request, request: opened, commit: commit.id, is_new, is_pushed, notes })
}

/// Refuses a session that cannot be published.
fn refuse_state(view: &SessionView, force: bool) -> Result<()> {
    let id = &view.record.id;
    let refuse = |hint: String| {
        let message = format!("session `{id}` is {}", view.state.name());
        Err(Failure::refused(message).because(view.reason().unwrap_or_default()).hint(hint))
    };
    match &view.state {
        SessionState::Ready => Ok(()),
        SessionState::Stopped | SessionState::Failed { .. } | SessionState::Crashed if force => {
            Ok(())
        }
        SessionState::Stopped | SessionState::Failed { .. } | SessionState::Crashed => {
            refuse(format!("studio pr {id} --force    publishes it as it is"))
        }
        SessionState::Empty => refuse(format!("studio send {id} 'what to do'")),
        SessionState::Accepted | SessionState::Discarded => Err(Project::already_ended(view)),
        SessionState::Landing => refuse("studio doctor".to_owned()),
        SessionState::Queued
        | SessionState::Starting
        | SessionState::Working
        | SessionState::Waiting { .. }
        | SessionState::Checking => refuse(format!("studio logs {id} -f")),
    }
}

/// Returns the record of the request: the earlier one, or a new one.
fn new_record(
    session: &SessionRecord,
    options: &PublishOptions,
    project: ForgeProject,
    earlier: Option<RequestRecord>,
) -> Result<RequestRecord> {
    if let Some(earlier) = earlier {
        if earlier.project != project {
            return Err(Failure::refused(format!("session `{}` is on another remote", session.id))
                .because(format!(
                    "it was pushed to {}/{}",
                    earlier.project.host, earlier.project.path
                ))
                .hint(format!("studio pr {} --remote {}", session.id, earlier.remote)));
        }
        return Ok(earlier);
    }
    let target = session.base.branch.as_ref().ok_or_else(|| {
        Failure::usage("no branch to merge into")
            .because("the session started from a commit, not from a branch")
    })?;
    Ok(RequestRecord {
        project,
        remote: options.remote.clone(),
        branch: session.session_repo.branch.full(),
        target: target.as_str().to_owned(),
        number: None,
        url: None,
        pushed: None,
        pushed_tree: None,
        pushing: std::collections::BTreeSet::new(),
        delivered: std::collections::BTreeSet::new(),
        pending: None,
    })
}

/// Refuses (3) possible private keys and tokens in any commit that would be pushed.
fn refuse_secrets(
    project: &Project,
    session: &SessionRecord,
    base: &str,
    commit: &str,
    options: &PublishOptions,
) -> Result<()> {
    let allowed = &project.config.studio.secrets_allowed;
    let found = secrets::find_in_commits(&project.repository, base, commit, allowed)?;
    let lines: Vec<String> =
        found.iter().filter(|it| !it.is_marked).take(20).map(|it| it.sentence()).collect();
    if lines.is_empty() || options.allow_secrets {
        return Ok(());
    }
    let id = &session.id;
    Err(Failure::refused("the work adds a possible secret")
        .because(lines.join("\n"))
        .hint("take it out of every commit of the session")
        .hint(format!("or publish it anyway: studio pr {id} --allow-secrets")))
}

/// Opens the request, or updates the receipt of one that is open. Returns it, and whether it is new.
fn open_request(
    client: &ForgeClient<'_>,
    view: &SessionView,
    request: &mut RequestRecord,
    message: &str,
    notes: &mut Vec<String>,
) -> Result<(ForgeRequest, bool)> {
    let branch = request.branch.trim_start_matches("refs/heads/").to_owned();
    let receipt = receipt(view, request.pushed.as_deref().unwrap_or_default());
    let known = match request.number {
        Some(number) => Some(client.view(number)?),
        // A request that was opened before a crash, or by hand.
        None => client.find_open(&branch)?,
    };
    let Some(known) = known else {
        let (title, text) = message.split_once('\n').unwrap_or((message, ""));
        let title = cut_columns(printable(title).trim(), MAX_TITLE);
        let body = format!("{}\n\n{receipt}\n", printable_output(text.trim()));
        client.create(&branch, &request.target, &title, body.trim_start())?;
        let opened = client.find_open(&branch)?.ok_or_else(|| {
            Failure::failed("the new request was not found").hint("run the command again")
        })?;
        return Ok((opened, true));
    };
    match replace_receipt(&known.body, &receipt) {
        Some(body) if body == known.body => {}
        Some(body) => client.set_body(known.number, &body)?,
        None => {
            notes.push("the description has no receipt of studio and stays as it is".to_owned())
        }
    }
    Ok((known, false))
}

/// Replaces the receipt in a description, whose other text may be the user's; `None` if it has none.
fn replace_receipt(body: &str, receipt: &str) -> Option<String> {
    let start = body.find(RECEIPT_START)?;
    let end = start + body[start..].find(RECEIPT_END)? + RECEIPT_END.len();
    Some(format!("{}{receipt}{}", &body[..start], &body[end..]))
}

/// Returns the receipt for a description: which checks passed on which tree, for which requirement.
fn receipt(view: &SessionView, commit: &str) -> String {
    let record = &view.record;
    let mut rows = vec![("Session", code(record.id.as_str())), ("Agent", code(&record.agent))];
    if !record.plan_ref.requirements.is_empty() {
        let ids: Vec<String> = record.plan_ref.requirements.iter().map(|id| code(id)).collect();
        rows.push(("Requirements", ids.join(", ")));
    }
    let checks = view.facts.summary.checks.as_deref().unwrap_or_default();
    let checks: Vec<String> = checks.iter().map(check).collect();
    let checks = if checks.is_empty() { "none".to_owned() } else { checks.join("<br>") };
    rows.push(("Checks", checks));
    rows.push(("Commit", code(commit)));
    let rows: String = rows.iter().map(|(name, value)| format!("| {name} | {value} |\n")).collect();
    format!("{RECEIPT_START}\n| studio | |\n|---|---|\n{rows}{RECEIPT_END}")
}

fn check(result: &CheckResult) -> String {
    let outcome = if result.ok { "passed" } else { "failed" };
    format!("{} {outcome} in {} ms", code(&result.command), result.ms)
}

/// Returns a text as code in a table of Markdown.
fn code(text: &str) -> String {
    let text = printable(text).replace('`', "'").replace('|', "\\|").replace("<!--", "<! --");
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_receipt_of_a_description_is_replaced() {
        let body = format!("mine\n{RECEIPT_START}\nold\n{RECEIPT_END}\nmore of mine");
        let new = format!("{RECEIPT_START}\nnew\n{RECEIPT_END}");
        let expected = format!("mine\n{new}\nmore of mine");
        assert_eq!(replace_receipt(&body, &new), Some(expected));
        assert_eq!(replace_receipt("mine only", &new), None);
    }

    #[test]
    fn code_stays_in_its_cell() {
        assert_eq!(code("a | `b` <!-- c"), "`a \\| 'b' <! -- c`");
    }
}
