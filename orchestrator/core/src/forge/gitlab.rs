//! The arguments and the JSON of `glab`: that of GitLab's REST API (docs.gitlab.com/api: merge
//! requests, notes, members, pipelines, jobs), which `glab mr list`, `glab mr view` and `glab api` print.

use std::collections::BTreeSet;

use base::failure::Result;
use serde::Deserialize;

use crate::forge::client::{Feedback, ForgeClient, ForgeRequest, RequestState};

/// The access level of a developer, the lowest one that can write to a repository.
const DEVELOPER: u32 = 30;
/// Maximum number of authors that are looked up among the members; the others count as strangers.
const MAX_AUTHORS: usize = 100;

#[derive(Deserialize)]
struct MergeRequest {
    iid: u64,
    web_url: String,
    state: String,
    description: Option<String>,
    sha: Option<String>,
    source_branch: String,
    source_project_id: Option<u64>,
    target_project_id: Option<u64>,
}

impl MergeRequest {
    fn request(self) -> ForgeRequest {
        let state = match self.state.as_str() {
            "merged" => RequestState::Merged,
            "closed" => RequestState::Closed,
            _ => RequestState::Open,
        };
        ForgeRequest {
            number: self.iid,
            url: self.web_url,
            state,
            body: self.description.unwrap_or_default(),
            head: self.sha.unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct Author {
    id: u64,
    username: String,
}

#[derive(Deserialize)]
struct Member {
    id: u64,
    access_level: u32,
}

#[derive(Deserialize)]
struct Note {
    id: u64,
    body: String,
    author: Author,
    #[serde(default)]
    system: bool,
    #[serde(default)]
    resolved: bool,
    position: Option<Position>,
}

#[derive(Deserialize)]
struct Position {
    new_path: Option<String>,
    old_path: Option<String>,
    new_line: Option<u64>,
    old_line: Option<u64>,
}

#[derive(Deserialize)]
struct Pipeline {
    id: u64,
    sha: String,
    status: String,
}

#[derive(Deserialize)]
struct Job {
    name: String,
    status: String,
    #[serde(default)]
    allow_failure: bool,
    #[serde(default)]
    web_url: String,
    failure_reason: Option<String>,
}

fn repository(client: &ForgeClient<'_>) -> String {
    let project = client.project();
    format!("--repo=https://{}/{}", project.host, project.path)
}

/// Reads a list of the API below the project.
fn api<T: serde::de::DeserializeOwned>(client: &ForgeClient<'_>, path: &str) -> Result<Vec<T>> {
    let project = client.project();
    let host = format!("--hostname={}", project.host);
    let path = format!("projects/{}/{path}", project.path.replace('/', "%2F"));
    client.lists(&["api", &host, "--paginate", &path])
}

pub(super) fn find_open(client: &ForgeClient<'_>, branch: &str) -> Result<Option<ForgeRequest>> {
    let (repository, source) = (repository(client), format!("--source-branch={branch}"));
    let args = ["mr", "list", &repository, &source, "--output=json"];
    let mut found: Vec<MergeRequest> = client.lists(&args)?;
    // A fork can have a branch with the same name.
    let is_own = |it: &MergeRequest| it.source_project_id == it.target_project_id;
    found.retain(|request| request.source_branch == branch && is_own(request));
    Ok(found.pop().map(MergeRequest::request))
}

pub(super) fn create(
    client: &ForgeClient<'_>,
    branch: &str,
    target: &str,
    title: &str,
    body: &str,
) -> Result<()> {
    let (repository, source) = (repository(client), format!("--source-branch={branch}"));
    let (target, title) = (format!("--target-branch={target}"), format!("--title={title}"));
    let body = format!("--description={body}");
    client.run(&["mr", "create", &repository, &source, &target, &title, "--yes", &body], None)?;
    Ok(())
}

pub(super) fn view(client: &ForgeClient<'_>, number: u64) -> Result<ForgeRequest> {
    let (repository, number) = (repository(client), number.to_string());
    let args = ["mr", "view", &number, &repository, "--output=json"];
    client.object::<MergeRequest>(&args).map(MergeRequest::request)
}

pub(super) fn set_body(client: &ForgeClient<'_>, number: u64, body: &str) -> Result<()> {
    let (repository, number) = (repository(client), number.to_string());
    let body = format!("--description={body}");
    client.run(&["mr", "update", &number, &repository, &body], None).map(|_| ())
}

pub(super) fn feedback(client: &ForgeClient<'_>, request: &ForgeRequest) -> Result<Vec<Feedback>> {
    let number = request.number;
    let path = format!("merge_requests/{number}/notes?sort=asc&per_page=100");
    let mut notes: Vec<Note> = api(client, &path)?;
    notes.retain(|note| !note.system && !note.resolved);
    let members = members_among(client, notes.iter().map(|note| note.author.id).collect())?;
    let mut feedback = Vec::new();
    for note in notes {
        feedback.push(Feedback {
            id: format!("note-{}", note.id),
            is_member: members.contains(&note.author.id),
            author: note.author.username,
            place: note.position.and_then(Position::place),
            text: note.body,
            is_check: false,
        });
    }
    let pipelines: Vec<Pipeline> = api(client, &format!("merge_requests/{number}/pipelines"))?;
    let last = pipelines.into_iter().find(|pipeline| pipeline.sha == request.head);
    let Some(pipeline) = last.filter(|pipeline| pipeline.status == "failed") else {
        return Ok(feedback);
    };
    let jobs: Vec<Job> = api(client, &format!("pipelines/{}/jobs?per_page=100", pipeline.id))?;
    for job in jobs.into_iter().filter(|job| job.status == "failed" && !job.allow_failure) {
        let reason = job.failure_reason.unwrap_or_default();
        feedback.push(Feedback {
            id: format!("check-{}-{}", request.head, job.name),
            author: job.name,
            place: None,
            text: format!("{reason} {}", job.web_url).trim().to_owned(),
            is_check: true,
            is_member: true,
        });
    }
    Ok(feedback)
}

/// Returns which of these users can write to the repository: as members of the project, of its groups,
/// or of groups that it is shared with.
fn members_among(client: &ForgeClient<'_>, users: BTreeSet<u64>) -> Result<BTreeSet<u64>> {
    if users.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ids: String =
        users.iter().take(MAX_AUTHORS).map(|id| format!("&user_ids%5B%5D={id}")).collect();
    let members: Vec<Member> = api(client, &format!("members/all?per_page=100{ids}"))?;
    let can_write = |member: &Member| member.access_level >= DEVELOPER;
    Ok(members.into_iter().filter(can_write).map(|member| member.id).collect())
}

impl Position {
    fn place(self) -> Option<String> {
        let path = self.new_path.or(self.old_path)?;
        Some(match self.new_line.or(self.old_line) {
            Some(line) => format!("{path}:{line}"),
            None => path,
        })
    }
}
