//! Parses the hunks of a unified diff as models write them: headers, counts and the space before
//! context lines may be missing or wrong.

use std::path::Path;

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HunkLine {
    /// A context line.
    Keep(String),
    /// A removed line.
    Remove(String),
    /// An added line.
    Add(String),
}

/// A hunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// The first line in the old file, from 1, if the header specifies it.
    pub line: Option<usize>,
    /// The lines.
    pub lines: Vec<HunkLine>,
    /// Indices of lines without a newline at the end of the file.
    pub without_newline: Vec<usize>,
}

/// The diff of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileDiff {
    /// The hunks, in order.
    pub hunks: Vec<Hunk>,
    /// Whether the header says that the file is new.
    pub creates: bool,
    /// Whether the header says that the file is deleted.
    pub deletes: bool,
}

impl Hunk {
    /// Returns the lines that must be in the file.
    pub(crate) fn before(&self) -> Vec<&str> {
        self.lines.iter().filter_map(HunkLine::before).collect()
    }

    /// Returns the lines after the change.
    pub(crate) fn after(&self) -> Vec<&str> {
        self.lines.iter().filter_map(HunkLine::after).collect()
    }

    /// Whether the hunk changes anything.
    pub(crate) fn changes(&self) -> bool {
        !self.lines.iter().all(|line| matches!(line, HunkLine::Keep(_)))
    }
}

impl HunkLine {
    fn before(&self) -> Option<&str> {
        match self {
            HunkLine::Keep(text) | HunkLine::Remove(text) => Some(text),
            HunkLine::Add(_) => None,
        }
    }

    fn after(&self) -> Option<&str> {
        match self {
            HunkLine::Keep(text) | HunkLine::Add(text) => Some(text),
            HunkLine::Remove(_) => None,
        }
    }
}

/// Header lines between the files of a git diff.
const GIT_HEADERS: [&str; 12] = [
    "diff ",
    "index ",
    "new file mode",
    "deleted file mode",
    "old mode",
    "new mode",
    "similarity index",
    "dissimilarity index",
    "rename from",
    "rename to",
    "copy from",
    "copy to",
];

/// Parses a diff of the file at `path`.
pub(crate) fn read(diff: &str, path: &Path) -> FileDiff {
    let lines: Vec<&str> = diff.lines().collect();
    let lines = without_fence(&lines);
    let mut reader = Reader { path, ..Reader::default() };
    let mut index = 0;
    while index < lines.len() {
        index += reader.take(&lines[index..]);
    }
    reader.finish()
}

/// Returns the lines inside the code fence around a diff, whose end would be a line of a hunk if its
/// header counts too many.
fn without_fence<'l, 'd>(lines: &'l [&'d str]) -> &'l [&'d str] {
    let first = lines.iter().position(|line| !line.trim().is_empty());
    let last = lines.iter().rposition(|line| !line.trim().is_empty());
    match (first, last) {
        (Some(first), Some(last))
            if first < last && lines[first].starts_with("```") && lines[last].trim() == "```" =>
        {
            &lines[first + 1..last]
        }
        _ => lines,
    }
}

struct Reader<'p> {
    path: &'p Path,
    diff: FileDiff,
    current: Option<Hunk>,
    /// Number of lines of the old and of the new file that remain according to the header.
    remaining: (usize, usize),
}

impl Default for Reader<'_> {
    fn default() -> Self {
        Reader { path: Path::new(""), diff: FileDiff::default(), current: None, remaining: (0, 0) }
    }
}

