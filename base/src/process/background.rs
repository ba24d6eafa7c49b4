//! Runs a program to its end on the tokio runtime: on drop or timeout its group is killed.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::process::{Command, DRAIN, GRACE, Output, OutputLimits, Stream};

impl Command {
    /// Like [`Command::output`], on the tokio runtime.
    pub async fn output_async(mut self, limits: OutputLimits) -> io::Result<Output> {
        let input = self.input.take();
        let command = if input.is_some() { self.stdin(Stream::Piped) } else { self };
        let mut running = command.spawn_async()?;
        if let (Some(bytes), Some(mut stdin)) = (input, running.child.stdin.take()) {
            // A child that does not read its input must not block the caller; one that exited reads
            // nothing.
            tokio::spawn(async move { stdin.write_all(&bytes).await });
        }
        let stdout = Head::of(running.child.stdout.take(), limits.bytes);
        let stderr = Head::of(running.child.stderr.take(), limits.bytes);
        let time = limits.time.unwrap_or(Duration::MAX);
        let (status, timed_out) = match timeout(time, running.child.wait()).await {
            Ok(status) => {
                // Processes that it left running are not killed, as with `output`.
                running.forget();
                (status?, false)
            }
            Err(_) => (running.end(GRACE).await?, true),
        };
        // A grandchild may hold the pipes open.
        let _ = timeout(DRAIN, async { tokio::join!(stdout.wait(), stderr.wait()) }).await;
        Ok(Output { status, timed_out, stdout: stdout.take(), stderr: stderr.take() })
    }
}

/// The first bytes of a stream; the rest is read and discarded.
struct Head {
    output: Arc<Mutex<Vec<u8>>>,
    done_rx: watch::Receiver<()>,
}

impl Head {
    fn of(stream: Option<impl AsyncRead + Unpin + Send + 'static>, max: usize) -> Head {
        let (output, (done_tx, done_rx)) = (Arc::default(), watch::channel(()));
        let head = Head { output: Arc::clone(&output), done_rx };
        tokio::spawn(async move {
            let _done_tx = done_tx;
            let Some(mut stream) = stream else { return };
            let mut buffer = vec![0; 16 << 10];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                let mut output = crate::sync::lock(&output);
                let count = max.saturating_sub(output.len()).min(n);
                output.extend_from_slice(&buffer[..count]);
            }
        });
        head
    }

    /// Waits for the end of the stream.
    async fn wait(&self) {
        while self.done_rx.clone().changed().await.is_ok() {}
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut crate::sync::lock(&self.output))
    }
}
