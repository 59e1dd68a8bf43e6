//! One binary for all targets: each function of `extol_hostile::targets` links the same code.
//! `EXTOL_FUZZ_TARGET` names the one that runs.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::LazyLock;

static NAME: LazyLock<String> =
    LazyLock::new(|| std::env::var("EXTOL_FUZZ_TARGET").expect("the name of a target"));

libfuzzer_sys::fuzz_target!(|input: &[u8]| extol_hostile::targets::run(&NAME, input));
