//! Shares a batch out among the conversations: who writes gets its one token, who is still being
//! read shares the rest. Pure.

/// Tokens of one batch when nobody writes; a cancelled chat waits for one batch at most.
const READING: usize = 256;
/// Prompt tokens of one batch while others write: reading must not stop them for long.
const BESIDE_WRITING: usize = 96;

/// What a conversation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Its next token.
    Write,
    /// So many tokens of its prompt are to be read.
    Read(usize),
}

/// How many tokens each conversation gets in the next batch, in the same order.
pub(crate) fn share(needs: &[Need]) -> Vec<usize> {
    let writers = needs.iter().filter(|need| **need == Need::Write).count();
    let mut room = if writers > 0 { BESIDE_WRITING } else { READING };
    let mut shares = vec![0; needs.len()];
    // The shortest first, so that what one does not need falls to the longer ones.
    let mut readers: Vec<(usize, usize)> = Vec::new();
    for (index, need) in needs.iter().enumerate() {
        match need {
            Need::Write => shares[index] = 1,
            Need::Read(left) => readers.push((*left, index)),
        }
    }
    readers.sort_unstable();
    let count = readers.len();
    for (place, (left, index)) in readers.into_iter().enumerate() {
        let fair = room.div_ceil(count - place);
        shares[index] = left.min(fair).min(room);
        room -= shares[index];
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn writers_go_on_while_a_long_prompt_is_read() {
        assert_eq!(share(&[Need::Write, Need::Read(5000), Need::Write]), [1, BESIDE_WRITING, 1]);
        assert_eq!(share(&[Need::Read(5000), Need::Read(10)]), [READING - 10, 10]);
        assert_eq!(share(&[Need::Read(3)]), [3]);
    }

    proptest! {
        #[test]
        fn nobody_starves_and_no_batch_is_too_large(lengths in proptest::collection::vec(0usize..2000, 1..16)) {
            let needs: Vec<Need> = lengths
                .iter()
                .map(|n| if *n == 0 { Need::Write } else { Need::Read(*n) })
                .collect();
            let shares = share(&needs);
            for (need, share) in needs.iter().zip(&shares) {
                match need {
                    Need::Write => prop_assert_eq!(*share, 1),
                    Need::Read(left) => prop_assert!((1..=*left).contains(share)),
                }
            }
            prop_assert!(shares.iter().sum::<usize>() <= READING + 16);
        }
    }
}
