#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tolerarch_fuzz::config(data);
});
