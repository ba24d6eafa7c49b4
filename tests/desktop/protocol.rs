//! Tests of the protocol: one response per request, the end of input, and errors without a desktop.

use base::desktop_protocol::{CaptureTarget, DesktopRequest, DesktopResponse};

use crate::support::Helper;

#[test]
fn each_request_gets_one_response_in_order_until_stdin_ends() {
    let mut helper = Helper::nowhere(&[]);
    helper.send(r#"{"id": 5, "ask": "screen"}"#);
    helper.send("not json");
    helper.send(r#"{"id": 6, "ask": "act", "action": "fly"}"#);
    helper.send(r#"{"id": 7, "ask": "levitate"}"#);
    helper.says_no_more();
    let told: Vec<_> = (0..4).map(|_| helper.told()).collect();
    assert_eq!(told.iter().map(|told| told.id).collect::<Vec<_>>(), [5, 0, 6, 7]);
    let sentences: Vec<String> = told
        .into_iter()
        .map(|told| match told.what {
            DesktopResponse::Fault(fault) => fault.failure().sentence(),
            other => panic!("{other:?}"),
        })
        .collect();
    says(&sentences[0], "no desktop session");
    says(&sentences[1], "this line is not a question");
    says(&sentences[2], "fly");
    says(&sentences[3], "does not know what it was asked");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let status = helper.running.wait_until(Some(end)).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(0));
}

#[track_caller]
fn says(sentence: &str, words: &str) {
    assert!(sentence.contains(words), "`{words}` is not in `{sentence}`");
}

#[test]
fn a_display_without_a_server_is_a_fault_that_names_it() {
    let mut helper = Helper::nowhere(&[("DISPLAY", ":4242")]);
    for ask in [
        DesktopRequest::Screen,
        DesktopRequest::Windows,
        DesktopRequest::Maximize,
        DesktopRequest::Capture(CaptureTarget::default()),
    ] {
        let fault = helper.fault(ask);
        assert!(fault.what.contains(":4242"), "{fault:?}");
    }
}
