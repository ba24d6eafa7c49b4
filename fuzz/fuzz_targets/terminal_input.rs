#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| orchestrator::dashboard::fuzz_tests::terminal_input(data));
