//! Random bytes for ids: from the operating system, or derived from a seed in tests.

use base::failure::{OrFail, Result};
use base::test_hooks::TestHook;
use sha2::{Digest, Sha256};

/// Returns four bytes; with a seed, `text` and `n` vary them.
pub fn four_bytes(text: &str, n: u32) -> Result<[u8; 4]> {
    let Some(seed) = TestHook::Seed.value() else {
        return base::random::bytes().or_fail(|| "cannot read random bytes of the system");
    };
    let mut bytes = [0u8; 4];
    bytes.copy_from_slice(&Sha256::digest(format!("{seed}\0{text}\0{n}"))[..4]);
    Ok(bytes)
}
