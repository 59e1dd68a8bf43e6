//! What is shown of quotas where none are asked for: statfs of a directory whose project has a
//! limit; and quota files of the old kind.

use extol::quotas::{Kind, Limits};
use extol::vfs::{Creds, FileSystem, NewNode, SetAttr, StatFs};
use extol::{Ext4, MountOptions};
use extol_guest::{End, Guest};
use extol_testkit::{Image, Need, Scratch, require};

use crate::ROOT;
use crate::limits::NONE;

const PROJECT: u32 = 77;
const PROJINHERIT: u32 = 0x2000_0000;

fn made(fs: &Ext4, name: &[u8], new: NewNode) -> u32 {
    let attr = fs.create(ROOT, name, new, 0o755, 0, Creds::default()).unwrap();
    attr.id.ino
}

/// Blocks, free ones, those that are available, inodes, free ones.
fn numbers(stat: StatFs) -> [u64; 5] {
    [stat.blocks, stat.blocks_free, stat.blocks_available, stat.inodes, stat.inodes_free]
}

/// A volume with a project that uses something, and a directory that hands it down.
fn with_project(image: &Image, limits: Limits) {
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    let dir = made(&fs, b"p", NewNode::Directory);
    let flags = Some(fs.getattr(dir).unwrap().flags | PROJINHERIT);
    let set = SetAttr { flags, project: Some(PROJECT), ..SetAttr::default() };
    fs.setattr(dir, &set).unwrap();
    let file = fs.create(dir, b"f", NewNode::Regular, 0o644, 0, Creds::default()).unwrap().id.ino;
    fs.write(file, 0, &vec![7; 300_000]).unwrap();
    made(&fs, b"q", NewNode::Directory);
    fs.set_limits(Kind::Project, &[PROJECT], limits).unwrap();
    [dir, file].into_iter().for_each(|ino| fs.forget(ino, 1));
    fs.unmount().unwrap();
}

fn numbers_of(line: &str) -> Vec<u64> {
    line.split(' ').map(|number| number.parse().unwrap()).collect()
}

fn shown(image: &Image, options: &str) -> Vec<[u64; 5]> {
    let fs = Ext4::open_path(&image.path, &MountOptions::parse(options).unwrap()).unwrap();
    let stats = ["/p", "/p/f", "/q"].map(|path| {
        let ino = fs.inode(path).unwrap().ino();
        numbers(fs.statfs_at(ino).unwrap())
    });
    fs.unmount().unwrap();
    stats.to_vec()
}

#[test]
fn a_directory_of_a_limited_project_shows_what_its_limits_leave() {
    if !require(&[Need::Guest, Need::Tool("mke2fs")]) {
        return;
    }
    let all = [
        Limits { space_hard: Some(1000), inode_hard: Some(50), ..NONE },
        // The lower one of two counts.
        Limits { space_soft: Some(500), space_hard: Some(1000), inode_soft: Some(9), ..NONE },
        // More is used than is allowed.
        Limits { space_hard: Some(100), inode_hard: Some(1), ..NONE },
        NONE,
    ];
    let scratch = Scratch::new();
    for (nr, limits) in all.into_iter().enumerate() {
        let args = ["-t", "ext4", "-b", "1024", "-O", "quota,project"];
        let image = Image::mke2fs(scratch.path(), &format!("{nr}.img"), 16 << 20, &args);
        with_project(&image, limits);
        let without = shown(&image, "ro");
        assert!(without.iter().all(|stat| *stat == without[0]), "{without:?}");
        let ours = shown(&image, "prjquota");
        let limited = ours[0] != ours[1];
        assert_eq!(limited, limits != NONE, "{ours:?}");
        let report = Guest::new()
            .drive(&image.path)
            .module("quota_v2")
            .try_run(
                "mount -t ext4 -o prjquota /dev/vda /mnt || exit 1
                 stat -f -c '%b %f %a %c %d' /mnt/p /mnt/p/f /mnt/q",
            )
            .unwrap();
        assert_eq!(report.end, End::Code(0), "{}\n{}", report.output, report.console);
        // (Without a limit Linux keeps some clusters for itself, and shows fewer as available.)
        let theirs: Vec<Vec<u64>> = report.lines().into_iter().map(numbers_of).collect();
        for (nr, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let same = (0..5).filter(|at| *at != 2 || nr == 0 && limited);
            let (ours, theirs): (Vec<u64>, Vec<u64>) =
                same.map(|at| (ours[at], theirs[at])).unzip();
            assert_eq!(ours, theirs, "{limits:?}, line {nr}");
        }
        assert_eq!(theirs.len(), ours.len());
    }
}

/// Linux keeps quotas in files of the tree; Extol shows what they say, and does not touch them.
#[test]
fn quota_files_of_the_old_kind_are_read() {
    let tools = ["mke2fs", "setpriv", "quotacheck", "quotaon", "setquota", "repquota"];
    if !require(&[Need::Guest]) || !require(&tools.map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-b", "1024"]);
    let mut guest = Guest::new().drive(&image.path).module("quota_v2").program("setpriv");
    for program in ["quotacheck", "quotaon", "setquota", "repquota"] {
        guest = guest.program(program);
    }
    let report = guest
        .try_run(
            "mount -t ext4 -o usrjquota=aquota.user,grpjquota=aquota.group,jqfmt=vfsv1 \\
                 /dev/vda /mnt || exit 1
             quotacheck -cugm -F vfsv1 /mnt >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
             quotaon -ug /mnt || exit 1
             for n in $(seq 30); do
                 mkdir /mnt/d$n
                 head -c $((n * 700)) /dev/urandom >/mnt/d$n/f
                 chown -R $((n * 70001)):$((n % 4)) /mnt/d$n
             done
             setquota -u 70001 5 10 3 4 /mnt || exit 1
             sync
             repquota -un -O csv /mnt | grep '^#' | sort
             repquota -gn -O csv /mnt | grep '^#' | sort
             quotaon -fug /mnt
             umount /mnt",
        )
        .unwrap();
    assert_eq!(report.end, End::Code(0), "{}\n{}", report.output, report.console);
    let fs = Ext4::open_path(&image.path, &MountOptions::parse("ro").unwrap()).unwrap();
    let quotas = fs.old_quotas().unwrap();
    let names: Vec<_> = quotas.iter().map(|quota| quota.file).collect();
    assert_eq!(names, [Some("aquota.user"), Some("aquota.group")]);
    let mut lines = Vec::new();
    for quota in &quotas {
        // id, marks, marks, blocks and limits in KiB, time, inodes and limits, time
        let line = |entry: &extol::quotas::Entry| {
            let space = [entry.space / 1024, entry.space_soft, entry.space_hard];
            let inodes = [entry.inodes, entry.inode_soft, entry.inode_hard];
            format!("#{} {space:?} {inodes:?}", entry.id)
        };
        let mut of_kind: Vec<String> = quota.entries.iter().map(line).collect();
        of_kind.sort();
        lines.extend(of_kind);
    }
    let theirs = report.lines().into_iter().map(|line| {
        let words: Vec<&str> = line.split(',').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let (space, inodes) = ([3, 4, 5].map(number), [7, 8, 9].map(number));
        format!("{} {space:?} {inodes:?}", words[0])
    });
    let mut theirs: Vec<String> = theirs.collect();
    theirs.sort();
    lines.sort();
    assert!(lines.len() > 30 && lines.iter().any(|line| line.contains("[2, 5, 10] [2, 3, 4]")));
    assert_eq!(lines, theirs);
    assert!(fs.quotas().is_err());
    fs.unmount().unwrap();
}
