//! Repeated code: blocks of added lines that occur more than once among the added lines.

use std::collections::{BTreeSet, HashMap};

/// The number of lines of the smallest block.
const BLOCK_LINES: usize = 4;
/// The minimum number of characters of a block: closing brackets alone repeat everywhere.
const MIN_BLOCK_CHARACTERS: usize = 40;

/// Returns the number of lines in repetitions of an earlier block. Indentation and empty lines do
/// not count.
pub fn count(added: &[&str]) -> usize {
    let lines: Vec<&str> =
        added.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    let mut first_of: HashMap<&[&str], usize> = HashMap::new();
    let mut repeated: BTreeSet<usize> = BTreeSet::new();
    for (start, block) in lines.windows(BLOCK_LINES).enumerate() {
        if block.iter().map(|line| line.len()).sum::<usize>() < MIN_BLOCK_CHARACTERS {
            continue;
        }
        let first = *first_of.entry(block).or_insert(start);
        if start >= first + BLOCK_LINES {
            repeated.extend(start..start + BLOCK_LINES);
        }
    }
    repeated.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_counts_where_it_is_repeated() {
        let block =
            ["let first = read(path)?;", "  check(&first)?;", "", "write(&first)?;", "sync()?;"];
        assert_eq!(count(&block), 0);
        let indented: Vec<String> = block.iter().map(|line| format!("    {line}")).collect();
        let mut twice: Vec<&str> = block.to_vec();
        twice.push("between();");
        twice.extend(indented.iter().map(String::as_str));
        assert_eq!(count(&twice), 4);
        assert_eq!(count(&["}"; 20]), 0, "too short to be code");
    }
}
