#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| standard_tools::edit::fuzz_tests::unified_diff(data));
