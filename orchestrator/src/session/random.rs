//! Random bytes for ids: from the system, or derived from `G3_TEST_SEED` in tests.

use std::fs::File;
use std::io::Read;

use base::failure::{OrFail, Result};
use sha2::{Digest, Sha256};

/// Four bytes; `text` and `n` make them differ where a seed is set.
pub fn four(text: &str, n: u32) -> Result<[u8; 4]> {
    let mut bytes = [0u8; 4];
    match std::env::var("G3_TEST_SEED") {
        Ok(seed) => {
            let digest = Sha256::digest(format!("{seed}\0{text}\0{n}"));
            bytes.copy_from_slice(&digest[..4]);
        }
        Err(_) => File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .or_fail(|| "the system gives no random bytes")?,
    }
    Ok(bytes)
}
