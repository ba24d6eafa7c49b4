//! Compares the work of sessions with their branches and with each other: which of them conflict.

use std::collections::BTreeMap;

use base::parallel;
use studio_git::repo::Repository;

use crate::radar::{self, RadarSession};
use crate::session::collect::{self, BranchStanding};
use crate::session::store::SessionStore;
use crate::session_view::SessionView;

/// Maximum number of sessions that one call compares with their branch; the results are cached.
const MAX_COMPARED: usize = 20;
/// Maximum number of pairs of sessions that one call merges; the results are cached.
const MAX_MERGED_PAIRS: usize = 500;

/// Must change when results of earlier versions become invalid.
const CACHE_VERSION: &str = "2";

/// Determines which sessions conflict with their branch, and which with each other. Sessions for
/// which this fails or takes too long are left undetermined. Returns whether a further call would
/// determine more.
pub fn compare(repository: &Repository, store: &SessionStore, views: &mut [SessionView]) -> bool {
    let has_more_pairs = compare_pairs(repository, views);
    compare_with_branches(repository, store, views) || has_more_pairs
}

/// Determines which open sessions change the same lines, as of their last snapshots. Returns whether
/// a further call would determine more.
pub fn compare_pairs(repository: &Repository, views: &mut [SessionView]) -> bool {
    let of_view =
        |view: &SessionView| RadarSession::of(&view.record, &view.facts.summary, &view.state);
    let sessions: Vec<RadarSession> = views.iter().filter_map(of_view).collect();
    // One that cannot be compared leaves the marks away.
    let Ok(report) = radar::scan(repository, &sessions, MAX_MERGED_PAIRS) else { return false };
    let mut conflicts = report.by_session();
    for view in views.iter_mut().filter(|view| !view.state.is_over()) {
        let is_compared = !report.unreadable.contains(&view.record.id);
        let conflicts = conflicts.remove(&view.record.id).unwrap_or_default();
        view.conflicts_with = is_compared.then_some(conflicts);
    }
    report.skipped > 0 && report.merged > 0
}

fn compare_with_branches(
    repository: &Repository,
    store: &SessionStore,
    views: &mut [SessionView],
) -> bool {
    let cache = store.root().join("cache/standing.json");
    let cached: BTreeMap<String, BranchStanding> = std::fs::read(&cache)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let mut tips = BTreeMap::new();
    let mut keys = Vec::new();
    for (index, view) in views.iter().enumerate() {
        let Some(branch) = &view.record.base.branch else { continue };
        let settled = view.state.is_settled() && !view.state.is_over();
        let Some(work) = view.work().filter(|work| settled && work.is_changed()) else { continue };
        let tip = tips
            .entry(branch.as_str().to_owned())
            .or_insert_with(|| repository.tip(branch).ok().flatten());
        if let Some(tip) = tip {
            keys.push((index, format!("{CACHE_VERSION} {tip} {}", work.commit())));
        }
    }
    let missing: Vec<&(usize, String)> =
        keys.iter().filter(|(_, key)| !cached.contains_key(key)).collect();
    let now = &missing[..missing.len().min(MAX_COMPARED)];
    let compared = in_parallel(repository, views, now);
    let has_more = missing.len() > now.len();
    let has_new = !compared.is_empty();
    let standings: BTreeMap<String, BranchStanding> = keys
        .iter()
        .filter_map(|(_, key)| {
            let standing = compared.get(key).or_else(|| cached.get(key))?;
            Some((key.clone(), standing.clone()))
        })
        .collect();
    if has_new && let (Some(parent), Ok(text)) = (cache.parent(), serde_json::to_vec(&standings)) {
        // If the cache cannot be written, the sessions are compared again next time.
        let _ = std::fs::create_dir_all(parent)
            .and_then(|()| base::files::replace_cache(&cache, &text));
    }
    for (index, key) in keys {
        views[index].standing = standings.get(&key).cloned();
    }
    // If none could be compared, a further call would not compare them either.
    has_more && has_new
}

/// Names the sessions whose work landed elsewhere, one sentence each with the command that closes
/// them.
pub fn landed_elsewhere(views: &[SessionView]) -> impl Iterator<Item = String> {
    let open = views.iter().filter(|view| !view.state.is_over());
    open.filter_map(|view| {
        let (id, clause) = (&view.record.id, view.landed_elsewhere()?);
        Some(format!("`{id}` landed elsewhere: {clause}; studio accept {id} closes it"))
    })
}

fn in_parallel(
    repository: &Repository,
    views: &[SessionView],
    missing: &[&(usize, String)],
) -> BTreeMap<String, BranchStanding> {
    let compare = |missing: &&(usize, String)| {
        let (index, key) = *missing;
        let view = &views[*index];
        let standing = collect::branch_standing(repository, &view.record, view.work()?).ok()??;
        Some((key.clone(), standing))
    };
    parallel::map(missing, 1, compare).into_iter().flatten().collect()
}
