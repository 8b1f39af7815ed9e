#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cgleaf_tests::fuzzing::run("mountinfo", data));
