//! Against Linux: what it encrypts is what this crate encrypts, and it decrypts what this crate
//! encrypted. Which ciphers there are depends on the kernel's configuration: AES in XTS and CTS
//! mode are always there, where it has encryption.

mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _, symlink};
use std::path::Path;

use disk::Disk;
use extol_fscrypt::{
    Checked, Context, FileKey, Flags, KeySpec, MasterKey, Mode, NoKeyName, Policy, decrypted_name,
    encrypted_name, symlink as target,
};
use extol_testkit::{
    Image, KernelMount, Need, Scratch, add_encryption_key, encryption_nonce, require,
    set_encryption_policy,
};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs"), Need::Tool("debugfs")];
const NAME_MAX: usize = 255;
const DESCRIPTOR: [u8; 8] = *b"descript";

/// One kind of policy.
#[derive(Clone, Copy)]
struct Case {
    version: u8,
    contents: Mode,
    names: Mode,
    flags: u8,
    log2_data_unit: u8,
    block: usize,
    key_len: usize,
    /// The kernel has the mode of contents, and regular files can be made.
    files: bool,
}

const XTS: Case = Case {
    version: 2,
    contents: Mode::Aes256Xts,
    names: Mode::Aes256Cts,
    flags: 3,
    log2_data_unit: 0,
    block: 4096,
    key_len: 64,
    files: true,
};

/// What Linux made of one entry.
struct Made {
    ino: u64,
    /// The contents of a regular file, or the target of a symbolic link.
    bytes: Option<Vec<u8>>,
}

type Tree = BTreeMap<OsString, Made>;

fn raw_key(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 1) as u8).collect()
}

/// A name of `len` bytes that no other length begins with.
fn name(len: usize) -> OsString {
    let text = format!("{len}-").into_bytes().into_iter().chain((b'a'..=b'z').cycle());
    OsString::from_vec(text.take(len.max(4)).collect())
}

