//! Runs `gh` and `glab`: outside of sandboxes, without a shell, without questions, with limits. Their
//! JSON is read in `github` and `gitlab`.

use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, Output, OutputLimits, find_program_outside};
use serde::de::DeserializeOwned;

use crate::forge::{Forge, ForgeProject, github, gitlab};

/// Timeout of one call, in seconds.
const SECONDS: u64 = 120;
/// Maximum size of an answer in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum size of a description in bytes: an argument of a program cannot be larger.
const MAX_BODY_BYTES: usize = 60_000;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// It can be merged.
    Open,
    /// It was merged.
    Merged,
    /// It was closed without a merge.
    Closed,
}

impl RequestState {
    /// Returns the name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            RequestState::Open => "open",
            RequestState::Merged => "merged",
            RequestState::Closed => "closed",
        }
    }
}

/// A request on the forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgeRequest {
    /// Its number.
    pub number: u64,
    /// Its address.
    pub url: String,
    /// Its state.
    pub state: RequestState,
    /// Its description.
    pub body: String,
    /// The last commit of its branch.
    pub head: String,
}

/// A comment of a person or a failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// An id that is unique on the forge.
    pub id: String,
    /// The author or the check.
    pub author: String,
    /// The place in the files, if it has one.
    pub place: Option<String>,
    /// The text.
    pub text: String,
    /// Whether it is a failed check.
    pub is_check: bool,
    /// Whether the author can write to the repository, as far as the forge says.
    pub is_member: bool,
}

/// The user's program for a project.
pub(crate) struct ForgeClient<'a> {
    project: &'a ForgeProject,
    program: PathBuf,
}

impl<'a> ForgeClient<'a> {
    /// Finds the program in `PATH`, outside of the excluded directories. Fails (2) without it.
    pub(crate) fn open(project: &'a ForgeProject, excluded: &[PathBuf]) -> Result<ForgeClient<'a>> {
        let name = project.forge.program();
        let program = find_program_outside(name, excluded).ok_or_else(|| {
            Failure::usage(format!("`{name}` was not found"))
                .because(format!("a {} needs it", project.forge.request_name()))
                .hint(format!("install it, then: {name} auth login"))
        })?;
        Ok(ForgeClient { project, program })
    }

    /// Returns the open request of a branch.
    pub(crate) fn find_open(&self, branch: &str) -> Result<Option<ForgeRequest>> {
        match self.project.forge {
            Forge::GitHub => github::find_open(self, branch),
            Forge::GitLab => gitlab::find_open(self, branch),
        }
    }

    /// Opens a request.
    pub(crate) fn create(&self, branch: &str, target: &str, title: &str, body: &str) -> Result<()> {
        let body = base::text::head(body, MAX_BODY_BYTES);
        match self.project.forge {
            Forge::GitHub => github::create(self, branch, target, title, body),
            Forge::GitLab => gitlab::create(self, branch, target, title, body),
        }
    }

    /// Returns a request by its number.
    pub(crate) fn view(&self, number: u64) -> Result<ForgeRequest> {
        match self.project.forge {
            Forge::GitHub => github::view(self, number),
            Forge::GitLab => gitlab::view(self, number),
        }
    }

    /// Replaces the description of a request.
    pub(crate) fn set_body(&self, number: u64, body: &str) -> Result<()> {
        let body = base::text::head(body, MAX_BODY_BYTES);
        match self.project.forge {
            Forge::GitHub => github::set_body(self, number, body),
            Forge::GitLab => gitlab::set_body(self, number, body),
        }
    }

    /// Returns the comments and the failed checks of a request, oldest first.
    pub(crate) fn feedback(&self, request: &ForgeRequest) -> Result<Vec<Feedback>> {
        match self.project.forge {
            Forge::GitHub => github::feedback(self, request),
            Forge::GitLab => gitlab::feedback(self, request),
        }
    }

    pub(crate) fn project(&self) -> &ForgeProject {
        self.project
    }

    /// Runs the program and returns its result, whatever the exit code is.
    pub(super) fn output(&self, args: &[&str], input: Option<&str>) -> Result<Output> {
        let name = self.project.forge.program();
        let mut command = Command::new(&self.program, "/").args(args).detached();
        for (key, value) in [
            ("GH_PROMPT_DISABLED", "1"),
            ("GH_NO_UPDATE_NOTIFIER", "1"),
            ("GH_PAGER", "cat"),
            ("GLAB_PAGER", "cat"),
            ("NO_PROMPT", "1"),
            ("NO_COLOR", "1"),
        ] {
            command = command.env(key, value);
        }
        if let Some(input) = input {
            command = command.input(input);
        }
        let limits =
            OutputLimits { time: Some(std::time::Duration::from_secs(SECONDS)), bytes: MAX_BYTES };
        let output = command.output(limits).or_fail(|| format!("cannot start `{name}`"))?;
        match output.timed_out {
            true => Err(Failure::failed(format!("`{name}` timed out after {SECONDS} s"))),
            false => Ok(output),
        }
    }

    /// Runs the program and returns its stdout; fails (1) with its stderr.
    pub(super) fn run(&self, args: &[&str], input: Option<&str>) -> Result<Vec<u8>> {
        let output = self.output(args, input)?;
        match output.ok() {
            true => Ok(output.stdout),
            false => Err(self.failure(args, &output)),
        }
    }

    /// Returns the failure of a call.
    pub(super) fn failure(&self, args: &[&str], output: &Output) -> Failure {
        let name = self.project.forge.program();
        let command: Vec<&str> = args.iter().take(2).copied().collect();
        let reason = base::text::printable_output(base::text::tail(&output.error_text(), 1500));
        Failure::failed(format!(
            "`{name} {}` failed with exit code {}",
            command.join(" "),
            output.code()
        ))
        .because(reason)
        .hint(format!("{name} auth status"))
    }

    /// Runs the program and parses the lists that it prints, one after the other.
    pub(super) fn lists<T: DeserializeOwned>(&self, args: &[&str]) -> Result<Vec<T>> {
        let text = self.run(args, None)?;
        let lists = serde_json::Deserializer::from_slice(&text).into_iter::<Vec<T>>();
        let lists: std::result::Result<Vec<Vec<T>>, _> = lists.collect();
        Ok(lists.or_fail(|| self.unreadable())?.into_iter().flatten().collect())
    }

    /// Runs the program and parses the object that it prints.
    pub(super) fn object<T: DeserializeOwned>(&self, args: &[&str]) -> Result<T> {
        serde_json::from_slice(&self.run(args, None)?).or_fail(|| self.unreadable())
    }

    pub(super) fn unreadable(&self) -> String {
        format!("the answer of `{}` has an unknown format", self.project.forge.program())
    }
}
