//! Directories that are encrypted and casefolded. The kernel beside the tests has no Unicode: it
//! makes the policy, and Linux in the guest has its say of names.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extol::vfs::{FileKind, FileSystem, FsError, RenameFlags, SetAttr};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_check::CheckOptions;
use extol_testkit::{
    Image, KernelMount, Need, Scratch, add_encryption_key, e2fsck, require, run_ok,
    set_encryption_policy, text, tool,
};

use crate::guest::{ENTER, guest};
use crate::writes::{close, open};
use crate::{KEY_OF_V1, NEEDS, policy};

const CASEFOLD: u32 = 0x4000_0000;

/// A volume with an empty directory `/dir` that is encrypted, and may fold names.
fn make(scratch: &Scratch, block_size: &str, features: &str) -> Image {
    let options = ["-t", "ext4", "-b", block_size, "-N", "8192", "-O", features];
    let image = Image::mke2fs(scratch.path(), "folded.img", 64 << 20, &options);
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    let identifier = add_encryption_key(&at, None, &[7; 64]);
    fs::create_dir(at.join("dir")).unwrap();
    set_encryption_policy(&at.join("dir"), &policy(identifier)).unwrap();
    mount.unmount();
    run_ok(tool("tune2fs").args(["-O", "casefold", text(&image.path)]));
    image
}

pub fn fold(fs: &Arc<Ext4>, path: &str) -> Result<(), FsError> {
    let attr = fs.metadata(path)?;
    let flags = Some(attr.flags | CASEFOLD);
    fs.setattr(attr.id.ino, &SetAttr { flags, ..SetAttr::default() }).map(drop)
}

/// Names that differ when they are folded, of all lengths.
fn name(n: usize) -> String {
    let words = ["Straße", "ÉTÉ", "ﬃx", "Ωmega", "가각", "\u{1E9B}\u{323}", "ASCII only", "İ"];
    format!("{} {n} {}", words[n % words.len()], "Long".repeat(n % 53))
}

/// Other spellings of one name.
fn spellings(name: &str) -> [String; 3] {
    [name.to_uppercase(), name.to_lowercase(), format!("{name}\u{200D}")]
}

fn missing(fs: &Arc<Ext4>, path: &str) -> bool {
    fs.symlink_metadata(path) == Err(FsError::NotFound)
}

fn listed(fs: &Arc<Ext4>, dir: &str) -> BTreeMap<Vec<u8>, u32> {
    let entries = fs.read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().as_bytes().to_vec(), entry.ino())).collect()
}

/// Adds, renames and removes `count` names by any spelling; what is left.
fn change(fs: &Arc<Ext4>, count: usize) -> BTreeMap<Vec<u8>, u32> {
    let mut model = BTreeMap::new();
    let path = |name: &str| format!("/dir/{name}");
    for n in 0..count {
        let name = name(n);
        match n % 10 {
            0 => fs.symlink(format!("target {n}"), path(&name)).unwrap(),
            1 => fs.create_dir(path(&name)).unwrap(),
            _ => fs.write_file(path(&name), format!("contents {n}")).unwrap(),
        }
        let ino = fs.symlink_metadata(path(&name)).unwrap().id.ino;
        model.insert(name.into_bytes(), ino);
    }
    assert_eq!(listed(fs, "/dir"), model);
    for n in 0..count {
        let name = name(n);
        let other = &spellings(&name)[n % 3];
        let ino = model[name.as_bytes()];
        assert_eq!(fs.symlink_metadata(path(other)).unwrap().id.ino, ino, "{other}");
        assert_eq!(fs.create_dir(path(other)), Err(FsError::Exists));
        match n % 7 {
            0 => {
                let to = format!("moved {name}");
                fs.rename_path(path(other), path(&to)).unwrap();
                model.remove(name.as_bytes());
                model.insert(to.into_bytes(), ino);
                assert!(missing(fs, &path(&name)));
            }
            1 => {
                // Another spelling of itself: nothing is renamed.
                fs.rename_path(path(&name), path(other)).unwrap();
            }
            2 if n % 10 == 1 => {
                fs.remove_dir(path(other)).unwrap();
                model.remove(name.as_bytes());
            }
            2 | 3 if n % 10 != 1 => {
                fs.remove_file(path(other)).unwrap();
                model.remove(name.as_bytes());
                assert!(missing(fs, &path(&name)));
            }
            _ => {}
        }
    }
    assert_eq!(listed(fs, "/dir"), model);
    model
}

