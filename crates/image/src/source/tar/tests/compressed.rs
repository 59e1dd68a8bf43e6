//! Compressed archives.

use std::fs;
use std::process::Command;

use extol_testkit::{Need, Scratch, require, run_ok};

use super::{error, file, list_tar};
use crate::source::compare::assert_same;
use crate::source::maker::Maker;
use crate::source::{Source as _, TarSource};
use crate::tree::{Limits, TreeBuilder};

#[test]
fn compressed_archives_are_the_same() {
    let tools = ["gzip", "xz", "zstd"].map(Need::Tool);
    if !require(&tools) {
        return;
    }
    let scratch = Scratch::new();
    let plain = scratch.join("x.tar");
    let noise: Vec<u8> = (0..900_000_u32).map(|nr| (nr.wrapping_mul(nr) >> 7) as u8).collect();
    let archive = file("a", &noise).entry("zeros", b'0', &vec![0; 3_000_000]);
    fs::write(&plain, archive.entry("b", b'0', b"end").end()).expect("write");
    let wanted = list_tar(&plain, scratch.path());
    for (nr, command) in [
        "gzip -c x.tar",
        "xz -c x.tar",
        "xz -C sha256 -9 -c x.tar",
        "zstd -q -c x.tar",
        "zstd -q --ultra -22 --no-check -c x.tar",
        // Several streams, one after the other.
        "head -c 700001 x.tar | gzip -c; tail -c +700002 x.tar | gzip -c",
        "head -c 700001 x.tar | xz -c; tail -c +700002 x.tar | xz -c",
        "head -c 700001 x.tar | zstd -q -c; tail -c +700002 x.tar | zstd -q -c",
        // A frame that is to be skipped.
        "printf '\\x50\\x2a\\x4d\\x18\\x03\\0\\0\\0abc'; zstd -q -c x.tar",
    ]
    .iter()
    .enumerate()
    {
        let path = scratch.join(&format!("{nr}"));
        let line = format!("({command}) > {nr}");
        run_ok(Command::new("bash").arg("-c").arg(line).current_dir(scratch.path()));
        assert_same(&list_tar(&path, scratch.path()), &wanted, command);
        // A wrong bit anywhere, or a missing end, is noticed.
        let bytes = fs::read(&path).expect("read");
        let is_unchecked = command.contains("--no-check") || command.starts_with("printf");
        for place in (0..7).map(|part| bytes.len() * part / 8 + 40).filter(|_| !is_unchecked) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 4;
            fs::write(scratch.join("damaged"), &damaged).expect("write");
            let mut source = TarSource::open(&scratch.join("damaged"), scratch.path());
            let source = source.as_mut().expect("opens");
            let scanned = source.scan(&mut TreeBuilder::new(Limits::default()));
            assert!(scanned.is_err(), "{command}: byte {place} of {}", bytes.len());
        }
        fs::write(scratch.join("cut"), &bytes[..bytes.len() - 3]).expect("write");
        let mut source = TarSource::open(&scratch.join("cut"), scratch.path()).expect("opens");
        source.scan(&mut TreeBuilder::new(Limits::default())).expect_err(command);
    }
    let left: Vec<_> = fs::read_dir(scratch.path()).expect("list").flatten().collect();
    let spools = left.iter().filter(|entry| entry.file_name().to_string_lossy().contains("spool"));
    assert_eq!(spools.count(), 0, "no spool stays");
}

#[test]
fn bombs_stop_at_the_limits() {
    if !require(&["gzip", "xz", "zstd"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::new();
    let mut maker = Maker::default();
    maker.header(b"zeros", b'0', 40 << 20, b"");
    maker.0.resize(maker.0.len() + (40 << 20), 0);
    fs::write(scratch.join("x.tar"), maker.end()).expect("write");
    for tool in ["gzip", "xz", "zstd"] {
        let line = format!("{tool} -c < x.tar > bomb");
        run_ok(Command::new("bash").arg("-c").arg(line).current_dir(scratch.path()));
        let limits = Limits { expand: 10 << 20, ..Limits::default() };
        let mut source = TarSource::open(&scratch.join("bomb"), scratch.path()).expect("opens");
        let error = source.scan(&mut TreeBuilder::new(limits)).expect_err("a bomb").to_string();
        let why = "has more than 10485760 bytes when it is expanded: allow more with --limits \
                   expand=NUMBER";
        assert!(error.ends_with(why), "{error}");
        let mut source = TarSource::open(&scratch.join("bomb"), scratch.path()).expect("opens");
        source.scan(&mut TreeBuilder::new(Limits::default())).expect("short sources are exempt");
    }
    for (bytes, why) in [
        (&b"BZh91AY"[..], "it is compressed with bzip2: decompress it first"),
        (b"\x1f\x8b\x08", ""),
        (b"\x28\xb5\x2f\xfd\x00", "zstd: "),
    ] {
        let error = error(bytes);
        assert!(error.contains(why), "{error}");
    }
}
