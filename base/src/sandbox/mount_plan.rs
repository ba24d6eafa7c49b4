//! What a sandbox's mount namespace shows: the file system read-only, the writable trees, and
//! private directories in place of those that hold sockets, devices and other users' files.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::SandboxRules;

/// The directories that are replaced, unless the rules open them or a parent of them.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const DEVICES: &str = "/dev";
const RUNTIME: &str = "/run";
/// The name of an inherited terminal, which has none among the sandbox's own.
const CONSOLE: &str = "/dev/console";
/// Directories of sockets that exist in a temporary directory, besides that of tmux.
const SOCKET_DIRECTORIES: [&str; 2] = ["/tmp/.X11-unix", "/tmp/.ICE-unix"];
/// Devices with a file system of their own in the sandbox.
const OWN_DEVICES: [&str; 3] = ["/dev/pts", "/dev/shm", "/dev/ptmx"];
/// How deep, and among how many files, sockets are searched for in a temporary directory.
const SOCKET_DEPTH: usize = 3;
const MAX_SCANNED: usize = 20_000;
/// Maximum number of links that are followed in one path.
const MAX_LINKS: usize = 8;

/// One mount. A parent comes before what is below it.
#[derive(Debug)]
pub(super) struct Mount {
    pub(super) path: CString,
    pub(super) source: MountSource,
    /// Directories that are created first, because the mount is inside a private directory.
    pub(super) directories: Vec<CString>,
    /// The mount point itself, if it is created.
    pub(super) mount_point: Option<MountPoint>,
}

/// A mount point in a private directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountPoint {
    Directory,
    File,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MountSource {
    /// A tree or a file of the same path.
    Tree { writable: bool },
    /// Another file or directory, e.g. the sandbox's own temporary directory, its terminal.
    Other { path: CString, writable: bool },
    /// An empty directory that stays read-only except for the mounts in it.
    Empty,
    /// An empty directory that is writable.
    Scratch,
    /// An empty directory with the standard devices.
    Devices,
    /// Nothing to connect to, in place of a socket.
    Nothing,
}

/// All mounts of a namespace.
#[derive(Debug, Default)]
pub(super) struct MountPlan {
    pub(super) mounts: Vec<Mount>,
    /// Links in private directories: target and path, with directories that are created first.
    pub(super) links: Vec<(CString, CString, Vec<CString>)>,
    /// Paths that are bind-mounted on themselves, so that they cannot be changed or renamed.
    pub(super) fixed: Vec<CString>,
    /// Their parent directories, which cannot be renamed either.
    pub(super) parents: Vec<CString>,
    /// Whether the rest of the file system is read-only.
    pub(super) read_only: bool,
}

/// The mounts by path.
#[derive(Default)]
struct Draft {
    mounts: BTreeMap<PathBuf, MountSource>,
    links: BTreeMap<PathBuf, PathBuf>,
    /// Directories that are no links, and neither are those above them.
    without_links: HashSet<PathBuf>,
}

impl MountPlan {
    /// Computes the mounts for these rules.
    pub(super) fn new(rules: &SandboxRules) -> io::Result<MountPlan> {
        let mut draft = Draft::default();
        let opened: Vec<&PathBuf> =
            rules.read.iter().chain(&rules.write).chain(&rules.sockets).collect();
        draft.add_private_directories(rules, &opened);
        let sorted = |paths: &[PathBuf]| paths.iter().cloned().collect::<BTreeSet<_>>();
        for path in sorted(&rules.write) {
            draft.add_tree(&path, true);
        }
        for path in sorted(&[&rules.read[..], &rules.sockets[..]].concat()) {
            draft.add_tree(&path, false);
        }
        draft.hide_sockets(rules);
        for (path, source) in &rules.replaced {
            // What was below is hidden as well.
            draft.mounts.retain(|below, _| !below.starts_with(path));
            draft.links.retain(|below, _| !below.starts_with(path));
            let writable = rules.write.iter().any(|tree| source.starts_with(tree));
            let source = MountSource::Other { path: text(source)?, writable };
            draft.mounts.insert(path.clone(), source);
        }
        let fixed = rules.fixed.iter().filter(|path| path.exists() && draft.is_visible(path));
        let fixed: Vec<PathBuf> = fixed.cloned().collect();
        let mut plan = draft.finish()?;
        plan.read_only = !rules.write.iter().any(|path| path == Path::new("/"));
        plan.add_fixed(&fixed)?;
        Ok(plan)
    }