fn filled(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn make(dir: &Path, case: Case) -> Tree {
    let mut tree = Tree::new();
    for len in 4..=NAME_MAX {
        fs::create_dir(dir.join(name(len))).unwrap();
        tree.insert(name(len), Made { ino: 0, bytes: None });
    }
    for len in [1, 13, 14, 29, 30, 46, 58, 59, 60, 61, 100, 900, case.block - 4, case.block - 3] {
        let bytes: Vec<u8> = (b'A'..=b'Z').cycle().take(len).collect();
        let name = OsString::from(format!("link of {len}"));
        symlink(OsStr::from_bytes(&bytes), dir.join(&name)).unwrap();
        tree.insert(name, Made { ino: 0, bytes: Some(bytes) });
    }
    let too_long: Vec<u8> = vec![b'A'; case.block - 2];
    let refused = symlink(OsStr::from_bytes(&too_long), dir.join("too long"));
    assert!(refused.is_err(), "a target of a block less 2 bytes is too long");
    if case.files {
        for len in [1, 15, 16, 511, 512, 513, case.block - 1, case.block, 3 * case.block + 17] {
            let name = OsString::from(format!("file of {len}"));
            fs::write(dir.join(&name), filled(len)).unwrap();
            tree.insert(name, Made { ino: 0, bytes: Some(filled(len)) });
        }
    }
    for (name, made) in &mut tree {
        made.ino = fs::symlink_metadata(dir.join(name)).unwrap().ino();
    }
    tree
}

fn policy_of(case: Case, key: KeySpec) -> Policy {
    Policy {
        key,
        contents: case.contents.number(),
        names: case.names.number(),
        flags: Flags::from_bits_retain(case.flags),
        log2_data_unit: case.log2_data_unit,
        reserved: [0; 3],
    }
}

/// A policy as an ioctl takes it: as in a context, but for the number of version 1.
fn bytes_of(policy: &Policy) -> Vec<u8> {
    let mut bytes = Context { policy: *policy, nonce: [0; 16] }.to_bytes();
    bytes.truncate(bytes.len() - 16);
    bytes[0] = if policy.version() == 1 { 0 } else { 2 };
    bytes
}

fn master(case: Case) -> MasterKey {
    MasterKey::new(&raw_key(case.key_len)).unwrap()
}

/// A key on a mount, as Linux takes it.
fn add_key(mount: &KernelMount, case: Case) -> KeySpec {
    let descriptor = (case.version == 1).then_some(DESCRIPTOR);
    let identifier = add_encryption_key(mount.path(), descriptor, &raw_key(case.key_len));
    descriptor.map_or(KeySpec::Identifier(identifier), KeySpec::Descriptor)
}

/// What is under test for one case.
struct Checker {
    disk: Disk,
    master: MasterKey,
    policy: Policy,
}

impl Checker {
    fn checked(&self, context: &Context) -> Checked {
        assert_eq!(context.policy, self.policy);
        context.policy.check(&self.disk.volume(), false).unwrap()
    }

    fn names_key(&self, ino: u64) -> FileKey {
        let context = self.disk.context(ino);
        FileKey::names(&self.master, &self.checked(&context), &context, ino as u32).unwrap()
    }

    fn contents_key(&self, ino: u64) -> FileKey {
        let context = self.disk.context(ino);
        FileKey::contents(&self.master, &self.checked(&context), &context, ino as u32).unwrap()
    }

    /// Every name and target decrypts, and encrypts to the same bytes.
    fn names(&self, dir: u64, tree: &Tree) {
        let key = self.names_key(dir);
        let mut seen = BTreeSet::new();
        for (encrypted, ino) in self.disk.names(dir) {
            let name = decrypted_name(&key, &encrypted).unwrap();
            assert_eq!(encrypted_name(&key, &name, NAME_MAX), Some(encrypted));
            let name = OsString::from_vec(name);
            assert_eq!(tree[&name].ino, ino, "{name:?}");
            seen.insert(name);
        }
        assert!(seen.iter().eq(tree.keys()), "every name is found");
    }

    fn targets(&self, tree: &Tree) {
        for (_, made) in tree.iter().filter(|(name, _)| is(name, "link")) {
            let key = self.names_key(made.ino);
            let stored = self.disk.symlink(made.ino);
            let bytes = made.bytes.as_deref().unwrap();
            assert_eq!(target::target(&key, &stored).as_deref(), Ok(bytes));
            let again = target::stored(&key, bytes, self.disk.block_len());
            assert_eq!(again, Some(stored), "a target of {} bytes", bytes.len());
        }
    }

    fn contents(&self, tree: &Tree) {
        for (name, made) in tree.iter().filter(|(name, _)| is(name, "file")) {
            let key = self.contents_key(made.ino);
            let on_disk = self.disk.contents(made.ino);
            let mut bytes = made.bytes.clone().unwrap();
            bytes.resize(on_disk.len(), 0);
            let mut decrypted = on_disk.clone();
            key.decrypt(0, &mut decrypted);
            assert!(decrypted == bytes, "{name:?} decrypts");
            key.encrypt(0, &mut bytes);
            assert!(on_disk == bytes, "{name:?} encrypts");
        }
    }

    /// Writes other contents, which Linux will read. Returns the contents.
    fn rewrite(&self, tree: &Tree) -> BTreeMap<OsString, Vec<u8>> {
        let mut written = BTreeMap::new();
        for (name, made) in tree.iter().filter(|(name, _)| is(name, "file")) {
            let len = made.bytes.as_ref().unwrap().len();
            let mut bytes: Vec<u8> = (0..len).map(|i| (i % 127) as u8 ^ 0x80).collect();
            written.insert(name.clone(), bytes.clone());
            bytes.resize(len.next_multiple_of(self.disk.block_len()), 0);
            self.contents_key(made.ino).encrypt(0, &mut bytes);
            self.disk.overwrite(made.ino, &bytes);
        }
        written
    }

    /// The no-key names of all entries, with their inodes.
    fn no_key_names(&self, dir: u64) -> BTreeMap<OsString, u64> {
        let shown = |(encrypted, ino): (Vec<u8>, u64)| {
            let shown = NoKeyName::shown(self.disk.hash(&encrypted), &encrypted).unwrap();
            assert!(NoKeyName::parse(&shown).unwrap().matches(&encrypted));
            (OsString::from_vec(shown), ino)
        };
        self.disk.names(dir).into_iter().map(shown).collect()
    }

    /// What Linux shows without the key is what this crate shows.
    fn without_key(&self, mounted: &Path, dir: u64, tree: &Tree) {
        let listed: BTreeMap<OsString, u64> = fs::read_dir(mounted)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), entry.ino()))
            .collect();
        assert!(listed == self.no_key_names(dir), "names without a key");
        let targets: BTreeMap<u64, &Made> = tree
            .iter()
            .filter(|(name, _)| is(name, "link"))
            .map(|(_, made)| (made.ino, made))
            .collect();
        for (name, ino) in &listed {
            let path = mounted.join(name);
            assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), *ino, "found by its name");
            if targets.contains_key(ino) {
                let stored = self.disk.symlink(*ino);
                let shown = NoKeyName::shown([0; 2], target::encrypted(&stored).unwrap()).unwrap();
                assert_eq!(fs::read_link(&path).unwrap().as_os_str().as_bytes(), shown);
            }
        }
        lookups_agree(mounted, &listed);
    }
}