/// Links, exchanged names, and a directory below, which folds and encrypts too.
fn change_otherwise(fs: &Arc<Ext4>) {
    fs.create_dir("/dir/Below").unwrap();
    fs.write_file("/dir/Below/One", "one").unwrap();
    fs.write_file("/dir/below/two", "two").unwrap();
    fs.rename_with("/dir/BELOW/ONE", "/dir/below/TWO", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs.read_file("/dir/below/one").unwrap(), b"two");
    fs.hard_link("/dir/below/oNe", "/dir/below/Three").unwrap();
    assert_eq!(fs.hard_link("/dir/below/one", "/dir/below/THREE"), Err(FsError::Exists));
    fs.rename_path("/dir/below/THREE", "/dir/below/Two").unwrap();
    let names: Vec<Vec<u8>> = listed(fs, "/dir/below").into_keys().collect();
    assert_eq!(names, [b"One".to_vec(), b"two".to_vec()], "a name that is replaced stays");
    assert_eq!(fs.read_file("/dir/below/TWO").unwrap(), b"two");
    fs.remove_dir_all("/dir/BELOW").unwrap();
}

fn changed_and_removed(block_size: &str, features: &str, count: usize, index: Index) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, block_size, features);
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    assert_eq!(fold(&fs, "/dir"), Err(FsError::NoKey));
    close(fs);
    let fs = open(&image, "");
    fold(&fs, "/dir").unwrap();
    let mut model = change(&fs, count);
    change_otherwise(&fs);
    close(fs);
    assert_sound(&image, index, "names with the key");

    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    let shown = listed(&fs, "/dir");
    assert_eq!(shown.len(), model.len());
    assert_eq!(fs.write_file("/dir/new", "").unwrap_err(), FsError::NoKey);
    for (number, entry) in fs.read_dir("/dir").unwrap().map(Result::unwrap).enumerate() {
        let attr = fs.symlink_metadata(entry.path()).unwrap();
        assert_eq!(attr.id.ino, entry.ino());
        if number % 3 != 0 {
            continue;
        }
        match attr.kind {
            FileKind::Directory => fs.remove_dir(entry.path()).unwrap(),
            _ => fs.remove_file(entry.path()).unwrap(),
        }
        model.retain(|_, ino| *ino != entry.ino());
    }
    close(fs);
    assert_sound(&image, index, "a third is removed without the key");
    let fs = open(&image, "");
    assert_eq!(listed(&fs, "/dir"), model);
    for (name, ino) in &model {
        let name = std::str::from_utf8(name).unwrap();
        let path = Path::new("/dir").join(name.to_uppercase());
        assert_eq!(fs.symlink_metadata(path).unwrap().id.ino, *ino);
    }
    fs.remove_dir_all("/dir").unwrap();
    close(fs);
    assert_sound(&image, Index::OneLevel, "all is removed");
}

/// e2fsck 1.47.0 takes indexes with more than one level for damage, which have one entry less in
/// each node than others: Linux makes them so.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    OneLevel,
    Deep,
}

#[track_caller]
fn assert_sound(image: &Image, index: Index, when: &str) {
    if index == Index::OneLevel {
        e2fsck(image).assert_clean(when);
    }
    let device = Arc::new(MemDevice::from_bytes(&fs::read(&image.path).unwrap()));
    let report = extol_check::check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.findings.is_empty(), "{when}: {:?}", report.findings);
}

#[test]
fn names_are_changed_with_the_key_and_removed_without() {
    changed_and_removed("4096", "encrypt", 3000, Index::OneLevel);
}

#[test]
fn names_are_changed_and_removed_without_checksums() {
    changed_and_removed("1024", "encrypt,^metadata_csum", 300, Index::OneLevel);
}

#[test]
fn names_are_changed_and_removed_without_an_index() {
    changed_and_removed("4096", "encrypt,^dir_index", 300, Index::OneLevel);
}

#[test]
fn names_are_changed_and_removed_with_fast_commits() {
    changed_and_removed("4096", "encrypt,fast_commit,inline_data", 1000, Index::OneLevel);
}

#[test]
fn names_are_changed_and_removed_in_a_deep_index() {
    changed_and_removed("1024", "encrypt", 3000, Index::Deep);
    changed_and_removed("1024", "encrypt,^metadata_csum", 1500, Index::Deep);
}

#[test]
fn a_policy_of_version_1_folds_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, "4096", "encrypt");
    let at = scratch.dir("linux");
    run_ok(tool("tune2fs").args(["-O", "^casefold", text(&image.path)]));
    let mount = KernelMount::mount(&image, &at, &[]);
    add_encryption_key(&at, Some(*b"descript"), &KEY_OF_V1);
    fs::create_dir(at.join("old")).unwrap();
    set_encryption_policy(&at.join("old"), &[&[0, 1, 4, 2][..], b"descript"].concat()).unwrap();
    mount.unmount();
    run_ok(tool("tune2fs").args(["-O", "casefold", text(&image.path)]));
    let fs = open(&image, "");
    assert!(matches!(fold(&fs, "/old"), Err(FsError::Invalid(_))));
    fold(&fs, "/dir").unwrap();
    close(fs);
    e2fsck(&image).assert_clean("one may, the other not");
}

/// Names as `xargs -0` takes them.
fn list(names: impl IntoIterator<Item = String>) -> Vec<u8> {
    names.into_iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect()
}

/// What Linux lists without the key.
fn shown(script_output: &str) -> Vec<&str> {
    let mut names: Vec<&str> = script_output.lines().collect();
    names.sort_unstable();
    names
}

