//! Tests of [`super::Command`] with real processes.

use std::io::Read;

use super::*;

fn sh(line: &str) -> Command {
    Command::new("sh", "/").args(["-c", line])
}

#[test]
fn both_streams_and_the_exit_code_are_reported() {
    let out = sh("echo out; echo err >&2; exit 3").output(OutputLimits::seconds(10)).unwrap();
    assert_eq!((out.text().as_str(), out.error_text().as_str(), out.code()), ("out", "err", 3));
    let killed = sh("kill -9 $$").output(OutputLimits::seconds(10)).unwrap();
    assert_eq!((killed.error_text().as_str(), killed.code()), ("it was killed by signal 9", 137));
    let killed = sh("echo err >&2; kill -9 $$").output(OutputLimits::seconds(10)).unwrap();
    assert_eq!(killed.error_text(), "err");
}

#[test]
fn a_timeout_kills_the_group_and_keeps_the_output() {
    let limits = OutputLimits { time: Some(Duration::from_millis(300)), bytes: 1000 };
    let out = sh("echo early; sleep 600 & echo $!; sleep 600").output(limits).unwrap();
    assert!(out.timed_out);
    let text = out.text();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("early"));
    let grandchild: u32 = lines.next().unwrap().parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while is_alive(grandchild) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(!is_alive(grandchild), "the grandchild lives");
}

#[test]
fn a_process_that_has_ended_is_not_alive_before_its_parent_has_waited_for_it() {
    let mut child = sh("exit 0").spawn().unwrap();
    let is_defunct =
        || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") Z ");
    while !is_defunct() {
        std::thread::yield_now();
    }
    assert!(!is_alive(child.id()));
    child.wait_until(None).unwrap();
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_block() {
    let out = sh("setsid sleep 600 & echo $!").output(OutputLimits::seconds(60)).unwrap();
    let grandchild: u32 = out.text().parse().unwrap();
    assert!(!out.timed_out && is_alive(grandchild));
    signal_group(grandchild, rustix::process::Signal::KILL);
}

#[test]
fn output_past_the_limit_is_discarded_and_does_not_block() {
    let limits = OutputLimits { time: Some(Duration::from_secs(20)), bytes: 1000 };
    let out = sh("head -c 5000000 /dev/zero").output(limits).unwrap();
    assert_eq!((out.stdout.len(), out.code()), (1000, 0));
}

#[test]
fn descriptors_arrive_under_their_numbers() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let job = sh("echo hello >&5; echo world >&6").descriptor(write.try_clone().unwrap(), 5);
    assert!(job.descriptor(write, 6).output(OutputLimits::seconds(10)).unwrap().ok());
    let mut text = String::new();
    std::fs::File::from(read).read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\nworld\n");
}

#[test]
fn a_missing_program_is_named() {
    let error = Command::new("no-such-program", "/").output(OutputLimits::seconds(1)).unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[tokio::test]
async fn output_on_the_runtime_behaves_the_same() {
    let out =
        sh("cat; echo err >&2; exit 3").input("in").output_async(OutputLimits::seconds(10)).await;
    let out = out.unwrap();
    assert_eq!((out.text().as_str(), out.error_text().as_str(), out.code()), ("in", "err", 3));
    let limits = OutputLimits { time: Some(Duration::from_millis(200)), bytes: 3 };
    let out = sh("echo early; sleep 600").output_async(limits).await.unwrap();
    assert!(out.timed_out && out.stdout == b"ear");
    let out =
        sh("setsid sleep 600 & echo $!").output_async(OutputLimits::seconds(60)).await.unwrap();
    let grandchild: u32 = out.text().parse().unwrap();
    assert!(!out.timed_out && is_alive(grandchild));
    signal_group(grandchild, rustix::process::Signal::KILL);
}