/// Names that are nearly no-key names are found by Linux where this crate reads them as such.
fn lookups_agree(mounted: &Path, listed: &BTreeMap<OsString, u64>) {
    for name in listed.keys() {
        let name = name.as_bytes();
        let mut variants = vec![[name, b"A"].concat(), name[..name.len() - 1].to_vec()];
        for (at, digit) in [(name.len() - 1, b'_'), (name.len() - 1, b'B'), (20, b'+')] {
            let mut other = name.to_vec();
            other[at] = digit;
            variants.push(other);
        }
        for variant in variants {
            let same = NoKeyName::parse(&variant) == NoKeyName::parse(name);
            let found = fs::symlink_metadata(mounted.join(OsStr::from_bytes(&variant))).is_ok();
            assert_eq!(found, same, "{:?}", variant.escape_ascii().to_string());
        }
    }
}

fn is(name: &OsStr, kind: &str) -> bool {
    name.as_bytes().starts_with(kind.as_bytes())
}

fn run(case: Case) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let block = case.block.to_string();
    let features = ["-t", "ext4", "-b", &block, "-I", "256", "-O", "encrypt,stable_inodes"];
    let image = Image::mke2fs(scratch.path(), "encrypted.img", 32 << 20, &features);
    let at = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &at, &[]);
    let dir = at.join("dir");
    fs::create_dir(&dir).unwrap();
    let key = add_key(&mount, case);
    let policy = policy_of(case, key);
    set_encryption_policy(&dir, &bytes_of(&policy)).expect("Linux takes the policy");
    let tree = make(&dir, case);
    let dir_ino = fs::metadata(&dir).unwrap().ino();
    let nonce = encryption_nonce(&dir);
    mount.unmount();

    let checker = Checker { disk: Disk::open(&image), master: master(case), policy };
    if case.version == 2 {
        assert_eq!(key, KeySpec::Identifier(checker.master.identifier()));
    }
    assert_eq!(checker.disk.context(dir_ino).nonce, nonce);
    checker.names(dir_ino, &tree);
    checker.targets(&tree);
    checker.contents(&tree);
    let written = checker.rewrite(&tree);

    let mount = KernelMount::mount(&image, &at, &[]);
    checker.without_key(&dir, dir_ino, &tree);
    assert_eq!(add_key(&mount, case), key);
    for (name, bytes) in &written {
        assert!(&fs::read(dir.join(name)).unwrap() == bytes, "Linux reads {name:?}");
    }
    mount.unmount();
}

