//! Cuts a diff to fit: every file gets its share, and what is missing is named.

use super::EvidenceChanges;

/// Bytes of a file's diff that are always shown.
const LEAST: usize = 400;

/// Changes in at most about so many bytes: a third for the list, the rest for the diffs.
pub(crate) fn to_fit(
    files: Vec<String>,
    diff: &str,
    mut notes: Vec<String>,
    room: usize,
) -> EvidenceChanges {
    let count = files.len();
    let mut left = room / 3;
    let fits = |line: &String| {
        let needed = line.len() + 1;
        let fits = needed <= left;
        left = left.saturating_sub(needed);
        fits
    };
    let files: Vec<String> = files.into_iter().take_while(fits).collect();
    if files.len() < count {
        notes.push(format!("{} more files changed than are listed", count - files.len()));
    }
    let parts = parts(diff);
    let shares = shares(&parts.iter().map(|part| part.len()).collect::<Vec<_>>(), room * 2 / 3);
    let mut shown = String::new();
    let mut hidden = 0;
    for (part, share) in parts.iter().zip(shares) {
        if share == 0 {
            hidden += 1;
        } else if share >= part.len() {
            shown.push_str(part);
        } else {
            let kept = base::text::head(part, share);
            let lines = part[kept.len()..].lines().count();
            shown.push_str(&format!("{kept}\n[cut: {lines} more lines of this diff]\n"));
        }
    }
    if hidden > 0 {
        notes.push(format!("the diffs of {hidden} files are not shown: read those files"));
    }
    EvidenceChanges { files, diff: shown, notes }
}

/// The diff of each file.
fn parts(diff: &str) -> Vec<&str> {
    let starts: Vec<usize> = std::iter::once(0)
        .chain(diff.match_indices("\ndiff --git ").map(|(at, _)| at + 1))
        .chain([diff.len()])
        .collect();
    let parts = starts.windows(2).map(|pair| &diff[pair[0]..pair[1]]);
    parts.filter(|part| !part.is_empty()).collect()
}

/// How many bytes each gets: the short ones all, the long ones the same share; the last ones
/// nothing where not even the least is left for each.
fn shares(lengths: &[usize], room: usize) -> Vec<usize> {
    let shown = lengths.len().min((room / LEAST).max(1));
    let mut order: Vec<usize> = (0..shown).collect();
    order.sort_by_key(|at| lengths[*at]);
    let mut shares = vec![0; lengths.len()];
    let mut left = room;
    for (done, at) in order.into_iter().enumerate() {
        shares[at] = lengths[at].min(left / (shown - done));
        left -= shares[at];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(lines: &[usize]) -> String {
        let one = |(n, lines): (usize, &usize)| {
            format!("diff --git a/{n} b/{n}\n{}", "+line\n".repeat(*lines))
        };
        lines.iter().enumerate().map(one).collect()
    }

    #[test]
    fn what_fits_is_whole() {
        let text = diff(&[3, 5]);
        let changes = to_fit(vec!["M 0".into(), "M 1".into()], &text, Vec::new(), 10_000);
        assert_eq!(changes.diff, text);
        assert!(changes.notes.is_empty());
    }

    #[test]
    fn a_long_diff_leaves_room_for_the_short_ones() {
        let changes = to_fit(vec!["M 0".into()], &diff(&[10_000, 4]), Vec::new(), 3_000);
        assert!(changes.diff.contains("[cut: ") && changes.diff.len() < 2_200);
        assert!(changes.diff.ends_with("b/1\n+line\n+line\n+line\n+line\n"), "{}", changes.diff);
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let files = (0..500).map(|n| format!("A file-{n}")).collect();
        let changes = to_fit(files, &diff(&[100; 50]), Vec::new(), 3_000);
        let notes = changes.notes.join("; ");
        assert!(notes.contains("more files changed than are listed"), "{notes}");
        assert!(notes.contains("are not shown"), "{notes}");
        assert!(changes.diff.len() < 2_500);
    }

    proptest::proptest! {
        #[test]
        fn shares_never_pass_the_room(lengths in proptest::collection::vec(0usize..5_000, 0..40), room in 0usize..9_000) {
            let shares = shares(&lengths, room);
            proptest::prop_assert!(shares.iter().sum::<usize>() <= room);
            proptest::prop_assert!(shares.iter().zip(&lengths).all(|(share, length)| share <= length));
        }
    }
}