    /// Adds the fixed paths and the directories above them, up to the git directory: a mount point
    /// cannot be renamed, so a file cannot be moved away together with a directory.
    fn add_fixed(&mut self, fixed: &[PathBuf]) -> io::Result<()> {
        let mut parents = BTreeSet::new();
        for path in fixed {
            let above: Vec<&Path> = path.ancestors().skip(1).collect();
            let git = above.iter().rposition(|directory| directory.join("HEAD").is_file());
            parents.extend(git.map(|git| &above[..=git]).unwrap_or_default());
        }
        self.parents = parents.into_iter().map(text).collect::<io::Result<_>>()?;
        self.fixed = fixed.iter().map(|path| text(path)).collect::<io::Result<_>>()?;
        Ok(())
    }
}

impl Draft {
    /// Adds the private directories. One that the rules open is left visible.
    fn add_private_directories(&mut self, rules: &SandboxRules, opened: &[&PathBuf]) {
        let is_open = |path: &Path| opened.iter().any(|open| path.starts_with(open));
        let is_directory =
            |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_dir());
        let holds_system = |path: &Path| Path::new("/usr").starts_with(path);
        let mut add = |path: &Path, source: MountSource| {
            if is_directory(path) && !is_open(path) && !holds_system(path) {
                self.mounts.insert(path.to_owned(), source);
            }
        };
        for path in TEMPORARY.map(Path::new) {
            let is_used = opened.iter().any(|open| open.starts_with(path));
            let temp = rules.temp.as_ref().filter(|_| !is_used).and_then(|temp| text(temp).ok());
            let temp = temp.map(|path| MountSource::Other { path, writable: true });
            add(path, temp.unwrap_or(MountSource::Empty));
        }
        add(Path::new(DEVICES), MountSource::Devices);
        add(Path::new(RUNTIME), MountSource::Empty);
        let terminal = rules.terminal.as_ref().and_then(|terminal| text(terminal).ok());
        for path in &rules.private {
            add(path, MountSource::Empty);
        }
        if let Some(terminal) = terminal
            && self.mounts.contains_key(Path::new(DEVICES))
        {
            let terminal = MountSource::Other { path: terminal, writable: true };
            self.mounts.insert(PathBuf::from(CONSOLE), terminal);
        }
    }

    /// Adds a tree that the rules open, if it would not be visible, or not be writable, otherwise.
    fn add_tree(&mut self, path: &Path, writable: bool) {
        let is_own = OWN_DEVICES.iter().any(|own| path == Path::new(own));
        if is_own || path.starts_with(OWN_DEVICES[0]) || path == Path::new("/") {
            return;
        }
        let Some(path) = self.follow_links(path) else { return };
        let is_needed = match self.enclosing(&path) {
            Some(MountSource::Tree { writable: true }) => false,
            Some(MountSource::Tree { writable: false }) | None => writable,
            Some(_) => true,
        };
        if is_needed && !self.mounts.contains_key(&path) {
            self.mounts.insert(path, MountSource::Tree { writable });
        }
    }

    /// Returns the path without links. Links in private directories are created again.
    fn follow_links(&mut self, path: &Path) -> Option<PathBuf> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(link) = self.topmost_link(&path) else {
                return path.exists().then_some(path);
            };
            let target = fs::read_link(link).ok()?;
            let rest = path.strip_prefix(link).ok()?;
            let resolved = link.parent()?.join(&target);
            // `..` after a link cannot be resolved by name.
            let resolved = resolved.parent()?.canonicalize().ok()?.join(resolved.file_name()?);
            let resolved = if rest.as_os_str().is_empty() { resolved } else { resolved.join(rest) };
            if matches!(self.enclosing(link), Some(MountSource::Empty | MountSource::Devices)) {
                self.links.insert(link.to_owned(), target);
            }
            path = resolved;
        }
        None
    }

    /// Returns the first link on the way to a path, which may be one itself.
    fn topmost_link<'p>(&mut self, path: &'p Path) -> Option<&'p Path> {
        let mut topmost = None;
        for at in path.ancestors().take_while(|at| !self.without_links.contains(*at)) {
            if fs::symlink_metadata(at).is_ok_and(|meta| meta.is_symlink()) {
                topmost = Some(at);
            }
        }
        if topmost.is_none() {
            self.without_links.extend(path.parent().map(Path::to_owned));
        }
        topmost
    }

    /// Returns whether a path of the system exists in the namespace.
    fn is_visible(&self, path: &Path) -> bool {
        !matches!(
            self.enclosing(path),
            Some(
                MountSource::Empty
                    | MountSource::Scratch
                    | MountSource::Devices
                    | MountSource::Nothing
            )
        )
    }

    /// Returns the mount that a path is in.
    fn enclosing(&self, path: &Path) -> Option<&MountSource> {
        path.ancestors().find_map(|ancestor| self.mounts.get(ancestor))
    }

    /// Hides the sockets in temporary directories that stay visible: those of tmux and X11 by their
    /// directory, others by name.
    fn hide_sockets(&mut self, rules: &SandboxRules) {
        let is_open = |path: &Path| rules.sockets.iter().any(|open| path.starts_with(open));
        let visible = |draft: &Draft, path: &Path| {
            matches!(draft.enclosing(path), None | Some(MountSource::Tree { .. }))
        };
        let user = rustix::process::getuid().as_raw();
        let tmux = PathBuf::from(format!("/tmp/tmux-{user}"));
        if visible(self, Path::new("/tmp")) {
            // The directory is the one that tmux creates, so that a server started later is hidden.
            let _ = fs::DirBuilder::new().mode(0o700).create(&tmux);
        }
        for path in SOCKET_DIRECTORIES.map(PathBuf::from).into_iter().chain([tmux]) {
            let is_own = |meta: fs::Metadata| meta.is_dir() && [0, user].contains(&meta.uid());
            let exists = fs::symlink_metadata(&path).is_ok_and(is_own);
            if exists && !is_open(&path) && visible(self, &path) {
                self.mounts.insert(path, MountSource::Scratch);
            }
        }
        let mut scanned = 0;
        for directory in TEMPORARY.map(Path::new) {
            if visible(self, directory) {
                let mut sockets = Vec::new();
                find_sockets(directory, SOCKET_DEPTH, &mut scanned, &mut sockets);
                sockets.retain(|path| !is_open(path) && visible(self, path));
                let hidden = sockets.into_iter().map(|path| (path, MountSource::Nothing));
                self.mounts.extend(hidden.collect::<Vec<_>>());
            }
        }
    }

    fn finish(self) -> io::Result<MountPlan> {
        let mut plan = MountPlan::default();
        for (path, source) in &self.mounts {
            let directories = self.directories_above(path)?;
            let is_created = directories.is_some() && *source != MountSource::Nothing;
            let kind = if path.is_dir() { MountPoint::Directory } else { MountPoint::File };
            plan.mounts.push(Mount {
                path: text(path)?,
                source: source.clone(),
                directories: directories.unwrap_or_default(),
                mount_point: is_created.then_some(kind),
            });
        }
        for (path, target) in &self.links {
            let directories = self.directories_above(path)?.unwrap_or_default();
            plan.links.push((text(target)?, text(path)?, directories));
        }
        Ok(plan)
    }

    /// Returns the directories between a path and the private directory that it is directly in;
    /// `None` if the path is in none.
    fn directories_above(&self, path: &Path) -> io::Result<Option<Vec<CString>>> {
        let enclosing = path.ancestors().skip(1).find(|above| self.mounts.contains_key(*above));
        let Some(enclosing) = enclosing else { return Ok(None) };
        let is_private = matches!(
            self.mounts.get(enclosing),
            Some(MountSource::Empty | MountSource::Devices | MountSource::Scratch)
        );
        if !is_private {
            return Ok(None);
        }
        let mut between: Vec<&Path> =
            path.ancestors().skip(1).take_while(|above| *above != enclosing).collect();
        between.reverse();
        between.into_iter().map(text).collect::<io::Result<_>>().map(Some)
    }
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Finds the sockets in a directory that this user can list.
fn find_sockets(directory: &Path, depth: usize, scanned: &mut usize, sockets: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        *scanned += 1;
        if *scanned > MAX_SCANNED {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_socket() => sockets.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 1 => {
                find_sockets(&entry.path(), depth - 1, scanned, sockets);
            }
            _ => {}
        }
    }
}
