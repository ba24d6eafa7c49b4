//! Collects matches in the order of the files, regardless of the order in which threads finish.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::searcher::{SkipReason, SyntaxMatch};

/// Maximum number of files named in a note.
const MAX_NAMED: usize = 5;

/// The results of one file.
#[derive(Default)]
pub(crate) struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Search index and its matches.
    pub results: Vec<(usize, Result<Vec<SyntaxMatch>, SkipReason>)>,
    /// How often the file was parsed.
    pub parses: usize,
}

/// The results of one search.
#[derive(Default)]
pub(crate) struct SearchTotals {
    /// The matches with their files, in order.
    pub matches: Vec<(PathBuf, SyntaxMatch)>,
    /// Number of files searched until there were enough matches.
    pub files: usize,
    /// Whether there are more matches.
    pub has_more: bool,
}

/// The results of all searches.
pub(crate) struct SearchCollector {
    /// The totals of each search.
    pub totals: Vec<SearchTotals>,
    /// Number of files searched.
    pub files: usize,
    /// Number of parses.
    pub parses: usize,
    max_matches: usize,
    next: usize,
    pending: BTreeMap<usize, FileReport>,
    skipped: BTreeMap<SkipReason, Vec<PathBuf>>,
}

impl SearchCollector {
    /// Creates an empty collector for this many searches, with at most `max_matches` matches each.
    pub(crate) fn new(searches: usize, max_matches: usize) -> SearchCollector {
        SearchCollector {
            totals: (0..searches).map(|_| SearchTotals::default()).collect(),
            files: 0,
            parses: 0,
            max_matches,
            next: 0,
            pending: BTreeMap::new(),
            skipped: BTreeMap::new(),
        }
    }

    /// Adds the report of a file. It counts once all files before it have reported, so that the
    /// same matches are kept regardless of thread timing.
    pub(crate) fn add(&mut self, index: usize, report: FileReport) {
        self.pending.insert(index, report);
        while let Some(report) = self.pending.remove(&self.next) {
            self.next += 1;
            self.add_report(report);
        }
    }

    fn add_report(&mut self, report: FileReport) {
        let mut was_searched = false;
        for (search_index, result) in report.results {
            let search_totals = &mut self.totals[search_index];
            if search_totals.has_more {
                continue;
            }
            was_searched = true;
            match result {
                Ok(result) => {
                    search_totals.files += 1;
                    search_totals
                        .matches
                        .extend(result.into_iter().map(|hit| (report.path.clone(), hit)));
                    search_totals.has_more = search_totals.matches.len() > self.max_matches;
                    search_totals.matches.truncate(self.max_matches);
                }
                Err(reason) => {
                    let files = self.skipped.entry(reason).or_default();
                    if files.last() != Some(&report.path) {
                        files.push(report.path.clone());
                    }
                }
            }
        }
        self.files += usize::from(was_searched);
        self.parses += report.parses;
    }

    /// Whether a search has enough matches.
    pub(crate) fn is_full(&self, search: usize) -> bool {
        self.totals[search].has_more
    }

    /// Returns sentences about the skipped files.
    pub(crate) fn notes(&self, display_path: impl Fn(&std::path::Path) -> String) -> Vec<String> {
        let note = |(reason, files): (&SkipReason, &Vec<PathBuf>)| {
            let file_names: Vec<String> =
                files.iter().take(MAX_NAMED).map(|file| display_path(file)).collect();
            let rest = files.len().saturating_sub(MAX_NAMED);
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("passed over, {}: {}{rest}", reason.description(), file_names.join(", "))
        };
        self.skipped.iter().map(note).collect()
    }
}

impl SkipReason {
    fn description(self) -> String {
        match self {
            SkipReason::Binary => "binary".to_owned(),
            SkipReason::Huge => format!("larger than {} MiB", super::searcher::MAX_BYTES >> 20),
            SkipReason::Slow => {
                format!("not parsed and searched within {} s", super::searcher::TIMEOUT.as_secs())
            }
            SkipReason::Unreadable => "not readable".to_owned(),
        }
    }
}
