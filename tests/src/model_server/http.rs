//! A minimal HTTP/1.1 server: faults need the raw connection, for truncated bodies, resets and
//! stalls.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::ServerState;
use super::reply::{Delivery, Instead, ReplyEnd, ScriptedReply};
use super::request::{ReceivedRequest, RequestWire};
use super::wire;

/// Whether the connection continues after a reply.
#[derive(PartialEq)]
enum After {
    Keep,
    Close,
}

/// Answers requests on one connection until it ends.
pub fn serve(stream: TcpStream, state: &Arc<ServerState>) {
    let _ = stream.set_nodelay(true);
    let Ok(reading) = stream.try_clone() else { return };
    let mut reader = BufReader::new(reading);
    while let Ok(Some(request)) = read_request(&mut reader) {
        let number = state.record(&request);
        let reply = state.script().answer(&request);
        match send(&stream, state, &reply, &request, number) {
            Ok(After::Keep) => {}
            Ok(After::Close) => return,
            Err(_) => return state.count_hangup(),
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<ReceivedRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut raw = vec![0; length];
    reader.read_exact(&mut raw)?;
    let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    Ok(Some(ReceivedRequest { path, headers, raw, body }))
}

fn send(
    stream: &TcpStream,
    state: &ServerState,
    reply: &ScriptedReply,
    request: &ReceivedRequest,
    number: usize,
) -> io::Result<After> {
    if let Some(delay) = reply.delivery.delay {
        std::thread::park_timeout(delay);
    }
    let wire = request.wire();
    match (&reply.instead, wire) {
        (Some(Instead::Reset), _) => reset(stream),
        (Some(Instead::Stall), _) => stall(stream, state),
        (Some(Instead::Status(status, content)), _) => {
            let json = || ("application/json".to_owned(), wire::error(wire, *status));
            let (kind, body) = content.clone().unwrap_or_else(json);
            send_whole(stream, *status, &kind, &body, reply)
        }
        (Some(Instead::Raw(bytes)), _) => stream_out(stream, state, vec![bytes.clone()], reply),
        (None, None) => {
            let body = format!("the scripted model knows no path {}", request.path);
            send_whole(stream, 404, "text/plain", body.as_bytes(), reply)
        }
        (None, Some(wire)) => speak(stream, state, reply, request, (wire, number)),
    }
}

fn speak(
    stream: &TcpStream,
    state: &ServerState,
    reply: &ScriptedReply,
    request: &ReceivedRequest,
    (wire, number): (RequestWire, usize),
) -> io::Result<After> {
    if request.is_streamed() && !reply.delivery.whole {
        return stream_out(stream, state, wire::stream(reply, wire, number), reply);
    }
    send_whole(stream, 200, "application/json", &wire::whole(reply, wire, number), reply)
}

fn head(status: u16, content_type: &str, reply: &ScriptedReply, framing: &str) -> String {
    let mut head =
        format!("HTTP/1.1 {status} Scripted\r\ncontent-type: {content_type}\r\n{framing}\r\n");
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}

fn send_whole(
    mut stream: &TcpStream,
    status: u16,
    content_type: &str,
    body: &[u8],
    reply: &ScriptedReply,
) -> io::Result<After> {
    if reply.delivery.gate.as_ref().is_some_and(|gate| !gate.pass()) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let framing = format!("content-length: {}", body.len());
    let mut bytes = head(status, content_type, reply, &framing).into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)?;
    Ok(After::Keep)
}

/// Sends chunks as a chunked body, each when the gate opens, up to the end of the delivery.
fn stream_out(
    mut stream: &TcpStream,
    state: &ServerState,
    pieces: Vec<Vec<u8>>,
    reply: &ScriptedReply,
) -> io::Result<After> {
    let delivery = &reply.delivery;
    let zipped = if delivery.gzip { "\r\ncontent-encoding: gzip" } else { "" };
    let framing = format!("transfer-encoding: chunked{zipped}");
    stream.write_all(head(200, "text/event-stream; charset=utf-8", reply, &framing).as_bytes())?;
    let mut left = delivery.end.map_or(usize::MAX, |(bytes, _)| bytes);
    for (at, piece) in rechunked(pieces, delivery).into_iter().enumerate() {
        // The opening chunk is not held, so that a test can see that the stream has started.
        let held = at > 0 || delivery.chunk.is_some();
        if let Some(gate) = delivery.gate.as_ref().filter(|_| held)
            && !gate.pass()
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let piece = &piece[..piece.len().min(left)];
        left -= piece.len();
        if !piece.is_empty() {
            send_chunk(stream, piece)?;
        }
        if left == 0 {
            break;
        }
    }
    match delivery.end {
        None => stream.write_all(b"0\r\n\r\n").map(|()| After::Keep),
        Some((_, ReplyEnd::Cut)) => Ok(After::Close),
        Some((_, ReplyEnd::Reset)) => reset(stream),
        Some((_, ReplyEnd::Stall)) => stall(stream, state),
    }
}

fn send_chunk(mut stream: &TcpStream, piece: &[u8]) -> io::Result<()> {
    let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
    bytes.extend_from_slice(piece);
    bytes.extend_from_slice(b"\r\n");
    stream.write_all(&bytes)
}

fn rechunked(pieces: Vec<Vec<u8>>, delivery: &Delivery) -> Vec<Vec<u8>> {
    let pieces = if delivery.gzip { vec![gzip(&pieces.concat())] } else { pieces };
    match delivery.chunk {
        None => pieces,
        Some(size) => pieces.concat().chunks(size).map(<[u8]>::to_vec).collect(),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes every byte")
}

/// Closes with a reset: data that the client has not read is lost.
fn reset(stream: &TcpStream) -> io::Result<After> {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
    Ok(After::Close)
}

/// Sends nothing until the client disconnects or the server stops.
fn stall(mut stream: &TcpStream, state: &ServerState) -> io::Result<After> {
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    while !state.is_stopping() {
        match stream.read(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(After::Close)
}
