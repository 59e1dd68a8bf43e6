//! The same options for both: the volumes must agree in everything that dumpe2fs and debugfs show,
//! checksums of bitmaps and descriptors included, and e2fsck must find nothing.

use super::harness::{Lab, dump, have, inodes, run, text};

/// Size and options. `=`: equal to mke2fs's in every line; `*`: but for inode checksums (mke2fs
/// leaves old bytes behind the end of extent roots); `~`: by counts only (mke2fs rounds reserved
/// blocks otherwise, and builds lost+found otherwise with inline_data).
const CASES: &[(&str, &str, &str)] = &[
    ("=", "1G", ""),
    ("=", "64M", ""),
    ("=", "400M", ""),
    ("=", "1G", "-t ext3"),
    ("=", "1G", "-t ext2"),
    ("=", "64M", "-t ext3"),
    ("=", "64M", "-t ext2"),
    ("=", "2M", "-t ext2"),
    ("=", "1M", ""),
    ("=", "5G", ""),
    ("=", "40G", ""),
    ("*", "300G", ""),
    ("*", "60G", "-b 1024"),
    ("*", "5T", ""),
    ("=", "100M", "-b 1024"),
    ("=", "100M", "-b 2048"),
    ("=", "100M", "-b 4096"),
    ("=", "1G", "-b 1024"),
    ("=", "1G", "-b 2048"),
    ("=", "1G", "-b 1024 -t ext3"),
    ("=", "1G", "-b 2048 -t ext2"),
    ("=", "1G", "-b -1024"),
    ("=", "100M", "-b -1024"),
    ("=", "100M", "-b -4096"),
    ("=", "1G", "-b -2048 -T largefile"),
    ("=", "1G", "-I 128"),
    ("=", "1G", "-I 512"),
    ("=", "1G", "-I 1024 -b 2048"),
    ("=", "256M", "-I 128 -t ext3 -b 4096"),
    ("=", "1G", "-i 4096"),
    ("=", "1G", "-i 1048576"),
    ("=", "1G", "-N 1000"),
    ("~", "1G", "-N 1000000"),
    ("=", "1G", "-T news"),
    ("=", "1G", "-T largefile"),
    ("=", "100M", "-T largefile4"),
    ("=", "1G", "-T small,largefile"),
    ("=", "1G", "-T largefile,news"),
    ("=", "1G", "-t ext2 -T ext3"),
    ("=", "1G", "-t ext2 -T ext4,news"),
    ("=", "1G", "-t ext3 -T default"),
    ("=", "1G", "-O ^metadata_csum"),
    ("=", "1G", "-O ^metadata_csum,^metadata_csum_seed,uninit_bg"),
    ("=", "1G", "-O ^metadata_csum_seed"),
    ("=", "1G", "-O ^64bit"),
    ("=", "1G", "-O ^flex_bg"),
    ("=", "1G", "-O ^resize_inode"),
    ("=", "1G", "-O ^orphan_file"),
    ("=", "1G", "-O ^has_journal,^orphan_file"),
    ("=", "1G", "-O meta_bg,^resize_inode"),
    ("*", "20G", "-O meta_bg,^resize_inode -b 1024"),
    ("=", "1G", "-O sparse_super2"),
    ("=", "1G", "-O sparse_super2 -E num_backup_sb=1"),
    ("=", "1G", "-O sparse_super2,^resize_inode -E num_backup_sb=0"),
    ("=", "100M", "-O sparse_super2"),
    ("=", "1G", "-O ^sparse_super,^resize_inode"),
    ("~", "1G", "-O inline_data"),
    ("~", "100M", "-O inline_data -b 1024"),
    ("=", "1G", "-O large_dir,ea_inode,stable_inodes"),
    ("=", "1G", "-O project"),
    ("=", "1G", "-O quota"),
    ("=", "1G", "-O quota,project"),
    ("=", "1G", "-O quota,project,^orphan_file -b 2048"),
    ("=", "1G", "-O quota -E quotatype=grpquota"),
    ("=", "1G", "-O quota -E quotatype=prjquota"),
    ("=", "1G", "-O quota,project -E quotatype=usrquota"),
    ("=", "1G", "-O quota -E quotatype=usrquota:grpquota:prjquota"),
    ("~", "100M", "-O quota,project -b 1024 -t ext3 -E root_owner=1000:100000"),
    ("=", "1G", "-O casefold"),
    ("=", "1G", "-E encoding=utf8,encoding_flags=strict"),
    ("=", "1G", "-O encrypt"),
    ("=", "1G", "-O encrypt,casefold,stable_inodes"),
    ("=", "1G", "-O mmp"),
    ("=", "1G", "-O fast_commit"),
    ("=", "1G", "-O fast_commit -J size=64,fast_commit_size=4096"),
    ("=", "1G", "-O none"),
    ("=", "1G", "-O none,has_journal"),
    ("=", "1G", "-O none,extent,has_journal,filetype"),
    ("=", "64M", "-r 0 -t ext2 -O none"),
    ("=", "1G", "-J size=16"),
    ("=", "1G", "-J location=100000"),
    ("=", "1G", "-J size=16,location=40000"),
    ("=", "1G", "-J location=512M"),
    ("=", "100M", "-J location=1"),
    ("*", "8G", "-J size=1024"),
    ("=", "1G", "-t ext2 -J size=32"),
    ("=", "1G", "-G 4"),
    ("=", "1G", "-G 1"),
    ("=", "40G", "-G 256"),
    ("=", "1G", "-g 8192"),
    ("=", "1G", "-g 4096 -t ext3"),
    ("=", "1G", "-g 1024 -i 65536"),
    ("=", "1G", "-m 0"),
    ("=", "1G", "-m 12.5"),
    ("=", "1G", "-L label -M /mnt/somewhere -e remount-ro"),
    ("=", "64M", "-L a-label-that-is-too-long"),
    ("=", "1G", "-E stride=16,stripe_width=64"),
    ("=", "1G", "-t ext3 -E stride=16,stripe_width=64"),
    ("=", "1G", "-E resize=100000000"),
    ("=", "1G", "-t ext2 -E resize=1000000"),
    ("*", "40G", "-E packed_meta_blocks=1"),
    ("=", "1G", "-E root_owner=1000:100000"),
    ("=", "1G", "-E test_fs,orphan_file_size=1M"),
    ("=", "1G", "-E desc_size=128"),
    ("=", "1G", "-E lazy_itable_init=0,nodiscard"),
    ("=", "1G", "-E lazy_itable_init=1,nodiscard"),
    ("=", "1G", "-t ext3 -E nodiscard"),
    ("=", "33000k", ""),
    ("=", "8200k", "-b 1024"),
    ("=", "8250k", "-b 1024"),
    ("=", "8700k", "-b 1024"),
    ("=", "9000k", "-b 1024 -t ext2"),
    ("~", "130M", "-b 4096"),
    ("=", "128100k", "-b 4096"),
    ("~", "131500k", "-b 4096 -O ^flex_bg"),
    ("~", "64M", "-b 8192 -F"),
    ("~", "512M", "-b 65536 -F"),
    ("~", "300k", ""),
    ("~", "100k", ""),
];

