//! Detects patterns of `.gitignore` and `.gitattributes` that libgit2 would match for years: its
//! time grows exponentially with the number of `*`. git has matched them quickly since 2.41.

/// Maximum number of separate `*` in one pattern. Real ones have four or five.
const MAX_STARS: usize = 12;

/// Returns the first line, starting at 1, whose pattern takes too long.
pub(crate) fn find_first(text: &[u8]) -> Option<usize> {
    text.split(|byte| *byte == b'\n')
        .position(|line| count_stars(line) > MAX_STARS)
        .map(|index| index + 1)
}

/// Returns the number of runs of `*` in a line that is not a comment.
fn count_stars(line: &[u8]) -> usize {
    if line.starts_with(b"#") {
        return 0;
    }
    let pattern = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty());
    let pattern = pattern.unwrap_or_default();
    let starts_run =
        |index: usize| pattern[index] == b'*' && (index == 0 || pattern[index - 1] != b'*');
    (0..pattern.len()).filter(|index| starts_run(*index)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patterns_with_very_many_stars_are_endless() {
        let allowed =
            "# *a*a*a*a*a*a*a*a*a*a*a*a*a*a*a\n*.o\n**/build/**/*.[ch]\n*.txt text eol=lf\n";
        assert_eq!(find_first(allowed.as_bytes()), None);
        let endless = format!("*.o\n{}b\n", "*a".repeat(60));
        assert_eq!(find_first(endless.as_bytes()), Some(2));
    }
}
