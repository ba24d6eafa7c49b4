//! The hunks of a session that land alone, while the session stays open with the rest.

use base::failure::{Failure, Result};

use crate::landing::LandingOptions;
use crate::project::Project;
use crate::session::collect;
use crate::session::journal::JournalEntry;
use crate::session::record::SessionRecord;
use studio_git::accepted_hunks::{self, BaseUpdate, ChosenHunks};
use studio_git::hunks::{self, DiffHunk, FilePatch};
use studio_git::merge::MergeStrategy;
use studio_git::names::BranchName;
use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::snapshot::{Snapshot, SnapshotLimits};

/// Hunks that landed alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandedHunks {
    /// Their ids.
    pub ids: Vec<String>,
    /// The number of hunks that remain in the session.
    pub remaining: usize,
}

/// Chosen hunks of a session, committed on its base.
pub(crate) struct HunkSelection {
    chosen: ChosenHunks,
    landed: LandedHunks,
}

/// Returns the chosen hunks; `None` if none or all were chosen, so that the whole session lands.
pub(crate) fn select(
    project: &Project,
    record: &SessionRecord,
    snapshot: &Snapshot,
    target: &BranchName,
    options: &LandingOptions,
) -> Result<Option<HunkSelection>> {
    if options.hunks.is_empty() {
        return Ok(None);
    }
    if options.strategy != MergeStrategy::Squash {
        return Err(Failure::usage("--hunks requires --strategy squash")
            .because("the chosen hunks are one commit, not those of the agent"));
    }
    if record.base.branch.as_ref() != Some(target) {
        return Err(Failure::usage("hunks can only land on the session's own branch")
            .because("the rest of the session is compared with that branch")
            .hint(format!("studio accept {} --onto {target}    lands all of it", record.id)));
    }
    let repository = &project.repository;
    let repo = repository.open()?;
    let base = collect::base_for(&repo, repository, record, &snapshot.head, Some(target))?;
    let files = hunks::read(&repo, base.commit(), &snapshot.work)?;
    let ids = resolve(&files, &options.hunks, record)?;
    let all = files.iter().map(|file| file.hunks.len()).sum::<usize>();
    if ids.len() == all {
        return Ok(None);
    }
    let is_chosen = |hunk: &DiffHunk| ids.contains(&hunk.id);
    let chosen = accepted_hunks::commit(
        repository,
        &record.session_repo,
        (&base.merge_base, base.commit()),
        &files,
        &is_chosen,
        project.clock.now(),
    )?;
    let landed = LandedHunks { remaining: all - ids.len(), ids };
    Ok(Some(HunkSelection { chosen, landed }))
}

/// Returns the ids of the named hunks; a name is an id or the unique start of one.
fn resolve(files: &[FilePatch], names: &[String], record: &SessionRecord) -> Result<Vec<String>> {
    let known = || files.iter().flat_map(|file| &file.hunks).map(|hunk| &hunk.id);
    let mut ids: Vec<String> = Vec::new();
    for name in names {
        let matching: Vec<&String> =
            known().filter(|id| !name.is_empty() && id.starts_with(name)).collect();
        let id = match matching.as_slice() {
            [id] => (*id).clone(),
            [] => {
                return Err(Failure::not_found(format!("no such hunk: `{name}`"))
                    .because("it landed already, or the work has changed since it was shown")
                    .hint(format!("studio review {} --plain    lists the hunks", record.id)));
            }
            [_, ..] => {
                return Err(Failure::usage(format!("`{name}` is the start of several hunk ids"))
                    .hint(format!("studio review {} --plain    lists the hunks", record.id)));
            }
        };
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

impl HunkSelection {
    /// Returns the chosen hunks as the work to land.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            head: self.chosen.commit.clone(),
            work: self.chosen.commit.clone(),
            number: None,
            omissions: Vec::new(),
            changed_by_checks: Vec::new(),
        }
    }

    /// Returns the commit that the work to land is merged from.
    pub(crate) fn base(&self) -> &str {
        &self.chosen.base
    }

    /// Returns the result to show.
    pub(crate) fn landed(&self) -> LandedHunks {
        self.landed.clone()
    }

    /// Returns the move of the session's base to a commit that contains the landed hunks.
    pub(crate) fn base_update(
        &self,
        repository: &Repository,
        session_repo: &SessionRepo,
        landed: &str,
        now: jiff::Timestamp,
    ) -> Result<BaseUpdate> {
        accepted_hunks::update_base(repository, session_repo, &self.chosen, landed, now)
    }
}

/// Collects the work of a session again after its base moved, for the holder of its lock: lists show
/// its numbers. Without them, the next command that collects the work corrects the numbers.
pub fn record_work(project: &Project, record: &SessionRecord) {
    let limits = SnapshotLimits::default();
    let Ok(collected) = collect::collect(&project.repository, record, &limits) else { return };
    if let Ok(mut writer) = project.store.writer(&record.id, project.clock) {
        let _ = writer.write(JournalEntry::Work(collected.work));
    }
}
