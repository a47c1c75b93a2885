#![no_main]

libfuzzer_sys::fuzz_target!(init: tolerarch_text::yaml::hide_parser_panics(), |data: &[u8]| {
    tolerarch_fuzz::check(data);
});
