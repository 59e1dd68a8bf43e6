//! The header is what cbindgen makes of the sources.

use std::path::Path;

/// Without the section that Rust wants of every unsafe function: a C program knows that pointers
/// are valid.
fn without_duties(header: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut in_section = false;
    for line in header.lines() {
        if line == "// # Safety" {
            in_section = true;
            // The empty line before it goes, too.
            kept.pop();
        }
        in_section &= line.starts_with("//");
        if !in_section {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn the_header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config =
        cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let version = env!("CARGO_PKG_VERSION");
    config.after_includes = Some(format!("\n#define EXTOL_VERSION \"{version}\"\n"));
    let made = cbindgen::Builder::new().with_crate(here).with_config(config).generate();
    let mut header = Vec::new();
    made.expect("a header").write(&mut header);
    let header = without_duties(std::str::from_utf8(&header).expect("text")).into_bytes();
    let path = here.join("include/extol.h");
    if std::env::var_os("EXTOL_BLESS").is_some() {
        std::fs::create_dir_all(here.join("include")).expect("mkdir");
        std::fs::write(&path, &header).expect("write");
    }
    let kept = std::fs::read(&path).unwrap_or_default();
    assert!(
        kept == header,
        "include/extol.h is not up to date: EXTOL_BLESS=1 cargo test -p extol-c --test header"
    );
}
