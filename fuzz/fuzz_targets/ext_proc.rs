#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lmetric_fuzz::ext_proc::run(input));
