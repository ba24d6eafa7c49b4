//! Messages on a pipe: a header that tells the length, then JSON. What else a server writes to its
//! stdout is passed over, as far as it is little.

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The longest message, in bytes.
const LONGEST: usize = 64 << 20;
/// The longest line of a header, in bytes.
const LINE: u64 = 16 << 10;
/// How much of what is no message is passed over, in bytes.
const NOISE: usize = 1 << 20;

/// Reads messages from a pipe.
pub(crate) struct FrameReader<R> {
    from: R,
    noise: usize,
}

impl<R: AsyncBufRead + Unpin> FrameReader<R> {
    /// Reads from here.
    pub(crate) fn new(from: R) -> FrameReader<R> {
        FrameReader { from, noise: 0 }
    }

    /// The next message; `None` at the end. The error says why nothing more can be read.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, String> {
        while let Some(length) = self.length().await? {
            let mut body = Vec::new();
            let read = (&mut self.from).take(length as u64).read_to_end(&mut body).await;
            if read.map_err(|why| why.to_string())? < length {
                return Ok(None);
            }
            match serde_json::from_slice(&body) {
                Ok(message) => return Ok(Some(message)),
                Err(_) => self.passes_over(length)?,
            }
        }
        Ok(None)
    }

    /// Reads a header to its end; the length that it tells.
    async fn length(&mut self) -> Result<Option<usize>, String> {
        let mut length = None;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.from).take(LINE).read_until(b'\n', &mut line).await;
            let read = read.map_err(|why| why.to_string())?;
            if read == 0 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
            match (length_in(&text), length) {
                (Some(told), _) if told > LONGEST => {
                    return Err(format!("it announced a message of {told} bytes"));
                }
                (Some(told), _) => length = Some(told),
                (None, Some(length)) if text.is_empty() => return Ok(Some(length)),
                (None, _) if text.is_empty() || text.starts_with("content-type:") => {}
                (None, _) => self.passes_over(read)?,
            }
        }
    }

    fn passes_over(&mut self, bytes: usize) -> Result<(), String> {
        self.noise += bytes;
        match self.noise > NOISE {
            true => Err("what it writes to stdout is not the protocol".to_owned()),
            false => Ok(()),
        }
    }
}

/// The length in a line of a header, also behind something that had no newline.
fn length_in(line: &str) -> Option<usize> {
    line.rsplit_once("content-length:")?.1.trim().parse().ok()
}

/// A message with its header.
pub(crate) fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// All messages in these bytes, read in pieces of this size.
    fn read(bytes: &[u8], piece: usize) -> (Vec<Value>, Result<(), String>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let from = tokio::io::BufReader::with_capacity(piece, bytes);
            let mut frames = FrameReader::new(from);
            let mut all = Vec::new();
            loop {
                match frames.next().await {
                    Ok(Some(message)) => all.push(message),
                    Ok(None) => return (all, Ok(())),
                    Err(why) => return (all, Err(why)),
                }
            }
        })
    }

    proptest! {
        #[test]
        fn messages_come_back_whatever_the_pieces_and_the_noise(
            texts in prop::collection::vec(".{0,30}", 0..6),
            noise in "[a-z{}: ]{0,20}",
            piece in 1usize..40,
        ) {
            let messages: Vec<Value> = texts.into_iter().map(|text| json!({ "t": text })).collect();
            let mut bytes = Vec::new();
            for message in &messages {
                bytes.extend(format!("{noise}\n").into_bytes());
                bytes.extend(noise.bytes());
                bytes.extend(framed(message));
            }
            prop_assert_eq!(read(&bytes, piece), (messages, Ok(())));
        }
    }

    #[test]
    fn what_is_no_json_is_passed_over_and_too_much_of_it_is_an_error() {
        let good = framed(&json!(1));
        let bad = b"Content-Length: 3\r\nContent-Type: x\r\n\r\n{]}".to_vec();
        assert_eq!(read(&[bad, good.clone()].concat(), 64).0, [json!(1)]);
        let noise = "no protocol\n".repeat(NOISE / 8).into_bytes();
        assert!(read(&noise, 4096).1.unwrap_err().contains("not the protocol"));
        let long = b"Content-Length: 99999999999\r\n\r\n".to_vec();
        assert!(read(&long, 64).1.unwrap_err().contains("99999999999 bytes"));
        assert_eq!(read(&good[..good.len() - 1], 64), (Vec::new(), Ok(())));
    }
}
