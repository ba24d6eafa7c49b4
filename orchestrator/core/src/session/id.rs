//! Resolves the session that the user names: a whole id, a unique prefix, `@latest`, or the only
//! one that fits. A prefix refers to an open session if there is one.

use base::failure::{Failure, FailureKind, Result};
use base::id::Id;

/// A candidate session.
#[derive(Clone, Debug)]
pub(crate) struct NamedSession {
    /// The session.
    pub id: Id,
    /// The creation time, RFC 3339 in UTC.
    pub created_at: String,
    /// Whether it is neither accepted nor discarded.
    pub is_open: bool,
    /// Whether the command could act on it, so that it is a candidate without a name.
    pub is_eligible: bool,
}

/// Resolves the name among all sessions, ordered oldest first; without a name, the only one that
/// fits.
pub(crate) fn resolve(name: Option<&str>, candidates: &[NamedSession]) -> Result<Id> {
    match name {
        None => resolve_only(candidates),
        Some("@latest") => candidates
            .iter()
            .max_by(|a, b| a.created_at.cmp(&b.created_at))
            .map(|session| session.id.clone())
            .ok_or_else(no_sessions),
        Some(text) => resolve_prefix(text, candidates),
    }
}

fn resolve_only(candidates: &[NamedSession]) -> Result<Id> {
    let eligible: Vec<&NamedSession> =
        candidates.iter().filter(|session| session.is_eligible).collect();
    match eligible.as_slice() {
        [session] => Ok(session.id.clone()),
        [] if candidates.is_empty() => Err(no_sessions()),
        [] => Err(Failure::not_found("no session matches this command").hint("studio list")),
        many => Err(Failure {
            kind: FailureKind::Usage,
            hints: vec!["studio list".to_owned()],
            ..ambiguous_failure("several sessions match; name one", many)
        }),
    }
}

fn resolve_prefix(text: &str, candidates: &[NamedSession]) -> Result<Id> {
    if let Some(exact) = candidates.iter().find(|session| session.id.as_str() == text) {
        return Ok(exact.id.clone());
    }
    let mut matching: Vec<&NamedSession> = candidates
        .iter()
        .filter(|session| !text.is_empty() && session.id.as_str().starts_with(text))
        .collect();
    if matching.iter().any(|session| session.is_open) {
        matching.retain(|session| session.is_open);
    }
    match matching.as_slice() {
        [session] => Ok(session.id.clone()),
        [] if candidates.is_empty() => Err(no_sessions()),
        [] => Err(Failure::not_found(format!("no such session: `{}`", printable_name(text)))
            .because("no id starts with it")
            .hint("studio list")),
        many => Err(ambiguous_failure(
            &format!("`{}` is the prefix of several ids", printable_name(text)),
            many,
        )),
    }
}

/// Returns the shortest prefix of an id that is unique among the sorted ids, at least four
/// characters.
pub fn shortest_prefix<'a>(id: &'a Id, sorted: &[Id]) -> &'a str {
    const MIN_LENGTH: usize = 4;
    let text = id.as_str();
    let index = sorted.partition_point(|other| other.as_str() < text);
    let previous = index.checked_sub(1).and_then(|index| sorted.get(index));
    let next = sorted[index..].iter().find(|other| *other != id);
    let common_length = |other: &Id| {
        let pairs = text.bytes().zip(other.as_str().bytes());
        pairs.take_while(|(left, right)| left == right).count()
    };
    let common = [previous, next].into_iter().flatten().map(common_length).max();
    // An id that is a prefix of another one is resolved as a whole.
    let length = common.map_or(0, |length| length + 1).max(MIN_LENGTH);
    // Ids are ASCII; a prefix that ends with a dash would look truncated.
    let length = if text.as_bytes().get(length - 1) == Some(&b'-') { length + 1 } else { length };
    text.get(..length).unwrap_or(text)
}

fn no_sessions() -> Failure {
    Failure::not_found("no sessions in this repository").hint("studio run 'your task'")
}

fn ambiguous_failure(message: &str, sessions: &[&NamedSession]) -> Failure {
    let names: Vec<&str> = sessions.iter().take(12).map(|session| session.id.as_str()).collect();
    Failure::not_found(message).because(names.join(", ")).hint("type more characters of the id")
}

fn printable_name(text: &str) -> String {
    base::text::printable(base::text::head(text, 80))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Vec<NamedSession> {
        [
            ("fix-login-aaaa", "2026-01-01", true, true),
            ("fix-logout-bbbb", "2026-01-02", true, false),
            ("fix-logs-cccc", "2025-01-01", false, false),
            ("fix-login-dddd", "2025-01-02", false, false),
            ("old-one-eeee", "2025-01-03", false, false),
            ("old-two-ffff", "2025-01-04", false, false),
        ]
        .map(|(id, created_at, is_open, is_eligible)| NamedSession {
            id: Id::parse(id).unwrap(),
            created_at: created_at.into(),
            is_open,
            is_eligible,
        })
        .to_vec()
    }

    fn resolved(name: Option<&str>) -> String {
        match resolve(name, &candidates()) {
            Ok(id) => id.to_string(),
            Err(failure) => format!("{}: {}", failure.exit_code(), failure.what),
        }
    }

    #[test]
    fn prefixes_are_as_short_as_possible() {
        let ids = |names: &[&str]| -> Vec<Id> {
            names.iter().map(|name| Id::parse(name).unwrap()).collect()
        };
        let sorted = ids(&["fix-login-7k3f", "fix-logs-x1y2", "write-a-ab12", "write-ab-cd34"]);
        let short: Vec<&str> = sorted.iter().map(|id| shortest_prefix(id, &sorted)).collect();
        assert_eq!(short, ["fix-logi", "fix-logs", "write-a-a", "write-ab"]);
        assert_eq!(shortest_prefix(&sorted[0], &sorted[..1]), "fix-l");
        for id in &sorted {
            let short = shortest_prefix(id, &sorted);
            assert_eq!(sorted.iter().filter(|it| it.as_str().starts_with(short)).count(), 1);
        }
        let sorted = ids(&["a-b", "a-b-c"]);
        assert_eq!(shortest_prefix(&sorted[0], &sorted), "a-b");
    }

    #[test]
    fn a_session_is_resolved_by_prefix_latest_or_uniqueness() {
        assert_eq!(resolved(Some("fix-login")), "fix-login-aaaa");
        assert_eq!(resolved(Some("fix-logout-bbbb")), "fix-logout-bbbb");
        assert_eq!(resolved(Some("@latest")), "fix-logout-bbbb");
        assert_eq!(resolved(None), "fix-login-aaaa");
        assert_eq!(resolved(Some("fix-log")), "5: `fix-log` is the prefix of several ids");
        assert_eq!(resolved(Some("fix-logs")), "fix-logs-cccc");
        assert_eq!(resolved(Some("fix-login-d")), "fix-login-dddd");
        assert_eq!(resolved(Some("old-")), "5: `old-` is the prefix of several ids");
        assert_eq!(resolved(Some("nope")), "5: no such session: `nope`");
        assert_eq!(resolved(Some("")), "5: no such session: ``");
    }
}