#[test]
fn names_with_each_padding_are_those_of_linux() {
    for flags in 0..=3 {
        run(Case { flags, key_len: 32 + 8 * usize::from(flags), ..XTS });
    }
}

#[test]
fn small_blocks_are_encrypted_as_by_linux() {
    run(Case { block: 1024, ..XTS });
}

#[test]
fn keys_of_version_1_are_those_of_linux() {
    run(Case { version: 1, ..XTS });
}

#[test]
fn names_in_aes_128_are_those_of_linux() {
    let modes = Case { contents: Mode::Aes128Cbc, names: Mode::Aes128Cts, files: false, ..XTS };
    run(Case { key_len: 16, ..modes });
    run(Case { version: 1, key_len: 16, ..modes });
}

#[test]
fn ivs_of_inode_numbers_are_those_of_linux() {
    run(Case { flags: 3 | Flags::IV_INO_LBLK_64.bits(), ..XTS });
    run(Case { flags: 3 | Flags::IV_INO_LBLK_32.bits(), ..XTS });
}

#[test]
fn data_units_smaller_than_a_block_are_those_of_linux() {
    for log2_data_unit in [9, 10, 12] {
        run(Case { log2_data_unit, ..XTS });
    }
}

/// Policies with each mode, flag and data unit: Linux and this crate accept the same.
#[test]
fn policies_are_accepted_as_by_linux() {
    if !require(&NEEDS) {
        return;
    }
    for features in
        ["encrypt,huge_file", "encrypt,stable_inodes", "encrypt,stable_inodes,huge_file"]
    {
        let scratch = Scratch::new();
        let options = ["-b", "4096", "-O", features];
        let image = Image::mke2fs(scratch.path(), "encrypted.img", 8 << 20, &options);
        let at = scratch.dir("mnt");
        let volume = Disk::open(&image).volume();
        let mount = KernelMount::mount(&image, &at, &[]);
        for version in [1, 2] {
            let key = add_key(&mount, Case { version, ..XTS });
            let accepted = each_policy(key, |policy| {
                let dir = at.join("empty");
                fs::create_dir(&dir).unwrap();
                let linux = set_encryption_policy(&dir, &bytes_of(policy));
                fs::remove_dir(&dir).unwrap();
                let ours = policy.check(&volume, false);
                assert_eq!(linux.is_ok(), ours.is_ok(), "{policy:?}: {linux:?}, {ours:?}");
                ours.is_ok()
            });
            assert!(accepted > 10, "{accepted} policies are accepted");
        }
        mount.unmount();
    }
}

/// Calls for many policies and counts those that are accepted.
fn each_policy(key: KeySpec, accepts: impl Fn(&Policy) -> bool) -> usize {
    let base = policy_of(XTS, key);
    let mut policies = Vec::new();
    for contents in 0..=12 {
        for names in 0..=12 {
            for flags in [0, 3, 4, 8, 16] {
                let flags = Flags::from_bits_retain(flags);
                policies.push(Policy { contents, names, flags, ..base });
            }
        }
    }
    for flags in 0..=255 {
        policies.push(Policy { flags: Flags::from_bits_retain(flags), ..base });
    }
    if let KeySpec::Identifier(_) = key {
        policies.extend((0..=255).map(|log2_data_unit| Policy { log2_data_unit, ..base }));
        policies.extend((0..3).map(|at| {
            let mut reserved = [0; 3];
            reserved[at] = 1;
            Policy { reserved, ..base }
        }));
        for log2_data_unit in [9, 11, 12] {
            let flags = Flags::IV_INO_LBLK_64;
            policies.push(Policy { log2_data_unit, flags, ..base });
        }
    }
    policies.iter().filter(|policy| accepts(policy)).count()
}
