//! Fuzz targets: the diffs and patches that models write.

use std::path::Path;

use super::apply_patch::{self, FileStep};
use super::locate::MAX_ADDED_INDENT;
use super::{chunk, diff, hunks};

/// Splits the input at its first NUL: the text before a change, and the change.
fn before_and_change(data: &[u8]) -> (String, String) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(0);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&data[..at]), text(data.get(at + 1..).unwrap_or_default()))
}

/// A diff is applied whole or refused with a reason; the result is not larger than both texts, and
/// a diff that replaces all lines gives those lines.
pub fn unified_diff(data: &[u8]) {
    let (before, change) = before_and_change(data);
    let read = hunks::read(&change, Path::new("a.txt"));
    match diff::apply(&before, &read, None, None) {
        Ok(applied) => {
            let added = (2 + MAX_ADDED_INDENT) * change.lines().count();
            let most = before.len() + 2 * change.len() + added + 8;
            assert!(applied.text.len() <= most, "{} bytes of {most}", applied.text.len());
            assert!(applied.insertions + applied.deletions <= change.lines().count());
        }
        Err(error) => assert!(!error.text.is_empty()),
    }
    let is_plain = |text: &str| text.ends_with('\n') && !text.contains(['\r', '\u{feff}']);
    if is_plain(&before) && is_plain(&change) && before != change {
        let lines = |mark: char, text: &str| {
            text.lines().map(|line| format!("{mark}{line}\n")).collect::<String>()
        };
        let (old, new) = (before.lines().count(), change.lines().count());
        let (removed, added) = (lines('-', &before), lines('+', &change));
        let whole = format!("--- a.txt\n+++ a.txt\n@@ -1,{old} +1,{new} @@\n{removed}{added}");
        let applied = diff::apply(&before, &hunks::read(&whole, Path::new("a.txt")), None, None);
        assert_eq!(applied.map(|it| it.text).map_err(|e| e.text), Ok(change));
    }
}

/// A patch is read whole or refused with a line of its text; what is added is what it says.
pub fn patch_envelope(data: &[u8]) {
    let (before, text) = before_and_change(data);
    match apply_patch::read(&text) {
        Err(error) => {
            assert!(error.line.is_none_or(|line| (1..=text.lines().count()).contains(&line)));
            assert!(!error.message().is_empty());
        }
        Ok(patch) => {
            assert!(!patch.steps.is_empty());
            for step in &patch.steps {
                assert!(step.paths().iter().all(|path| text.contains(path)));
                if let FileStep::Update { chunks, .. } = step
                    && let Ok(changed) = chunk::apply(&before, chunks)
                {
                    let indents = MAX_ADDED_INDENT * text.lines().count();
                    let most = before.len() + 2 * text.len() + indents + 8;
                    assert!(changed.text.len() <= most, "{} bytes", changed.text.len());
                }
            }
        }
    }
}

#[cfg(test)]
mod short_runs {
    #[test]
    fn any_diff_is_applied_whole_or_refused() {
        short_fuzz::run("unified_diff", super::unified_diff);
    }

    #[test]
    fn any_patch_is_read_whole_or_refused() {
        short_fuzz::run("patch_envelope", super::patch_envelope);
    }
}
