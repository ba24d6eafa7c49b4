//! Collects matches in the order of the files, regardless of the order in which threads finish.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::searcher::{SkipReason, SyntaxMatch};

/// Maximum number of files named in a note.
const NAMED: usize = 5;

/// The results of one file.
#[derive(Default)]
pub(crate) struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Search index and its matches.
    pub found: Vec<(usize, Result<Vec<SyntaxMatch>, SkipReason>)>,
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
    pub more: bool,
}

/// The results of all searches.
pub(crate) struct SearchCollector {
    /// The totals of each search.
    pub sums: Vec<SearchTotals>,
    /// Number of files searched.
    pub files: usize,
    /// Number of parses.
    pub parses: usize,
    most: usize,
    next: usize,
    waiting: BTreeMap<usize, FileReport>,
    skipped: BTreeMap<SkipReason, Vec<PathBuf>>,
}

impl SearchCollector {
    /// Creates an empty collector for this many searches, with at most `most` matches each.
    pub(crate) fn new(searches: usize, most: usize) -> SearchCollector {
        SearchCollector {
            sums: (0..searches).map(|_| SearchTotals::default()).collect(),
            files: 0,
            parses: 0,
            most,
            next: 0,
            waiting: BTreeMap::new(),
            skipped: BTreeMap::new(),
        }
    }

    /// Adds the report of a file. It counts once all files before it have reported, so that the
    /// same matches are kept regardless of thread timing.
    pub(crate) fn add(&mut self, at: usize, report: FileReport) {
        self.waiting.insert(at, report);
        while let Some(report) = self.waiting.remove(&self.next) {
            self.next += 1;
            self.count(report);
        }
    }

    fn count(&mut self, report: FileReport) {
        let mut looked = false;
        for (number, found) in report.found {
            let sum = &mut self.sums[number];
            if sum.more {
                continue;
            }
            looked = true;
            match found {
                Ok(found) => {
                    sum.files += 1;
                    sum.matches.extend(found.into_iter().map(|one| (report.path.clone(), one)));
                    sum.more = sum.matches.len() > self.most;
                    sum.matches.truncate(self.most);
                }
                Err(why) => {
                    let files = self.skipped.entry(why).or_default();
                    if files.last() != Some(&report.path) {
                        files.push(report.path.clone());
                    }
                }
            }
        }
        self.files += usize::from(looked);
        self.parses += report.parses;
    }

    /// Whether a search has enough matches.
    pub(crate) fn is_full(&self, search: usize) -> bool {
        self.sums[search].more
    }

    /// Returns sentences about the skipped files.
    pub(crate) fn notes(&self, shown: impl Fn(&std::path::Path) -> String) -> Vec<String> {
        let note = |(why, files): (&SkipReason, &Vec<PathBuf>)| {
            let named: Vec<String> = files.iter().take(NAMED).map(|file| shown(file)).collect();
            let rest = files.len().saturating_sub(NAMED);
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("passed over, {}: {}{rest}", why.words(), named.join(", "))
        };
        self.skipped.iter().map(note).collect()
    }
}

impl SkipReason {
    fn words(self) -> String {
        match self {
            SkipReason::Binary => "binary".to_owned(),
            SkipReason::Huge => format!("larger than {} MiB", super::searcher::MAX_BYTES >> 20),
            SkipReason::Slow => {
                format!("not parsed and searched within {} s", super::searcher::PATIENCE.as_secs())
            }
            SkipReason::Unreadable => "not readable".to_owned(),
        }
    }
}
