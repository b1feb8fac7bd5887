#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lmetric_fuzz::kv_events::run(input));
