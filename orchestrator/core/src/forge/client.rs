//! The requests of a project, read and written by the user's program. Its JSON is read in `github` and
//! `gitlab`.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use base::failure::Result;

use crate::forge::program::ForgeProgram;
use crate::forge::{Forge, ForgeProject, github, gitlab};

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
    program: ForgeProgram,
}

impl Deref for ForgeClient<'_> {
    type Target = ForgeProgram;

    fn deref(&self) -> &ForgeProgram {
        &self.program
    }
}

impl<'a> ForgeClient<'a> {
    /// Finds the program in `PATH`, outside of the excluded directories. Fails (2) without it.
    pub(crate) fn open(project: &'a ForgeProject, excluded: &[PathBuf]) -> Result<ForgeClient<'a>> {
        let user = format!("a {}", project.forge.request_name());
        let program = ForgeProgram::find(project.forge, &user, Path::new("/"), excluded)?;
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
}
