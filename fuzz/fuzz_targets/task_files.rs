#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| planner::fuzz_tests::task_files(data));
