//! Files of the host that are otherwise than they say.

use std::path::Path;

use extol_testkit::{Scratch, extol_ok, text};

/// Files of proc have no size, and contents all the same.
#[test]
fn files_without_a_size_have_their_contents() {
    let scratch = Scratch::new();
    let image = scratch.join("a.img");
    extol_ok(&["mkfs", "-d", "/proc/sys/kernel/random", "--exclude", "uuid", text(&image)]);
    let inside = extol_ok(&["cat", text(&image), "/boot_id"]);
    assert_eq!(inside, std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap());
    extol_ok(&["check", text(&image)]);
}

/// Files of sysfs say the size of a page, and hold less.
#[test]
fn files_of_sysfs_have_what_is_read_of_them() {
    let scratch = Scratch::new();
    let image = scratch.join("a.img");
    let (dir, name) = (Path::new("/sys/devices/virtual/mem/null"), "uevent");
    let there = std::fs::read(dir.join(name)).unwrap();
    assert!(there.len() as u64 != dir.join(name).metadata().unwrap().len());
    extol_ok(&["mkfs", "-q", "-d", text(dir), "--exclude", "power", text(&image)]);
    assert_eq!(extol_ok(&["cat", text(&image), name]).as_bytes(), there);
    extol_ok(&["check", text(&image)]);
    // The same by another way.
    extol_ok(&["put", text(&image), text(&dir.join(name)), "/put"]);
    assert_eq!(extol_ok(&["cat", text(&image), "/put"]).as_bytes(), there);
    let listed = extol_ok(&["ls", "-l", text(&image), "/put"]);
    assert!(listed.contains(&format!(" {} ", there.len())), "{listed}");
}
