//! Images that are shorter than their volume: what is there is read, and nothing is written.

use crate::{MIB, failed};
use extol_testkit::{Need, Rig, extol_ok, require, run_extol, run_ok, text, tool};

#[test]
fn what_is_there_of_a_cut_image_is_read() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("debugfs")]) {
        return;
    }
    let rig = Rig::new();
    rig.mount(&[]);
    for n in 0..60_u8 {
        std::fs::write(rig.dir.join(format!("f{n}")), vec![n; 200_000]).expect("write");
    }
    assert!(rig.unmount(&[]).success());
    let name = text(&rig.image.path);
    let whole = std::fs::read(&rig.image.path).expect("read");
    let cut = u64::try_from(whole.len()).expect("a length") / 2;
    let file = std::fs::File::options().write(true).open(&rig.image.path).expect("open");
    file.set_len(cut).expect("cut");

    // One line, and what debugfs lists.
    let listed = run_extol(&["ls", name]);
    failed(&listed, 0, &["the volume is truncated", &cut.to_string(), "only read"]);
    let theirs = run_ok(tool("debugfs").args(["-c", "-R", "ls -p /", name]));
    for n in 0..60 {
        let file = format!("f{n}");
        assert!(theirs.contains(&format!("/{file}/")) && listed.output.contains(&file), "{n}");
    }
    let (mut there, mut missing) = (0, 0);
    for n in 0..60_u8 {
        let done = run_extol(&["cat", name, &format!("/f{n}")]);
        match done.code {
            Some(0) => there += 1,
            Some(32) => {
                assert!(done.stderr.contains("I/O error"), "{}", done.stderr);
                missing += 1;
            }
            code => panic!("{code:?}: {}", done.stderr),
        }
    }
    assert!(there > 0 && there + missing == 60, "{there} and {missing}");
    let info = extol_ok(&["info", name]);
    assert!(info.contains("the volume is truncated"), "{info}");

    // A mount that reads, and none that writes.
    extol_ok(&["mount", "-o", "ro", name, text(&rig.dir)]);
    let reads = (0..60_u8).filter(|n| {
        let read = std::fs::read(rig.dir.join(format!("f{n}")));
        read.is_ok_and(|bytes| bytes == vec![*n; 200_000])
    });
    assert_eq!(reads.count(), there);
    let remount = run_extol(&["remount", "-o", "rw", text(&rig.dir)]);
    assert!(!remount.success() && remount.stderr.contains("truncated"), "{}", remount.output);
    extol_ok(&["umount", text(&rig.dir)]);
    let refused = run_extol(&["mount", name, text(&rig.dir)]);
    failed(&refused, 32, &["the volume is truncated", "-o ro"]);
    failed(&run_extol(&["put", name, "/etc/hostname", "/"]), 32, &["truncated", "-o ro"]);
    let left = std::fs::read(&rig.image.path).expect("read");
    assert!(left[..] == whole[..left.len()], "it was written to");

    // A partition of a disk that was cut.
    let disk = rig.scratch.join("disk.img");
    let mut bytes = vec![0; 2 * MIB as usize];
    bytes.extend_from_slice(&whole);
    std::fs::write(&disk, &bytes).expect("write");
    let line = "printf 'label: dos\nstart=4096\n' | sfdisk -q $0";
    run_ok(tool("sh").args(["-c", line]).arg(&disk));
    let part = format!("{}:1", text(&disk));
    extol_ok(&["ls", &part]);
    let file = std::fs::File::options().write(true).open(&disk).expect("open");
    file.set_len(2 * MIB + cut).expect("cut");
    failed(&run_extol(&["ls", &part]), 0, &["the volume is truncated"]);
    failed(&run_extol(&["mkdir", &part, "/x"]), 32, &["was it cut?"]);
}
