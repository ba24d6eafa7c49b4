//! What a place sends home while a session runs there: one JSON line for each frame, followed by as
//! many bytes as it says.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use serde::{Deserialize, Serialize};
use studio_git::lfs_objects::LfsFile;
use studio_git::replica::WorkRefs;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::launch::live_message::LiveMessagePart;

/// Maximum length of the line of a frame, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Maximum number of bytes of the journal in one frame.
pub(crate) const MAX_JOURNAL_BYTES: u64 = 64 << 20;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub(crate) enum PlaceFrame {
    /// The commits and snapshots of the session; a pack of this size follows.
    Work {
        /// The commits.
        work: WorkRefs,
        /// The size of the pack.
        bytes: u64,
    },
    /// A file in Git LFS that commits name which are sent after it; its content follows.
    LfsFile(LfsFile),
    /// Whole lines of the journal; this many bytes follow.
    Journal {
        /// The offset of the first line.
        at: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// A part of the message that the agent is writing; the journal has it when it is complete.
    Message(LiveMessagePart),
    /// The outcome of checks, as JSON of this many bytes, which follow.
    Checked {
        /// The number of bytes.
        bytes: u64,
    },
    /// The place is there, and there is nothing new.
    Alive,
    /// No supervisor runs, and everything was sent.
    Ended,
    /// The place has a later delivery of the session.
    Superseded,
}

/// Writes a frame and its bytes.
pub(crate) fn write(output: &mut impl Write, frame: &PlaceFrame, bytes: &[u8]) -> io::Result<()> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.write_all(bytes)?;
    output.flush()
}

/// Writes a frame and the content of a file.
pub(crate) fn write_file(
    output: &mut impl Write,
    frame: &PlaceFrame,
    mut file: File,
) -> io::Result<()> {
    write(output, frame, &[])?;
    file.rewind()?;
    io::copy(&mut file, output)?;
    output.flush()
}

/// Reads the line of the next frame; `None` at the end of the stream.
pub(crate) async fn read(
    input: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<PlaceFrame>> {
    let mut line = Vec::new();
    let mut limited = input.take(MAX_LINE_BYTES);
    if limited.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(io::Error::other("an incomplete or too long line"));
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::other)
}

/// Reads this many bytes.
pub(crate) async fn read_bytes(
    input: &mut (impl AsyncBufRead + Unpin),
    bytes: u64,
) -> io::Result<Vec<u8>> {
    if bytes > MAX_JOURNAL_BYTES {
        return Err(io::Error::other(format!("{bytes} bytes of the journal at once")));
    }
    let mut content = Vec::new();
    input.take(bytes).read_to_end(&mut content).await?;
    match content.len() as u64 == bytes {
        true => Ok(content),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads this many bytes into a temporary file, which is at its start afterwards.
pub(crate) async fn read_file(
    input: &mut (impl AsyncBufRead + Unpin),
    bytes: u64,
) -> io::Result<File> {
    let file = tempfile::tempfile()?;
    let mut target = tokio::fs::File::from_std(file.try_clone()?);
    let mut limited = input.take(bytes);
    if tokio::io::copy(&mut limited, &mut target).await? != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    tokio::io::AsyncWriteExt::flush(&mut target).await?;
    let mut file = file;
    file.rewind()?;
    Ok(file)
}

/// Reads this many bytes of a stream into a temporary file, which is at its start afterwards.
pub(crate) fn copy_to_file(input: &mut impl Read, bytes: u64) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    if io::copy(&mut input.take(bytes), &mut file)? != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn frames_are_read_as_they_were_written() {
        let work = WorkRefs { head: "1".repeat(40), snapshots: vec![(7, "2".repeat(40))] };
        let mut stream = Vec::new();
        write(&mut stream, &PlaceFrame::Journal { at: 7, bytes: 3 }, b"abc").unwrap();
        let mut pack = tempfile::tempfile().unwrap();
        pack.write_all(b"PACK").unwrap();
        let frame = PlaceFrame::Work { work, bytes: 4 };
        write_file(&mut stream, &frame, pack).unwrap();
        write(&mut stream, &PlaceFrame::Alive, b"").unwrap();
        let mut input = stream.as_slice();
        assert_eq!(read(&mut input).await.unwrap(), Some(PlaceFrame::Journal { at: 7, bytes: 3 }));
        assert_eq!(read_bytes(&mut input, 3).await.unwrap(), b"abc");
        assert_eq!(read(&mut input).await.unwrap(), Some(frame));
        let mut text = String::new();
        read_file(&mut input, 4).await.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "PACK");
        assert_eq!(read(&mut input).await.unwrap(), Some(PlaceFrame::Alive));
        assert_eq!(read(&mut input).await.unwrap(), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_stream_that_breaks_or_never_ends_is_an_error() {
        for stream in [&b"{\"frame\":\"ali"[..], b"\n", b"{}\n", b"[1]\n", b"{\"frame\":\"x\"}\n"] {
            let mut input = stream;
            assert!(read(&mut input).await.is_err(), "{stream:?}");
        }
        let endless = vec![b'x'; 2 << 20];
        assert!(read(&mut endless.as_slice()).await.is_err());
        assert!(read_bytes(&mut &b"ab"[..], 3).await.is_err());
        assert!(read_bytes(&mut &b"ab"[..], u64::MAX).await.is_err(), "nothing is reserved for it");
        assert!(read_file(&mut &b"ab"[..], 3).await.is_err());
    }
}
