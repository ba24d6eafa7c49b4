//! Divides a batch among the conversations: each that is generating gets its one token, those that
//! are reading share the rest. Pure.

/// Tokens of a batch if no conversation is generating; a cancelled chat waits for at most one
/// batch.
const MAX_READ: usize = 256;
/// Prompt tokens of a batch while others are generating, so that reading does not delay them for
/// long.
const MAX_READ_WHILE_WRITING: usize = 96;

/// What a conversation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Generate its next token.
    Write,
    /// Read this many tokens of its prompt.
    Read(usize),
}

/// Returns the number of tokens for each conversation in the next batch, in the same order.
pub(crate) fn share(needs: &[Need]) -> Vec<usize> {
    let writers = needs.iter().filter(|need| **need == Need::Write).count();
    let mut remaining = if writers > 0 { MAX_READ_WHILE_WRITING } else { MAX_READ };
    let mut shares = vec![0; needs.len()];
    // The shortest first, so that their unused share goes to the longer ones.
    let mut readers: Vec<(usize, usize)> = Vec::new();
    for (index, need) in needs.iter().enumerate() {
        match need {
            Need::Write => shares[index] = 1,
            Need::Read(needed) => readers.push((*needed, index)),
        }
    }
    readers.sort_unstable();
    let count = readers.len();
    for (position, (needed, index)) in readers.into_iter().enumerate() {
        let fair_share = remaining.div_ceil(count - position);
        shares[index] = needed.min(fair_share).min(remaining);
        remaining -= shares[index];
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn generation_continues_while_a_long_prompt_is_read() {
        assert_eq!(
            share(&[Need::Write, Need::Read(5000), Need::Write]),
            [1, MAX_READ_WHILE_WRITING, 1]
        );
        assert_eq!(share(&[Need::Read(5000), Need::Read(10)]), [MAX_READ - 10, 10]);
        assert_eq!(share(&[Need::Read(3)]), [3]);
    }

    proptest! {
        #[test]
        fn no_conversation_starves_and_no_batch_is_too_large(lengths in proptest::collection::vec(0usize..2000, 1..16)) {
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
            prop_assert!(shares.iter().sum::<usize>() <= MAX_READ + 16);
        }
    }
}