fn counts(dump: &[String]) -> Vec<&String> {
    let names = [
        "Block count",
        "Inode count",
        "Free blocks:",
        "Free inodes:",
        "Filesystem features",
        "Total journal",
    ];
    dump.iter()
        .take_while(|l| !l.starts_with("Group 0"))
        .filter(|l| names.iter().any(|n| l.starts_with(n)))
        .collect()
}

fn first_difference(ours: &[String], theirs: &[String]) -> String {
    let at =
        ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
    let line = |all: &[String]| all.get(at).cloned().unwrap_or_else(|| "(end)".into());
    format!("line {at}\n ours:   {}\n theirs: {}", line(ours), line(theirs))
}

#[test]
fn volumes_are_those_of_mke2fs_first_half() {
    compare(&CASES[..CASES.len() / 2]);
}

#[test]
fn volumes_are_those_of_mke2fs_second_half() {
    compare(&CASES[CASES.len() / 2..]);
}

fn compare(cases: &[(&str, &str, &str)]) {
    if !["mke2fs", "e2fsck", "dumpe2fs", "debugfs"].iter().all(|p| have(p)) {
        return;
    }
    let lab = Lab::new();
    let mut wrong = Vec::new();
    for (mode, size, args) in cases {
        let what = format!("{size} {args}");
        let ours = match lab.ours(size, args) {
            Ok((path, _)) => path,
            Err(e) => {
                wrong.push(format!("{what}: {e}"));
                continue;
            }
        };
        let (code, words) = run("e2fsck", &["-fn", text(&ours)]).expect("e2fsck");
        if code != 0 {
            wrong.push(format!("{what}: e2fsck: {words}"));
        }
        let theirs = match lab.theirs(size, args) {
            Ok(path) => path,
            Err(e) if *mode == "~" => {
                println!("{what}: mke2fs refuses: {e}");
                continue;
            }
            Err(e) => {
                wrong.push(format!("{what}: mke2fs: {e}"));
                continue;
            }
        };
        let (a, b) = (dump(&ours), dump(&theirs));
        if *mode != "~" && a != b {
            wrong.push(format!("{what}: dumpe2fs differs: {}", first_difference(&a, &b)));
        } else if counts(&a) != counts(&b) {
            wrong.push(format!("{what}: counts differ: {:?} {:?}", counts(&a), counts(&b)));
        }
        let skip = if *mode == "=" { "(nothing)" } else { "Inode checksum" };
        let lines = |path| -> Vec<String> {
            inodes(&lab, path).lines().filter(|l| !l.starts_with(skip)).map(str::to_owned).collect()
        };
        let (a, b) = (lines(&ours), lines(&theirs));
        if *mode != "~" && a != b {
            wrong.push(format!("{what}: inodes differ: {}", first_difference(&a, &b)));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
