//! What git and the kernel of this machine support.

use std::path::Path;

use serde::Serialize;
use studio_git::names::WorktreeTemplate;

use crate::project::Project;

/// One capability of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// What it is about.
    pub name: &'static str,
    /// Whether studio has all that it can use.
    pub complete: bool,
    /// What is possible, and what is not.
    pub detail: String,
}

/// Examines the machine.
pub(super) fn capabilities(project: &Project) -> Vec<Capability> {
    let mut capabilities = vec![git(), sandbox(), git_settings(), network()];
    capabilities.extend(disk(project));
    capabilities
}

fn git() -> Capability {
    let (complete, detail) = match base::git::version() {
        Ok(version) if version >= base::git::ATTR_SOURCE_VERSION => {
            (true, format!("{version}: complete"))
        }
        Ok(version) => (
            false,
            format!(
                "{version}: attributes that agents write affect how plain git shows files; {} \
                 ignores them",
                base::git::ATTR_SOURCE_VERSION
            ),
        ),
        Err(failure) => (false, failure.to_string()),
    };
    Capability { name: "git", complete, detail }
}

fn sandbox() -> Capability {
    let missing = base::sandbox::missing_features();
    let detail = match missing.as_slice() {
        [] => "complete: files, device controls, signals, abstract sockets".to_owned(),
        missing => missing.join("; "),
    };
    Capability { name: "sandbox", complete: missing.is_empty(), detail }
}

fn git_settings() -> Capability {
    let complete = base::sandbox::namespaces_are_possible();
    let detail = match complete {
        true => "agents cannot change git's configuration of their session",
        false => "no mount namespaces: studio restores git's configuration after each turn",
    };
    Capability { name: "git settings", complete, detail: detail.to_owned() }
}

fn network() -> Capability {
    Capability { name: "network", complete: false, detail: "not restricted".to_owned() }
}

/// Returns the free space where worktrees are created.
fn disk(project: &Project) -> Option<Capability> {
    const DEFAULT_FLOOR: u64 = 512 << 20;
    let template = WorktreeTemplate::parse(&project.config.studio.worktree).ok()?;
    let parent = template.parent(&project.repository);
    let existing = parent.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let stat = rustix::fs::statvfs(existing).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let floor = project.config.studio.limits.disk_floor_bytes.unwrap_or(DEFAULT_FLOOR);
    let detail = format!("{} MiB free in {}", free >> 20, existing.display());
    Some(Capability { name: "disk", complete: free >= floor, detail })
}
