//! Ciphers that the kernel beside the tests lacks, read and written by turns with Linux in the
//! guest. (Debian's Linux 6.1 has no HCTR2 and no SM4.)

use std::fmt::Write as _;
use std::path::Path;

use extol_testkit::{Image, Need, Scratch, e2fsck, require};

use crate::guest::{ENTER, guest};
use crate::writes::{close, open};

/// Name of a directory, modes of contents and of names, flags: padding, `DIRECT_KEY`.
const CIPHERS: [(&str, u8, u8, u8); 5] = [
    ("adiantum", 9, 9, 3),
    ("adiantum-direct", 9, 9, 7),
    ("adiantum-unpadded", 9, 9, 0),
    ("essiv", 5, 6, 3),
    ("essiv-unpadded", 5, 6, 0),
];

/// Ends in and between data units.
const SIZES: [usize; 12] = [0, 1, 15, 16, 17, 511, 4095, 4096, 4097, 8192, 10_000, 70_001];

fn data() -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(80_000).collect()
}

/// Names of all lengths that padding and blocks of ciphers tell apart.
fn names() -> Vec<String> {
    let lengths = [1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 142, 143, 144, 200, 254, 255];
    lengths.into_iter().map(|len| "Name".chars().cycle().take(len).collect()).collect()
}

fn by_turns(block_size: &str) {
    if !require(&[Need::Guest, Need::Tool("mke2fs"), Need::Tool("xfs_io")]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", block_size, "-O", "encrypt,stable_inodes"];
    let image = Image::mke2fs(scratch.path(), "ciphers.img", 64 << 20, &options);
    let listed: Vec<u8> = names().iter().flat_map(|n| [n.as_bytes(), b"\0"].concat()).collect();
    let mut script = ENTER.to_owned();
    for (dir, contents, names, flags) in CIPHERS {
        let _ = write!(
            script,
            "
            mkdir /mnt/{dir}
            xfs_io -c \"set_encpolicy -v 2 -c {contents} -n {names} -f {flags} $id\" /mnt/{dir}
            cd /mnt/{dir}
            mkdir sub
            xargs -0 mkdir -- </names
            xargs -0 sh -c 'for n; do ln -s \"$n\" \"sub/$n\"; done' sh </names
            for n in {sizes}; do head -c $n /data >of-linux-$n; done",
            sizes = SIZES.map(|size| size.to_string()).join(" "),
        );
    }
    script += "\ncd /";
    let _ = guest(&image).file("/names", listed.clone()).file("/data", data()).run(&script);

    let fs = open(&image, "");
    let data_of = |size: usize| data()[..size].to_vec();
    for (dir, ..) in CIPHERS {
        let dir = Path::new("/").join(dir);
        for size in SIZES {
            assert!(fs.read_file(dir.join(format!("of-linux-{size}"))).unwrap() == data_of(size));
            fs.write_file(dir.join(format!("of-extol-{size}")), data_of(size)).unwrap();
        }
        let count = fs.read_dir(&dir).unwrap().map(Result::unwrap).count();
        assert_eq!(count, 1 + names().len() + 2 * SIZES.len());
        for name in names() {
            let link = dir.join("sub").join(&name);
            assert_eq!(fs.read_link(&link).unwrap(), Path::new(&name));
            fs.remove_file(&link).unwrap();
            let target = format!("{name}-of-extol");
            fs.symlink(&target[..target.len().min(250)], &link).unwrap();
            fs.remove_dir(dir.join(&name)).unwrap();
            fs.create_dir(dir.join("sub").join(name.to_lowercase())).unwrap();
        }
        let open = fs.open_file(dir.join("of-linux-70001"), extol::OpenOptions::new().write(true));
        let open = open.unwrap();
        open.write_all_at(b"in the middle of a data unit", 5000).unwrap();
        open.set_len(60_001).unwrap();
    }
    close(fs);
    e2fsck(&image).assert_clean("Extol's turn");

    let mut changed = data_of(60_001);
    changed[5000..5028].copy_from_slice(b"in the middle of a data unit");
    let mut script = ENTER.to_owned();
    for (dir, ..) in CIPHERS {
        let _ = write!(
            script,
            "
            cd /mnt/{dir}
            for n in {sizes}; do head -c $n /data | cmp - of-extol-$n; done
            cmp /changed of-linux-70001
            xargs -0 -I{{}} readlink -- sub/{{}} </names >>/tmp/targets
            xargs -0 rmdir -- </lowercase
            ls | wc -l",
            sizes = SIZES.map(|size| size.to_string()).join(" "),
        );
    }
    script += "\ncmp /targets /tmp/targets\ncd /";
    let targets = names().into_iter().map(|name| {
        let target = format!("{name}-of-extol");
        format!("{}\n", &target[..target.len().min(250)])
    });
    let targets = targets.collect::<String>().repeat(CIPHERS.len());
    let lower =
        names().into_iter().flat_map(|n| format!("sub/{}\0", n.to_lowercase()).into_bytes());
    let report = guest(&image)
        .file("/names", listed)
        .file("/lowercase", lower.collect::<Vec<u8>>())
        .file("/targets", targets)
        .file("/data", data())
        .file("/changed", changed)
        .run(&script);
    let left = (1 + 2 * SIZES.len()).to_string();
    assert_eq!(report.lines(), [&left[..]; CIPHERS.len()]);
    e2fsck(&image).assert_clean("Linux's turn");
}

#[test]
fn linux_and_extol_read_what_the_other_has_encrypted() {
    by_turns("4096");
}

#[test]
fn linux_and_extol_read_what_the_other_has_encrypted_in_small_blocks() {
    by_turns("1024");
}
