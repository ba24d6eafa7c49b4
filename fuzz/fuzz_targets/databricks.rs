#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| provider::fuzz_tests::databricks(data));
