//! The short run of a fuzz target: every seed of `fuzz/corpus`, and a fixed number of mutations of
//! them. The same inputs on every run and machine; the long runs are described in
//! `docs/security.md`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Number of mutated inputs of a short run.
const RUNS: usize = 3000;
/// Maximum length of a mutated input in bytes.
const MAX_LENGTH: usize = 4096;
/// Bytes and words that parsers treat specially.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b"\t",
    b" ",
    b"\"",
    b"'",
    b"`",
    b"```\n",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"$(",
    b"<(",
    b"<<E\n",
    b";",
    b"&&",
    b"|",
    b":",
    b"---\n",
    b"\n\n",
    b"data: ",
    b"event: ",
    b"[DONE]",
    b"null",
    b"-1",
    b"18446744073709551615",
    b"1e999",
    b"../",
    b"/",
    b"\x1b[",
    b"\x1b]",
    b"\xff",
    b"\xe2\x80\xae",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x98\x80",
    b"*** End Patch\n",
    b"@@ -1,1 +1,1 @@\n",
    b"+",
    b"-",
    b"<tool_call>",
    b"</tool_call>",
    b"&a",
    b"*a",
    b"[[task]]\n",
];

/// Runs a target on its seeds and their mutations. Panics with the input that fails.
pub fn run(name: &str, target: impl Fn(&[u8])) {
    run_times(name, RUNS, target);
}

/// Like [`run`], with this number of mutations, for a slow target.
pub fn run_times(name: &str, runs: usize, target: impl Fn(&[u8])) {
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "fuzz/corpus/{name} has no seeds");
    seeds.iter().for_each(|seed| check(name, &target, seed));
    let runs = number("FUZZ_RUNS").unwrap_or(runs as u64);
    let seed = number("FUZZ_SEED").unwrap_or(0);
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ name.len() as u64 ^ (seed << 32));
    for _ in 0..runs {
        let mut input = random.choose(&seeds).clone();
        for _ in 0..=random.below(6) {
            mutate(&mut input, &seeds, &mut random);
        }
        input.truncate(MAX_LENGTH);
        check(name, &target, &input);
    }
}

/// Returns a number of the environment: `FUZZ_RUNS` mutations, beginning at `FUZZ_SEED`.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns the seeds of a target, in the order of their names.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn check(name: &str, target: &impl Fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let text = input.escape_ascii();
        let failure = panic.downcast_ref::<String>().cloned();
        let literal = || panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        match failure.or_else(literal) {
            Some(reason) => panic!("{name} fails on b\"{text}\": {reason}"),
            None => resume_unwind(panic),
        }
    }
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = (at + random.below(16)).min(input.len());
    match random.below(7) {
        0 => drop(input.drain(at..end)),
        1 => {
            let token = random.choose(TOKENS);
            input.splice(at..at, token.iter().copied());
        }
        2 => {
            let token = random.choose(TOKENS);
            input.splice(at..end, token.iter().copied());
        }
        3 if at < input.len() => input[at] ^= 1 << random.below(8),
        4 => {
            let copy = input[at..end].to_vec();
            let times = 1 + random.below(64);
            input.splice(at..at, copy.repeat(times));
        }
        5 => input.truncate(at),
        _ => {
            let other = random.choose(seeds);
            let from = random.below(other.len() + 1);
            let to = (from + random.below(64)).min(other.len());
            input.splice(at..at, other[from..to].iter().copied());
        }
    }
}

/// A generator of numbers (splitmix64) that is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below the limit; 0 if the limit is 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn choose<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
