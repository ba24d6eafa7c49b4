//! Live changes as server-sent events. Each event has an id, and a browser sends the last one when it
//! connects again, so that it misses nothing.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base::failure::OrFail;
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::json;

use crate::commands::changes::DirectoryWatcher;
use crate::serve::error_answer::ErrorAnswer;
use crate::serve::server::{PageServer, session_id};
use crate::serve::session_feed::FeedChange;

/// How often something is sent, so that a connection that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum number of bytes of a journal in one part of an answer.
const MAX_PART_BYTES: u64 = 1 << 20;

/// Returns the id of the last event that a browser got.
pub(super) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers.get("last-event-id")?.to_str().ok()
}

/// Returns the answer with the parts of a stream.
pub(super) fn event_stream(parts: impl Stream<Item = String> + Send + 'static) -> Response {
    use futures_util::StreamExt;
    let parts = parts.map(|part| Ok::<_, Infallible>(Bytes::from(part)));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts)).into_response()
}

/// Returns the text of an event.
pub(super) fn event(id: &str, name: &str, data: &str) -> String {
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

/// Where the stream of all sessions starts.
#[derive(Deserialize)]
pub(super) struct SessionsQuery {
    /// The id of the last event that is known.
    after: Option<String>,
}

/// The changes of all sessions: `sessions` with the ids of those that look different now, or
/// `everything` if a page must read everything again. The first event says where the stream starts.
pub(super) async fn sessions(
    State(server): State<PageServer>,
    Query(query): Query<SessionsQuery>,
    headers: HeaderMap,
) -> Response {
    let feed = server.feed();
    let given = last_event_id(&headers).or(query.after.as_deref());
    let start = given.map(|id| feed.number(id));
    let rx = feed.subscribe();
    let state = (feed, rx, start);
    event_stream(stream::unfold(state, |(feed, mut rx, at)| async move {
        let (last, part) = match at {
            // A new page has just been read.
            None => {
                let last = *rx.borrow_and_update();
                (last, event(&feed.event_id(last), "start", "{}"))
            }
            Some(number) => {
                let is_current = number.is_some_and(|it| it >= *rx.borrow_and_update());
                if is_current && tokio::time::timeout(KEEP_ALIVE, rx.changed()).await.is_err() {
                    return Some((": \n\n".to_owned(), (feed, rx, at)));
                }
                let (last, change) = feed.changes_since(number);
                let id = feed.event_id(last);
                let part = match change {
                    FeedChange::Everything => event(&id, "everything", "{}"),
                    FeedChange::Sessions(ids) => {
                        event(&id, "sessions", &json!({"sessions": ids}).to_string())
                    }
                };
                (last, part)
            }
        };
        Some((part, (feed, rx, Some(Some(last)))))
    }))
}

/// Where a journal is read from.
#[derive(Deserialize)]
pub(super) struct JournalQuery {
    /// The id of the last event that is known.
    after: Option<u64>,
}

/// The lines of a session's journal, one event each, whose id is the position after the line.
pub(super) async fn journal(
    State(server): State<PageServer>,
    path: Path<String>,
    Query(query): Query<JournalQuery>,
    headers: HeaderMap,
) -> std::result::Result<Response, ErrorAnswer> {
    let id = session_id(path).map_err(ErrorAnswer::api)?;
    let path = server
        .read(move |_, context| {
            // A session that does not exist has no events.
            context.view(&id)?;
            Ok(context.store.file(&id, "journal.jsonl"))
        })
        .await
        .map_err(ErrorAnswer::api)?;
    let after = last_event_id(&headers).and_then(|id| id.parse().ok()).or(query.after);
    let changes = DirectoryWatcher::start();
    changes.add(path.parent().unwrap_or(&path));
    let state = (path, after.unwrap_or(0), changes, 0_u32);
    Ok(event_stream(stream::unfold(state, |(path, offset, mut changes, mut idle)| async move {
        loop {
            let part = read_part(&path, offset).or_fail(|| "").unwrap_or_default();
            if let Some((text, end)) = part {
                return Some((text, (path, end, changes, 0)));
            }
            changes.next().await;
            idle += 1;
            // The watcher returns at least once a second.
            if u64::from(idle) >= KEEP_ALIVE.as_secs() {
                return Some((": \n\n".to_owned(), (path, offset, changes, 0)));
            }
        }
    })))
}

/// Returns the complete lines after an offset as events, and the offset after them. An offset that is
/// not the end of a line starts from the first line.
fn read_part(path: &PathBuf, offset: u64) -> io::Result<Option<(String, u64)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let mut before = [b'\n'];
    if offset > 0 && offset <= length {
        file.read_exact_at(&mut before, offset - 1)?;
    }
    let start = if offset > length || before != *b"\n" { 0 } else { offset };
    let mut max = MAX_PART_BYTES;
    loop {
        let size = usize::try_from((length - start).min(max)).map_err(io::Error::other)?;
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, start)?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if complete == 0 && (size as u64) < length - start {
            // One line is longer than a part.
            max *= 2;
            continue;
        }
        let mut end = start;
        let mut text = String::new();
        for line in bytes[..complete].split_inclusive(|byte| *byte == b'\n') {
            end += line.len() as u64;
            let line = String::from_utf8_lossy(line);
            // A carriage return ends a line of the stream too.
            let line = line.trim_end_matches('\n').replace('\r', " ");
            text.push_str(&event(&end.to_string(), "journal", &line));
        }
        return Ok((complete > 0).then_some((text, end)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_continues_after_the_last_event_without_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.jsonl");
        assert_eq!(read_part(&path, 0).unwrap(), None);
        std::fs::write(&path, "{\"a\":1}\n{\"b\":2}\n{\"torn").unwrap();
        let (text, end) = read_part(&path, 0).unwrap().unwrap();
        assert_eq!(
            text,
            "id: 8\nevent: journal\ndata: {\"a\":1}\n\nid: 16\nevent: journal\ndata: {\"b\":2}\n\n"
        );
        assert_eq!(end, 16);
        assert_eq!(read_part(&path, 16).unwrap(), None);
        let (text, _) = read_part(&path, 8).unwrap().unwrap();
        assert!(text.starts_with("id: 16\n"), "{text}");
        // A position of another file, or within a line, starts from the first line.
        for wrong in [3, 1000] {
            let (text, _) = read_part(&path, wrong).unwrap().unwrap();
            assert!(text.starts_with("id: 8\n"), "{text}");
        }
        let long = format!("\"{}\"\n", "x".repeat(3 << 20));
        std::fs::write(&path, &long).unwrap();
        assert_eq!(read_part(&path, 0).unwrap().unwrap().1, long.len() as u64);
    }
}