fn shown_by_extol(image: &Image) -> Vec<String> {
    let fs = Ext4::open_path(&image.path, &MountOptions::default().read_only()).unwrap();
    let names = listed(&fs, "/dir").into_keys().map(|name| String::from_utf8(name).unwrap());
    let names = names.collect();
    close(fs);
    names
}

const COUNT: usize = 2000;

/// Linux fills a directory; Extol changes it by other spellings; Linux does so again, and then
/// both remove what they see without the key.
fn by_turns(block_size: &str, features: &str, index: Index) {
    if !require(&[Need::Guest, Need::Tool("mke2fs"), Need::Tool("xfs_io"), Need::Tool("chattr")]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", block_size, "-N", "8192", "-O", features];
    let image = Image::mke2fs(scratch.path(), "turns.img", 64 << 20, &options);
    let of_linux = |n: usize| format!("{} of Linux", name(n));
    let report = guest(&image).file("/names", list((0..COUNT).map(of_linux))).run(&format!(
        "{ENTER}
        mkdir /mnt/dir
        xfs_io -c \"set_encpolicy -v 2 -c 1 -n 4 -f 3 $id\" /mnt/dir
        chattr +F /mnt/dir
        cd /mnt/dir
        xargs -0 sh -c 'for n; do echo \"$n\" >\"$n\"; done' sh </names
        ls | wc -l"
    ));
    assert_eq!(report.lines(), [COUNT.to_string()]);

    let fs = open(&image, "");
    assert_eq!(listed(&fs, "/dir").len(), COUNT);
    for n in 0..COUNT {
        let stored = of_linux(n);
        let path = Path::new("/dir").join(&spellings(&stored)[n % 3]);
        assert_eq!(fs.read_file(&path).unwrap(), format!("{stored}\n").as_bytes());
        match n % 3 {
            0 => fs.remove_file(&path).unwrap(),
            1 => fs.write_file(format!("/dir/{}", name(n)), name(n) + "\n").unwrap(),
            _ => fs.rename_path(&path, format!("/dir/{n} renamed, ﬁnally")).unwrap(),
        }
    }
    let left = listed(&fs, "/dir").len();
    close(fs);
    assert_sound(&image, index, "Extol's turn");

    let of_extol = (0..COUNT).filter(|n| n % 3 == 1).map(|n| spellings(&name(n))[n % 2].clone());
    let renamed = (0..COUNT).filter(|n| n % 3 == 2).map(|n| format!("{n} RENAMED, FINALLY"));
    let added = (0..COUNT).filter(|n| n % 3 == 0).map(|n| format!("{} again", name(n)));
    let report = guest(&image)
        .file("/extol", list(of_extol))
        .file("/renamed", list(renamed))
        .file("/added", list(added))
        .run(&format!(
            "{ENTER}
            cd /mnt/dir
            ls | wc -l
            xargs -0 cat </extol | md5sum
            xargs -0 stat -c %s </renamed | wc -l
            xargs -0 rm -- </renamed
            xargs -0 sh -c 'for n; do echo \"$n\" >\"$n\"; done' sh </added
            cd /
            umount /mnt
            mount -t ext4 /dev/vda /mnt
            cd /mnt/dir
            ls | wc -l
            ls | awk 'NR % 4 == 0' | xargs rm --
            echo names:
            ls"
        ));
    let (counts, names) = report.output.split_once("names:\n").unwrap();
    let contents: String = (0..COUNT).filter(|n| n % 3 == 1).map(|n| name(n) + "\n").collect();
    let file = scratch.join("contents");
    fs::write(&file, contents).unwrap();
    let said = run_ok(tool("md5sum").arg(&file));
    let sum = said.split_whitespace().next().unwrap();
    let now = left - COUNT / 3 + COUNT.div_ceil(3);
    let wanted = format!("{left}\n{sum}  -\n{}\n{now}\n", COUNT / 3);
    assert_eq!(counts, wanted);
    assert_eq!(shown(names).len(), now - now / 4);
    assert_eq!(shown_by_extol(&image), shown(names));
    assert_sound(&image, index, "Linux's turn");

    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    for shown in shown(names).iter().step_by(2) {
        fs.remove_file(format!("/dir/{shown}")).unwrap();
    }
    close(fs);
    assert_sound(&image, index, "one half is removed without the key");
    let left = shown_by_extol(&image);
    let report = guest(&image).run("mount /dev/vda /mnt; ls /mnt/dir; rm -r /mnt/dir");
    assert_eq!(shown(&report.output), left);
    assert_sound(&image, Index::OneLevel, "Linux has removed it");
}

#[test]
fn linux_and_extol_change_a_directory_by_turns() {
    by_turns("1024", "encrypt,casefold", Index::Deep);
    by_turns("4096", "encrypt,casefold", Index::OneLevel);
}

#[test]
fn linux_and_extol_change_a_directory_without_an_index_by_turns() {
    by_turns("4096", "encrypt,casefold,^dir_index,^metadata_csum", Index::OneLevel);
}
