//! Tests that unusable models are rejected with an error message before anything is loaded.

use std::path::{Path, PathBuf};

use base::model_host::wire::{HostFaultKind, HostResponse, HostResponseLine};
use testkit::env::TestEnv;

/// Returns a model file with a valid header and without weights.
fn head() -> Vec<u8> {
    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    text(&mut bytes, "general.architecture");
    bytes.extend(8u32.to_le_bytes());
    text(&mut bytes, "tiny");
    text(&mut bytes, "tiny.block_count");
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(2u32.to_le_bytes());
    text(&mut bytes, "weights");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(64u64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32) + 256, 0);
    bytes
}

fn file(env: &TestEnv, bytes: &[u8]) -> PathBuf {
    let path = env.home().join("m.gguf");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Asserts that the host rejects the file with this message, on stderr and to its parent process.
fn refuses(env: &TestEnv, model: &Path, more: &[&str], words: &str) {
    let socket = env.home().join("s");
    let job = env.command(env!("CARGO_BIN_EXE_g3-model"), env.home());
    let job = job.arg("--model").arg(model).arg("--socket").arg(&socket).args(more);
    let ran = env.run_command(job);
    ran.exits(2).output_contains(words);
    let told: HostResponseLine = serde_json::from_str(&ran.out).unwrap();
    let HostResponse::Error(fault) = told.what else { panic!("{told:?}") };
    assert_eq!(fault.kind, HostFaultKind::Rejected);
    assert!(!fault.next.is_empty(), "nothing to try: {fault:?}");
    assert!(!socket.exists());
}

#[test]
fn files_that_are_not_models_are_rejected() {
    let env = TestEnv::new();
    refuses(&env, &file(&env, b"<html>not a model</html>"), &[], "does not begin with `GGUF`");
    refuses(&env, &file(&env, b""), &[], "does not begin with `GGUF`");
    let mut newer = head();
    newer[4] = 9;
    refuses(&env, &file(&env, &newer), &[], "GGUF version 9");
}

#[test]
fn a_truncated_file_is_rejected_wherever_it_was_truncated() {
    let env = TestEnv::new();
    let whole = head();
    refuses(&env, &file(&env, &whole[..60]), &[], "the file ends within it");
    refuses(&env, &file(&env, &whole[..whole.len() - 1]), &[], "it was cut off");
    let mut absurd = whole.clone();
    absurd[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    refuses(&env, &file(&env, &absurd), &[], "a string is too long");
}

#[test]
fn a_pinned_hash_and_the_memory_are_checked() {
    let mut env = TestEnv::new();
    let path = file(&env, &head());
    refuses(&env, &path, &["--sha256", &"0".repeat(64)], "was pinned");
    env.set("G3_TEST_MEMORY", 1_000_000);
    refuses(&env, &path, &[], "too little memory");
}
