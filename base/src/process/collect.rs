//! Reads the output of a process without ever blocking it.

use std::io::Read;
use std::sync::mpsc;
use std::time::Instant;

/// Reads one stream to its end on a thread and keeps a limited part.
pub(crate) struct Collector {
    chunks: mpsc::Receiver<Vec<u8>>,
    limit: usize,
}

impl Collector {
    /// Starts the reader.
    pub(crate) fn start(stream: Option<impl Read + Send + 'static>, limit: usize) -> Collector {
        let (tx, chunks) = mpsc::sync_channel(16);
        if let Some(mut stream) = stream {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    if tx.send(buffer[..n].to_vec()).is_err() {
                        break;
                    }
                }
            });
        }
        // The reader must never wait for this side, so another thread collects what it reads.
        let (limited_tx, limited_rx) = mpsc::channel();
        std::thread::spawn(move || {
            let mut length = 0usize;
            for mut chunk in chunks {
                chunk.truncate(limit.saturating_sub(length));
                length += chunk.len();
                if !chunk.is_empty() && limited_tx.send(chunk).is_err() {
                    break;
                }
            }
        });
        Collector { chunks: limited_rx, limit }
    }

    /// Returns what was read until the stream ended or the deadline passed.
    pub(crate) fn finish(self, deadline: Instant) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < self.limit {
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(remaining) {
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(_) => break,
            }
        }
        bytes
    }
}
