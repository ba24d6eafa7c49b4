//! Tool names for external tools that all wire formats accept: `mcp__SERVER__TOOL`.

use std::collections::BTreeMap;

/// The prefix of all these names.
pub(crate) const PREFIX: &str = "mcp__";
/// Maximum length that all wire formats accept.
const MAX_NAME: usize = 64;
/// Maximum length of the server's part.
const MAX_SERVER_PART: usize = 24;
/// Length of the hash that distinguishes equal parts, with its underscore.
const HASH_SUFFIX: usize = 9;

/// Returns the parts of servers. They are unique, and none contains the two underscores that
/// terminate it.
pub fn servers<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let server_part = |name: &str| {
        let mut part = sanitize(name);
        while part.contains("__") {
            part = part.replace("__", "_");
        }
        part.trim_matches('_').to_owned()
    };
    make_unique(names.into_iter().map(|name| (name, server_part(name))).collect(), MAX_SERVER_PART)
}

/// Returns the full names of a server's tools, in order. They are unique.
pub(crate) fn tools<'a>(server: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let prefix = format!("{PREFIX}{server}__");
    let max_part = MAX_NAME - prefix.len();
    let parts =
        make_unique(names.into_iter().map(|name| (name, sanitize(name))).collect(), max_part);
    parts.into_iter().map(|part| format!("{prefix}{part}")).collect()
}

/// Returns the server's part of a full name.
pub(crate) fn part_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?.split_once("__").map(|(part, _)| part)
}

fn sanitize(name: &str) -> String {
    let sanitize_char = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(sanitize_char).collect()
}

/// Adds a hash of the original name to parts that are too long, empty, or equal to another, so that
/// the result does not depend on their order.
fn make_unique(named_parts: Vec<(&str, String)>, max_part: usize) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, part) in &named_parts {
        *counts.entry(part.clone()).or_default() += 1;
    }
    let with_hash = |(name, part): (&str, String)| {
        if !part.is_empty() && part.len() <= max_part && counts.get(&part) == Some(&1) {
            return part;
        }
        let hash = base::config::trust::hash(name.as_bytes());
        let head = part[..part.len().min(max_part - HASH_SUFFIX)].trim_end_matches('_');
        format!("{head}_{}", &hash[..HASH_SUFFIX - 1]).trim_start_matches('_').to_owned()
    };
    named_parts.into_iter().map(with_hash).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_are_unchanged_and_others_are_sanitized() {
        assert_eq!(servers(["git", "my server", "a__b"]), ["git", "my_server", "a_b"]);
        assert_eq!(tools("git", ["log", "do.it"]), ["mcp__git__log", "mcp__git__do_it"]);
    }

    #[test]
    fn equal_names_are_distinguished_in_any_order() {
        let one = tools("s", ["a.b", "a/b", "c"]);
        let mut other = tools("s", ["c", "a/b", "a.b"]);
        other.reverse();
        assert_eq!(one, other);
        assert_ne!(one[0], one[1]);
        assert_eq!(one[2], "mcp__s__c");
    }

    #[test]
    fn a_server_part_that_is_cut_at_an_underscore_has_no_two_underscores() {
        let part = servers(["0a AaA0a a0A a{A aAa -Aa"]).remove(0);
        assert!(part.starts_with("0a_AaA0a_a0A_a") && !part.contains("__"), "{part}");
    }

    proptest! {
        #[test]
        fn every_name_is_safe_short_and_unique(
            server in ".{0,40}",
            names in proptest::collection::btree_set(".{0,90}", 1..6),
        ) {
            let part = servers([server.as_str(), "other"]).remove(0);
            prop_assert!(!part.contains("__") && !part.is_empty());
            let all = tools(&part, names.iter().map(String::as_str));
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), names.len());
            for name in all {
                prop_assert!(name.len() <= 64, "{}", name);
                let safe = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
                prop_assert!(name.chars().all(safe), "{}", name);
                let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once("__"));
                prop_assert_eq!(rest.map(|(server, _)| server), Some(part.as_str()));
            }
        }
    }
}
