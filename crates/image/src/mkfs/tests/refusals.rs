//! Silly input gets one line that says what is wrong.

use super::harness::options;
use crate::mkfs::{MkfsOptions, mkfs};
use extol_block::{BlockDevice, MemDevice};

#[test]
fn silly_options_get_one_clear_line() {
    let cases = [
        ("-b 1000", "block size 1000"),
        ("-b 512", "block size 512"),
        ("-b -5000", "block size 5000"),
        ("-b -8192", "-F"),
        ("-b 8192", "-F"),
        ("-b 131072 -F", "block size 131072"),
        ("-I 100", "inode size 100"),
        ("-I 8192 -b 4096", "inode size 8192"),
        ("-i 100", "bytes per inode"),
        ("-N 0", "inodes 0"),
        ("-N 4000000000", "do not fit"),
        ("-g 100", "blocks per group"),
        ("-g 32769", "blocks per group"),
        ("-G 3", "power of two"),
        ("-G 4 -O ^flex_bg", "flex_bg"),
        ("-m 51", "percentage"),
        ("-m -1", "percentage"),
        ("-m NaN", "percentage"),
        ("-r 2", "revision 2"),
        ("-r 0 -O extent", "revision 1"),
        ("-T bogus", "usage type 'bogus'"),
        ("-O bogus", "unknown feature 'bogus'"),
        ("-O ^bogus", "unknown feature 'bogus'"),
        ("-C 16384", "bigalloc"),
        ("-O bigalloc -C 20000", "cluster size 20000"),
        ("-O bigalloc -b 4096 -C 4096", "cluster size 4096"),
        ("-O bigalloc -g 65536", "blocks per group"),
        ("-O bigalloc,resize_inode", "resize_inode"),
        ("-O bigalloc,^extent,^64bit", "extent"),
        ("-O bigalloc -E resize=4T", "exclude each other"),
        ("-O shared_blocks", "shared_blocks"),
        ("-O needs_recovery", "needs_recovery"),
        ("-O meta_bg", "resize_inode"),
        ("-O ^sparse_super", "sparse_super"),
        ("-O ^extent,64bit", "64bit"),
        ("-O metadata_csum_seed,^metadata_csum", "metadata_csum"),
        ("-O orphan_file,^has_journal", "orphan_file"),
        ("-O fast_commit,^has_journal", "fast_commit"),
        ("-O inline_data -I 128", "inline_data"),
        ("-O project -I 128", "project"),
        ("-J size=1", "journal size"),
        ("-J size=900", "journal"),
        ("-J size=60000", "journal size"),
        ("-J location=1G", "cannot begin"),
        ("-J location=x", "location"),
        ("-O journal_dev -J size=4", "journal device"),
        ("-J device=/dev/nowhere", "not opened"),
        ("-U xyz", "UUID"),
        ("-E resize=5", "resize"),
        ("-E resize=16E", "too large"),
        ("-E root_perms=9", "root_perms"),
        ("-E encoding=latin1", "unknown encoding"),
        ("-E encoding_flags=lax", "strict"),
        ("-E encoding_flags=strict -O ^casefold", "casefold"),
        ("-E quotatype=usrquota", "needs the feature quota"),
        ("-O quota -I 128 -E quotatype=prjquota", "project"),
        ("-E desc_size=65", "descriptor size"),
        ("-E desc_size=64 -O ^64bit", "64bit"),
        ("-O sparse_super2 -E num_backup_sb=3", "larger than 2"),
        ("-O mmp -E mmp_update_interval=1000", "mmp_update_interval"),
        ("-E orphan_file_size=4M", "orphan file"),
    ];
    let device = MemDevice::new(1 << 30);
    for (args, words) in cases {
        let error =
            options(args).and_then(|o| mkfs(&device, &o, &mut |_| {})).map(|s| s.to_string());
        let text = error.expect_err(args).to_string();
        assert!(text.contains(words), "{args}: {text}");
        assert!(!text.contains('\n') && text.len() < 200, "{args}: {text}");
    }
    assert_eq!(device.allocated(), 0, "nothing was written before the refusal");
}

#[test]
fn small_devices_are_refused_or_made_right() {
    for kib in (0..200).chain([500, 1000, 1023, 1024, 3000]) {
        let device = MemDevice::new(kib << 10);
        match mkfs(&device, &MkfsOptions::default(), &mut |_| {}) {
            Ok(summary) => assert!(summary.blocks * u64::from(summary.block_size) <= device.size()),
            Err(e) => assert!(kib < 64 && !e.to_string().contains('\n'), "{kib} KiB: {e}"),
        }
    }
    let device = MemDevice::new(1 << 20);
    let too_large = MkfsOptions { size: Some(2 << 20), ..MkfsOptions::default() };
    let error =
        mkfs(&device, &too_large, &mut |_| {}).expect_err("larger than the device").to_string();
    assert!(error.contains("does not fit"), "{error}");
    let sectors =
        MkfsOptions { sector_size: Some(4096), block_size: Some(1024), ..MkfsOptions::default() };
    assert!(mkfs(&device, &sectors, &mut |_| {}).is_err(), "blocks smaller than sectors");
    let sectors = MkfsOptions { sector_size: Some(4096), ..MkfsOptions::default() };
    assert_eq!(mkfs(&device, &sectors, &mut |_| {}).expect("mkfs").block_size, 4096);
}
