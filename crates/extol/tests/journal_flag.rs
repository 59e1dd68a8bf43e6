//! `chattr +j` and back while the file is in use.

mod common;

use common::*;
use extol::vfs::{FileSystem, SetAttr};

const JOURNAL_DATA: u32 = 0x4000;

/// Data that was written without the flag is read later, even if journalled blocks were in memory.
/// Catches: journalled versions that stay in the buffer cache and return with the flag.
#[test]
fn the_newest_data_is_read_whatever_the_flag_was() {
    let dev = image("64M", &["-t", "ext4", "-b", "4096"]);
    let fs = open(&dev, "");
    let d = dir(&fs, fs.root(), "d");
    let ino = file(&fs, d, "f");
    let plain = fs.getattr(ino).unwrap().flags;
    let assert_reads = |round: u8, what: &str| {
        let mut found = vec![0; 50_000];
        assert_eq!(fs.read(ino, 0, &mut found).unwrap(), 50_000);
        assert!(found.iter().all(|b| *b == round), "round {round}, {what}: reads {}", found[0]);
    };
    for round in 1..=6u8 {
        let flags = if round % 2 == 1 { plain | JOURNAL_DATA } else { plain };
        fs.setattr(ino, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
        if round > 1 {
            assert_reads(round - 1, "with the other flag");
        }
        assert_eq!(fs.write(ino, 0, &[round; 50_000]).unwrap(), 50_000);
        fs.fsync(ino, false).unwrap();
        // In the log, and perhaps not checkpointed yet.
        assert_reads(round, "with the same flag");
    }
    fs.unmount().unwrap();
    assert_clean(&dev, "after changes of the flag");
}
