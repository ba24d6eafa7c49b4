//! The arguments and the JSON of `gh`. The fields are those of its manual (cli.github.com/manual:
//! `gh pr list`, `gh pr view`, `gh pr checks`) and of GitHub's REST API ("List review comments on a
//! pull request").

use base::failure::{OrFail, Result};
use serde::Deserialize;

use crate::forge::client::{Feedback, ForgeClient, ForgeRequest, RequestState};

/// The fields of a request.
const FIELDS: &str = "--json=number,url,state,body,headRefOid,headRefName,isCrossRepository";
/// Who can write to a repository, as `authorAssociation` names it.
const MEMBERS: [&str; 3] = ["OWNER", "MEMBER", "COLLABORATOR"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullRequest {
    number: u64,
    url: String,
    state: String,
    #[serde(default)]
    body: String,
    head_ref_oid: String,
    head_ref_name: String,
    #[serde(default)]
    is_cross_repository: bool,
}

impl PullRequest {
    fn request(self) -> ForgeRequest {
        let state = match self.state.as_str() {
            "MERGED" => RequestState::Merged,
            "CLOSED" => RequestState::Closed,
            _ => RequestState::Open,
        };
        let PullRequest { number, url, body, head_ref_oid: head, .. } = self;
        ForgeRequest { number, url, state, body, head }
    }
}

#[derive(Deserialize)]
struct Author {
    #[serde(default)]
    login: String,
}

#[derive(Deserialize)]
struct Conversation {
    comments: Vec<Comment>,
    reviews: Vec<Comment>,
}

/// A comment of the conversation, or the text of a review.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Comment {
    id: String,
    author: Option<Author>,
    #[serde(default)]
    author_association: String,
    #[serde(default)]
    body: String,
    state: Option<String>,
}

/// A comment on a line.
#[derive(Deserialize)]
struct ReviewComment {
    id: u64,
    user: Option<Author>,
    #[serde(default)]
    author_association: String,
    path: String,
    line: Option<u64>,
    original_line: Option<u64>,
    #[serde(default)]
    body: String,
}

#[derive(Deserialize)]
struct Check {
    name: String,
    bucket: String,
    #[serde(default)]
    link: String,
    #[serde(default)]
    description: String,
}

fn repository(client: &ForgeClient<'_>) -> String {
    let project = client.project();
    format!("--repo={}/{}", project.host, project.path)
}

pub(super) fn find_open(client: &ForgeClient<'_>, branch: &str) -> Result<Option<ForgeRequest>> {
    let (repository, head) = (repository(client), format!("--head={branch}"));
    let args = ["pr", "list", &repository, &head, "--state=open", FIELDS];
    let mut found: Vec<PullRequest> = client.lists(&args)?;
    // A fork can have a branch with the same name.
    found.retain(|request| request.head_ref_name == branch && !request.is_cross_repository);
    Ok(found.pop().map(PullRequest::request))
}

pub(super) fn create(
    client: &ForgeClient<'_>,
    branch: &str,
    target: &str,
    title: &str,
    body: &str,
) -> Result<()> {
    let (repository, head) = (repository(client), format!("--head={branch}"));
    let (base, title) = (format!("--base={target}"), format!("--title={title}"));
    let args = ["pr", "create", &repository, &head, &base, &title, "--body-file=-"];
    client.run(&args, Some(body)).map(|_| ())
}

pub(super) fn view(client: &ForgeClient<'_>, number: u64) -> Result<ForgeRequest> {
    let (repository, number) = (repository(client), number.to_string());
    let args = ["pr", "view", &number, &repository, FIELDS];
    client.object::<PullRequest>(&args).map(PullRequest::request)
}

pub(super) fn set_body(client: &ForgeClient<'_>, number: u64, body: &str) -> Result<()> {
    let (repository, number) = (repository(client), number.to_string());
    client.run(&["pr", "edit", &number, &repository, "--body-file=-"], Some(body)).map(|_| ())
}

pub(super) fn feedback(client: &ForgeClient<'_>, request: &ForgeRequest) -> Result<Vec<Feedback>> {
    let (repository, number) = (repository(client), request.number.to_string());
    let args = ["pr", "view", &number, &repository, "--json=comments,reviews"];
    let conversation: Conversation = client.object(&args)?;
    let is_member = |association: &str| MEMBERS.contains(&association);
    let login = |author: Option<Author>| author.map(|author| author.login).unwrap_or_default();
    let mut feedback = Vec::new();
    for comment in conversation.comments.into_iter().chain(conversation.reviews) {
        // An approval without a text asks for nothing; the comments of a review follow below.
        let asks_for_changes = comment.state.as_deref() == Some("CHANGES_REQUESTED");
        if comment.body.trim().is_empty() && !asks_for_changes {
            continue;
        }
        let text = match comment.body.trim() {
            "" => "Changes requested.".to_owned(),
            text => text.to_owned(),
        };
        feedback.push(Feedback {
            id: comment.id,
            is_member: is_member(&comment.author_association),
            author: login(comment.author),
            place: None,
            text,
            is_check: false,
        });
    }
    let project = client.project();
    let host = format!("--hostname={}", project.host);
    let path = format!("repos/{}/pulls/{number}/comments?per_page=100", project.path);
    let comments: Vec<ReviewComment> = client.lists(&["api", &host, "--paginate", &path])?;
    for comment in comments {
        let line = comment.line.or(comment.original_line);
        feedback.push(Feedback {
            id: format!("review-comment-{}", comment.id),
            is_member: is_member(&comment.author_association),
            author: login(comment.user),
            place: Some(match line {
                Some(line) => format!("{}:{line}", comment.path),
                None => comment.path,
            }),
            text: comment.body,
            is_check: false,
        });
    }
    feedback.extend(failed_checks(client, request)?);
    Ok(feedback)
}

fn failed_checks(client: &ForgeClient<'_>, request: &ForgeRequest) -> Result<Vec<Feedback>> {
    let (repository, number) = (repository(client), request.number.to_string());
    let args = ["pr", "checks", &number, &repository, "--json=name,bucket,link,description"];
    // The exit code tells the state of the checks: 1 failed, 8 pending.
    let output = client.output(&args, None)?;
    if output.stdout.trim_ascii().is_empty() {
        let has_none = output.ok() || output.error_text().contains("no checks reported");
        return if has_none { Ok(Vec::new()) } else { Err(client.failure(&args, &output)) };
    }
    let checks: Vec<Check> =
        serde_json::from_slice(&output.stdout).or_fail(|| client.unreadable())?;
    let failed = checks.into_iter().filter(|check| check.bucket == "fail");
    let feedback = failed.map(|check| Feedback {
        id: format!("check-{}-{}", request.head, check.name),
        text: format!("{} {}", check.description, check.link).trim().to_owned(),
        author: check.name,
        place: None,
        is_check: true,
        is_member: true,
    });
    Ok(feedback.collect())
}
