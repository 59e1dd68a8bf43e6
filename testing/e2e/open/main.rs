//! Names of volumes: partitions, parts of images, and what is said of everything that is no ext4
//! volume. The programs that make such things are the oracle, and blkid(8), sfdisk(8) and e2fsck.

mod copies;
mod disk;
mod formats;
mod named;
mod parts;
mod tables;

use extol_testkit::Finished;

const MIB: u64 = 1 << 20;

#[path = "../../schema.rs"]
mod schema;

fn failed(done: &Finished, code: i32, words: &[&str]) {
    assert_eq!(done.code, Some(code), "{}", done.output);
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", done.output);
    for word in words {
        assert!(done.stderr.contains(word), "no \"{word}\": {}", done.output);
    }
}
