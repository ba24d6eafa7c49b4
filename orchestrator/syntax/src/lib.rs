//! Merges two versions of a source file by its syntax, where a merge by lines conflicts.
//!
//! A merge by lines conflicts if both sides add something at the same place: a function, an import,
//! an entry of a list. Here such lists are merged entry by entry. Everything else is merged by lines
//! as git does it, and conflicts where git's merge does. The result is verified: it has no syntax
//! error, and it has every name and every word that the two sides have.
//!
//! Modules, from the bottom: `constructs` (which lists of a language are merged), `names` (how an
//! entry is identified), `siblings` (the entries of a list as text), `alignment` (which entries of
//! two versions belong together), `list_merge` and `node_merge` (the merge), `verification`.

mod alignment;
mod constructs;
mod list_merge;
mod names;
mod node_merge;
mod siblings;
mod verification;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use tree_sitter::{ParseOptions, Parser, Tree};

use crate::constructs::MergeLanguage;
use crate::node_merge::Side;

/// Maximum size of a file in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Time limit for parsing one version.
const PARSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Merges two versions of a file with a common base. Returns `None` if that is not safe: in languages
/// that are not known, if one of the versions has a syntax error, if both sides changed the same
/// thing, if both define the same name, or if the order of what they added matters.
pub fn merge(path: &Path, base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let texts = [base, ours, theirs];
    if texts.iter().any(|text| text.len() > MAX_BYTES || text.contains(&0)) {
        return None;
    }
    let line_end = common_line_end(&texts)?;
    let texts = texts.map(|text| std::str::from_utf8(text).ok());
    let [Some(base), Some(ours), Some(theirs)] = texts else { return None };
    if base.starts_with('\u{feff}') {
        return None;
    }
    let texts = [base, ours, theirs].map(|text| text.replace("\r\n", "\n"));
    let merged = constructs::LANGUAGES
        .iter()
        .filter(|language| language.grammar.matches(path))
        .find_map(|language| merge_in(language, &texts))?;
    Some(match line_end {
        LineEnd::Lf => merged.into_bytes(),
        LineEnd::CrLf => merged.replace('\n', "\r\n").into_bytes(),
    })
}

/// Merges texts of one language.
fn merge_in(language: &MergeLanguage, texts: &[String; 3]) -> Option<String> {
    let [base, ours, theirs] = texts;
    let trees = [parse(language, base)?, parse(language, ours)?, parse(language, theirs)?];
    let side = |index: usize| Side { text: &texts[index], node: trees[index].root_node() };
    let merged = node_merge::merge_nodes(language, side(0), side(1), side(2), 0)?;
    let result = parse(language, &merged)?;
    let sides = [
        (base.as_str(), &trees[0]),
        (ours.as_str(), &trees[1]),
        (theirs.as_str(), &trees[2]),
        (merged.as_str(), &result),
    ];
    verification::is_complete(language, sides).then_some(merged)
}

/// Parses a text; `None` if it has a syntax error or takes too long.
fn parse(language: &MergeLanguage, text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&(language.grammar.language)()).ok()?;
    let deadline = Instant::now() + PARSE_TIMEOUT;
    let mut progress = |_: &tree_sitter::ParseState| match Instant::now() >= deadline {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let mut read_at = |offset: usize, _| text.as_bytes().get(offset..).unwrap_or_default();
    let tree = parser.parse_with_options(&mut read_at, None, Some(options))?;
    (!tree.root_node().has_error()).then_some(tree)
}

/// How the lines of a text end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Lf,
    CrLf,
}

/// Returns how the lines of all versions end; `None` if they do not all end in the same way.
fn common_line_end(texts: &[&[u8]]) -> Option<LineEnd> {
    let mut counts = [0_usize; 2];
    for text in texts {
        for (n, byte) in text.iter().enumerate() {
            match byte {
                b'\r' if text.get(n + 1) != Some(&b'\n') => return None,
                b'\n' => counts[usize::from(n > 0 && text[n - 1] == b'\r')] += 1,
                _ => {}
            }
        }
    }
    match counts {
        [_, 0] => Some(LineEnd::Lf),
        [0, _] => Some(LineEnd::CrLf),
        [_, _] => None,
    }
}

#[cfg(test)]
mod tests;
