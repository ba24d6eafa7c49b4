#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skills::fuzz_tests::skill_front_matter(data));
