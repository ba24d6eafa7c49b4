#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| studio_core::fuzz_tests::journal(data));
