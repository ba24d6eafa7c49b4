//! The loop: one request line, one response line, in order. Errors are responses too.

use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use base::desktop_protocol::{
    DesktopFault, DesktopRequest, DesktopRequestLine, DesktopResponse, DesktopResponseLine,
};
use base::failure::{Failure, Result};
use serde_json::Value;

use crate::dispatch::answer;

/// Answers requests until the input ends. Returns only I/O errors of the streams.
pub fn serve(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    for line in input.split(b'\n') {
        let line = line?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let mut response_line = serde_json::to_vec(&respond(&line, answer))?;
        response_line.push(b'\n');
        output.write_all(&response_line)?;
        output.flush()?;
    }
    Ok(())
}

/// Returns the response to one line.
fn respond(
    line: &[u8],
    answer: impl Fn(DesktopRequest) -> Result<DesktopResponse>,
) -> DesktopResponseLine {
    let request_line: DesktopRequestLine = match serde_json::from_slice(line) {
        Ok(request_line) => request_line,
        Err(error) => {
            let failure = Failure::usage("this line is not a question").because(error);
            return DesktopResponseLine {
                id: id_of(line),
                what: DesktopResponse::Fault(DesktopFault::of(failure)),
            };
        }
    };
    // A panicking library must not end the session's helper.
    let result = catch_unwind(AssertUnwindSafe(|| answer(request_line.what)));
    let result = result.unwrap_or_else(|panic| Err(panic_failure(&*panic)));
    DesktopResponseLine {
        id: request_line.id,
        what: result.unwrap_or_else(|failure| DesktopResponse::Fault(DesktopFault::of(failure))),
    }
}

/// Returns the id of an invalid request, if it has one.
fn id_of(line: &[u8]) -> u64 {
    let value: Value = serde_json::from_slice(line).unwrap_or_default();
    value.get("id").and_then(Value::as_u64).unwrap_or_default()
}

fn panic_failure(panic: &(dyn std::any::Any + Send)) -> Failure {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::failed("a desktop library broke down").because(message.unwrap_or("it did not say why"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fault(told: DesktopResponseLine) -> (u64, String) {
        match told.what {
            DesktopResponse::Fault(fault) => (told.id, fault.failure().sentence()),
            other => panic!("{other:?} is no fault"),
        }
    }

    #[test]
    fn an_invalid_request_gets_a_fault_with_its_id_if_it_has_one() {
        let never = |_| panic!("nobody asked");
        let (id, words) = fault(respond(br#"{"id": 7, "ask": "input"}"#, never));
        assert_eq!(id, 7);
        assert!(words.contains("steps"), "{words}");
        assert_eq!(fault(respond(b"{\"id\": 7", never)).0, 0);
        assert_eq!(fault(respond(b"\xff\xfe", never)).0, 0);
    }

    #[test]
    fn a_panic_is_a_fault() {
        let (id, words) =
            fault(respond(br#"{"id": 3, "ask": "screen"}"#, |_| panic!("no {}", "luck")));
        assert_eq!((id, words.as_str()), (3, "a desktop library broke down: no luck"));
    }

    #[test]
    fn an_unknown_request_is_a_fault_and_the_next_line_is_answered() {
        let input = b"{\"id\": 1, \"ask\": \"dance\"}\n\n{\"id\": 2, \"ask\": \"jump\"}";
        let mut output = Vec::new();
        serve(&input[..], &mut output).unwrap();
        let told: Vec<DesktopResponseLine> = String::from_utf8(output)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(told.iter().map(|told| told.id).collect::<Vec<_>>(), [1, 2]);
        assert!(told.iter().all(|told| matches!(told.what, DesktopResponse::Fault(_))));
    }
}
