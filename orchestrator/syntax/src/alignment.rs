//! Which entries of two versions of a list belong together.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// What identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryKey {
    /// Its text; entries with the same text are the same.
    pub text: String,
    /// The names that it defines; entries with the same names are versions of each other.
    pub names: Vec<String>,
    /// The kinds of its nodes.
    pub kinds: Vec<u16>,
}

/// What a side did with an entry of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is unchanged, at this index.
    Kept(usize),
    /// It is changed, at this index.
    Changed(usize),
    /// It is gone.
    Deleted,
}

/// How a side differs from the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// What happened to each entry of the base.
    pub fates: Vec<Fate>,
    /// The added entries before each entry of the base, and at the end.
    pub added: Vec<Vec<usize>>,
}

/// Compares a side with the base.
pub(crate) fn align(base: &[EntryKey], side: &[EntryKey]) -> Alignment {
    let mut alignment = Alignment {
        fates: vec![Fate::Deleted; base.len()],
        added: vec![Vec::new(); base.len() + 1],
    };
    let text = |key: &EntryKey| key.text.clone();
    let (old, new): (Vec<_>, Vec<_>) =
        (base.iter().map(text).collect(), side.iter().map(text).collect());
    let mut changed: Option<(Range<usize>, Range<usize>)> = None;
    for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            if let Some((old, new)) = changed.take() {
                alignment.pair(base, side, old, new);
            }
            for n in 0..len {
                alignment.fates[old_index + n] = Fate::Kept(new_index + n);
            }
            continue;
        }
        let (old, new) = (op.old_range(), op.new_range());
        changed = Some(match changed {
            Some((first_old, first_new)) => (first_old.start..old.end, first_new.start..new.end),
            None => (old, new),
        });
    }
    if let Some((old, new)) = changed {
        alignment.pair(base, side, old, new);
    }
    alignment
}

impl Alignment {
    /// Finds versions of each other in a region that differs: first by name, in order.
    fn pair(&mut self, base: &[EntryKey], side: &[EntryKey], old: Range<usize>, new: Range<usize>) {
        let (mut from_old, mut from_new) = (old.start, new.start);
        for n in old.clone() {
            let names = &base[n].names;
            let has_names = |m: &usize| !names.is_empty() && side[*m].names == *names;
            if let Some(m) = (from_new..new.end).find(has_names) {
                self.pair_unnamed(base, side, from_old..n, from_new..m);
                self.fates[n] = Fate::Changed(m);
                (from_old, from_new) = (n + 1, m + 1);
            }
        }
        self.pair_unnamed(base, side, from_old..old.end, from_new..new.end);
    }

    /// Pairs entries without names if there are as many as before, of the same kinds. Others are
    /// deleted and added.
    fn pair_unnamed(
        &mut self,
        base: &[EntryKey],
        side: &[EntryKey],
        old: Range<usize>,
        new: Range<usize>,
    ) {
        let is_pair = |(n, m): (usize, usize)| {
            let (old, new) = (&base[n], &side[m]);
            old.names.is_empty() && new.names.is_empty() && old.kinds == new.kinds
        };
        if old.len() == new.len() && old.clone().zip(new.clone()).all(is_pair) {
            for (n, m) in old.zip(new) {
                self.fates[n] = Fate::Changed(m);
            }
            return;
        }
        self.added[old.end].extend(new);
    }

    /// Returns whether an entry of the base beside this gap is deleted.
    pub(crate) fn is_deleted_beside(&self, gap: usize) -> bool {
        self.beside(gap).any(|fate| fate == Fate::Deleted)
    }

    /// Returns whether an entry of the base beside this gap is changed.
    pub(crate) fn is_changed_beside(&self, gap: usize) -> bool {
        self.beside(gap).any(|fate| matches!(fate, Fate::Changed(_)))
    }

    fn beside(&self, gap: usize) -> impl Iterator<Item = Fate> {
        let before = gap.checked_sub(1).and_then(|n| self.fates.get(n));
        before.into_iter().chain(self.fates.get(gap)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> EntryKey {
        let names = text.split_once('=').map(|(name, _)| name.to_owned());
        EntryKey { text: text.to_owned(), names: names.into_iter().collect(), kinds: vec![1] }
    }

    fn aligned(base: &[&str], side: &[&str]) -> Alignment {
        let keys = |texts: &[&str]| texts.iter().map(|text| key(text)).collect::<Vec<_>>();
        align(&keys(base), &keys(side))
    }

    #[test]
    fn entries_are_paired_by_text_then_by_name_then_by_number() {
        let named = aligned(&["a=1", "b=1", "c=1"], &["a=1", "b=2", "x=1", "c=1", "y=1"]);
        assert_eq!(named.fates, [Fate::Kept(0), Fate::Changed(1), Fate::Kept(3)]);
        assert_eq!(named.added, [vec![], vec![], vec![2], vec![4]]);
        let unnamed = aligned(&["1", "2", "3"], &["1", "4", "3", "5"]);
        assert_eq!(unnamed.fates, [Fate::Kept(0), Fate::Changed(1), Fate::Kept(2)]);
        assert_eq!(unnamed.added, [vec![], vec![], vec![], vec![3]]);
        let replaced = aligned(&["1", "2"], &["1", "4", "5"]);
        assert_eq!(replaced.fates, [Fate::Kept(0), Fate::Deleted]);
        assert_eq!(replaced.added, [vec![], vec![], vec![1, 2]]);
        assert!(replaced.is_deleted_beside(2) && !replaced.is_deleted_beside(0));
    }
}
