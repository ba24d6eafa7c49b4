//! What git and the kernel of this machine support.

use std::path::Path;

use base::sandbox::{KernelFeature, network};
use serde::Serialize;
use studio_git::names::WorktreeTemplate;

use crate::project::Project;
use crate::sandbox::cgroup::{self, CgroupSupport};

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
    let mut capabilities = vec![git()];
    capabilities.extend(base::sandbox::kernel_features().into_iter().map(Capability::from));
    capabilities.extend([cgroups(), network()]);
    capabilities.extend(disk(project));
    capabilities
}

fn git() -> Capability {
    let (complete, detail) = match base::git_version::detect() {
        Ok(version) if version >= base::git_version::ATTR_SOURCE_VERSION => {
            (true, format!("{version}: complete"))
        }
        Ok(version) => (
            false,
            format!(
                "{version}: attributes that agents write affect how plain git shows files; {} \
                 ignores them",
                base::git_version::ATTR_SOURCE_VERSION
            ),
        ),
        Err(failure) => (false, failure.to_string()),
    };
    Capability { name: "git", complete, detail }
}

impl From<KernelFeature> for Capability {
    fn from(feature: KernelFeature) -> Capability {
        let KernelFeature { name, available, consequence } = feature;
        Capability { name, complete: available, detail: consequence }
    }
}

fn cgroups() -> Capability {
    let support = cgroup::support();
    let detail = match support {
        CgroupSupport::Complete => "the kernel holds the limits of memory and processes",
        CgroupSupport::KillOnly => {
            "without memory and pids: studio watches the limits; the processes of a sandbox end at \
             once"
        }
        CgroupSupport::None => {
            "no cgroup (version 2) can be created: studio watches the limits of memory and processes"
        }
    };
    let complete = support == CgroupSupport::Complete;
    Capability { name: "cgroups", complete, detail: detail.to_owned() }
}

fn network() -> Capability {
    let (complete, detail) = match network::create_namespace(&[]) {
        Ok(_) => (true, "network namespaces: sandboxes reach studio's proxy only".to_owned()),
        Err(_) if network::socket_rules(&[]).is_ok() => (
            false,
            "no network namespaces: rules for TCP ports hold, the proxy's port is open on every \
             host"
                .to_owned(),
        ),
        Err(error) => (false, format!("the network of sandboxes is not confined: {error}")),
    };
    Capability { name: "network", complete, detail }
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