impl Reader<'_> {
    /// Consumes lines from the start and returns how many.
    fn take(&mut self, lines: &[&str]) -> usize {
        let line = lines[0];
        let is_expected = self.remaining.0 + self.remaining.1 > 0;
        if !is_expected {
            if let Some((old, new)) = self.file_header(lines) {
                self.end_hunk();
                self.diff.creates |= old == "/dev/null";
                self.diff.deletes |= new == "/dev/null";
                return 2;
            }
            let is_git_header = GIT_HEADERS.iter().any(|start| line.starts_with(start));
            let is_before_hunks = self.current.is_none() || line.starts_with("diff --git ");
            if (is_git_header && is_before_hunks) || line.starts_with("```") {
                if line.starts_with("diff ") {
                    self.end_hunk();
                }
                return 1;
            }
        }
        if let Some(header) = line.strip_prefix("@@") {
            self.end_hunk();
            self.start_hunk(header);
            return 1;
        }
        if line.starts_with("\\ ") {
            let hunk = self.current.get_or_insert_default();
            hunk.without_newline.extend(hunk.lines.len().checked_sub(1));
            return 1;
        }
        self.content(line);
        1
    }

    /// Parses a file header. `--- a/x` and `+++ b/x` are a header only if they name this file (or
    /// none), since a removed line that starts with `-- ` looks the same.
    fn file_header<'l>(&self, lines: &[&'l str]) -> Option<(&'l str, &'l str)> {
        let old = lines[0].strip_prefix("--- ")?;
        let new = lines.get(1)?.strip_prefix("+++ ")?;
        let (old, new) = (name(old), name(new));
        let is_known_name = |name: &str| name == "/dev/null" || self.is_this_file(name);
        // Before the first `@@` only a header is possible, whatever names the model wrote.
        let first = self.current.is_none() && self.diff.hunks.is_empty();
        let is_opening = first && lines.get(2).is_some_and(|line| line.starts_with("@@"));
        (is_opening || (is_known_name(old) && is_known_name(new))).then_some((old, new))
    }

    fn is_this_file(&self, name: &str) -> bool {
        let without_prefix =
            name.strip_prefix("a/").or_else(|| name.strip_prefix("b/")).unwrap_or(name);
        !without_prefix.is_empty() && Path::new(without_prefix).file_name() == self.path.file_name()
    }

    /// Parses ` -10,3 +10,4 @@ …`. Missing counts are 1; missing numbers are ignored.
    fn start_hunk(&mut self, header: &str) {
        let mut hunk = Hunk::default();
        self.remaining = (0, 0);
        let ranges = header.split("@@").next().unwrap_or_default();
        for range in ranges.split_whitespace() {
            let Some(numbers) = range.strip_prefix(['-', '+']) else { continue };
            let (start, count) = numbers.split_once(',').unwrap_or((numbers, "1"));
            let (Ok(start), Ok(count)) = (start.parse::<usize>(), count.parse()) else { continue };
            if range.starts_with('-') {
                hunk.line = Some(start);
                self.remaining.0 = count;
            } else {
                self.remaining.1 = count;
            }
        }
        self.current = Some(hunk);
    }

    fn content(&mut self, line: &str) {
        let hunk = self.current.get_or_insert_default();
        let (old, new) = &mut self.remaining;
        let mut chars = line.chars();
        let line = match chars.next() {
            Some('-') => HunkLine::Remove(chars.as_str().to_owned()),
            Some('+') => HunkLine::Add(chars.as_str().to_owned()),
            Some(' ') => HunkLine::Keep(chars.as_str().to_owned()),
            // An empty context line, or one whose leading space is missing.
            Some(_) | None => HunkLine::Keep(line.to_owned()),
        };
        *old = old.saturating_sub(usize::from(line.before().is_some()));
        *new = new.saturating_sub(usize::from(line.after().is_some()));
        hunk.lines.push(line);
    }

    fn end_hunk(&mut self) {
        if let Some(hunk) = self.current.take()
            && !hunk.lines.is_empty()
        {
            self.diff.hunks.push(hunk);
        }
        self.remaining = (0, 0);
    }

    fn finish(mut self) -> FileDiff {
        self.end_hunk();
        self.diff
    }
}

/// Returns the file name in a header, without the timestamp that some programs append.
fn name(header: &str) -> &str {
    header.split('\t').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunks(diff: &str) -> Vec<Hunk> {
        read(diff, Path::new("src/a.sql")).hunks
    }

    fn old_new(hunk: &Hunk) -> (Vec<&str>, Vec<&str>) {
        (hunk.before(), hunk.after())
    }

    #[test]
    fn headers_are_optional_and_there_may_be_many_hunks() {
        let full = "diff --git a/src/a.sql b/src/a.sql\nindex 1..2 100644\n--- a/src/a.sql\n\
                    +++ b/src/a.sql\n@@ -3,2 +3,2 @@ fn\n a\n-b\n+c\n@@ -9 +9 @@\n-x\n+y\n";
        let found = hunks(full);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].line, Some(3));
        assert_eq!(old_new(&found[0]), (vec!["a", "b"], vec!["a", "c"]));
        assert_eq!((found[1].line, old_new(&found[1])), (Some(9), (vec!["x"], vec!["y"])));
        let minimal = hunks("@@\n a\n-b\n+c");
        assert_eq!(
            (minimal[0].line, old_new(&minimal[0])),
            (None, (vec!["a", "b"], vec!["a", "c"]))
        );
        assert_eq!(hunks(" a\n-b\n"), vec![Hunk { line: None, ..hunks("@@\n a\n-b")[0].clone() }]);
    }

    #[test]
    fn content_that_looks_like_a_header_is_content() {
        let found = hunks("@@ -1,2 +1,2 @@\n--- old comment\n+++ new\n keep\n");
        assert_eq!(old_new(&found[0]), (vec!["-- old comment", "keep"], vec!["++ new", "keep"]));
        let bare = hunks("--- drop this\n+++ take this\n");
        assert_eq!(old_new(&bare[0]), (vec!["-- drop this"], vec!["++ take this"]));
        let invented = hunks("--- original\n+++ modified\n@@ -1 +1 @@\n-a\n+b\n");
        assert_eq!((invented.len(), old_new(&invented[0])), (1, (vec!["a"], vec!["b"])));
        // Even if it is the name of the file itself, within the counts of the header.
        let named = hunks("@@ -1,2 +1,2 @@\n a\n--- a.sql\n+++ a.sql\n");
        assert_eq!(old_new(&named[0]), (vec!["a", "-- a.sql"], vec!["a", "++ a.sql"]));
    }

    #[test]
    fn empty_lines_and_lines_without_a_leading_space_are_context() {
        let found = hunks("@@ -1,4 +1,3 @@\n a\n\n}\n-b\n");
        assert_eq!(found[0].before(), ["a", "", "}", "b"]);
    }

    #[test]
    fn the_header_identifies_new_and_deleted_files() {
        let path = Path::new("n.txt");
        assert!(read("--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+a\n", path).creates);
        assert!(read("--- a/n.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", path).deletes);
    }
}
