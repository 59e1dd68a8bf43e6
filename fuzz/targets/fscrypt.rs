#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|input: &[u8]| extol_hostile::targets::run("fscrypt", input));
