//! Fast commits with names of a casefolded directory: those of Extol are replayed by Linux, in the
//! guest, as the kernel beside the tests has no Unicode; and those of Linux by Extol.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use extol::vfs::SetAttr;
use extol::{Ext4, FileSystem as _, MountOptions};
use extol_block::MemDevice;
use extol_guest::Guest;
use extol_jbd2::inspect::FcOutcome;
use extol_testkit::{Image, Need, e2fsck, require};

use crate::rig::Rig;

const CASEFOLD: u32 = 0x4000_0000;

/// One change in the directory; names are asked for in any spelling.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A file that holds its name.
    Create(&'static str),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
}
use Step::{Create, Link, Rename, Unlink};

/// What is done for each state, and the file whose fsync follows.
const STATES: &[(&[Step], &str)] = &[
    (&[Create("Straße")], "straße"),
    (&[Link("STRASSE", "Kurz")], "Kurz"),
    (&[Rename("KURZ", "Lang")], "lang"),
    (&[Unlink("strasse")], "Lang"),
    (&[Create("STRASSE")], "Strasse"),
    (&[Rename("lang", "between"), Rename("Between", "lANG")], "LANG"),
    (&[Create("Cafe\u{301}"), Link("CAFÉ", "É")], "café"),
    (&[Rename("café", "straße")], "Straße"),
    (&[Unlink("LANG"), Create("Lang")], "lang"),
    (&[Create("A"), Link("a", "B"), Unlink("A")], "b"),
];

/// Entries as they are spelled, with what their files hold.
type Names = BTreeMap<String, String>;

/// The entry that a name finds.
fn found(names: &Names, name: &str) -> Option<String> {
    let form = extol_casefold::fold(name.as_bytes());
    names.keys().find(|key| extol_casefold::fold(key.as_bytes()) == form).cloned()
}

/// The directory after a step. A name that is taken keeps its spelling.
fn apply(names: &mut Names, step: Step) {
    let there = |names: &Names, name: &str| found(names, name).expect("a name that is there");
    match step {
        Create(name) => {
            assert_eq!(found(names, name), None);
            names.insert(name.to_owned(), name.to_owned());
        }
        Link(from, to) => {
            assert_eq!(found(names, to), None);
            let contents = names[&there(names, from)].clone();
            names.insert(to.to_owned(), contents);
        }
        Unlink(name) => {
            names.remove(&there(names, name));
        }
        Rename(from, to) => {
            let contents = names.remove(&there(names, from)).expect("just found");
            let to = found(names, to).unwrap_or_else(|| to.to_owned());
            names.insert(to, contents);
        }
    }
}

/// What must be in the directory of each state.
fn expected() -> Vec<Names> {
    let mut names = Names::new();
    let mut all = Vec::new();
    for (steps, _) in STATES {
        steps.iter().for_each(|step| apply(&mut names, *step));
        all.push(names.clone());
    }
    all
}

/// A volume with an empty casefolded directory, all of it durable.
fn rig() -> Option<Rig> {
    if !require(&[Need::Guest]) {
        return None;
    }
    let rig = Rig::with("", &["casefold"])?;
    rig.fs.create_dir("/d").unwrap();
    let dir = rig.fs.inode("/d").unwrap().ino();
    let flags = Some(rig.fs.getattr(dir).unwrap().flags | CASEFOLD);
    rig.fs.setattr(dir, &SetAttr { flags, ..SetAttr::default() }).unwrap();
    rig.fs.sync().unwrap();
    Some(rig)
}

fn carry_out(fs: &Arc<Ext4>, step: Step) {
    let path = |name: &str| format!("/d/{name}");
    match step {
        Create(name) => fs.write_file(path(name), name.as_bytes()),
        Link(from, to) => fs.hard_link(path(from), path(to)),
        Unlink(name) => fs.remove_file(path(name)),
        Rename(from, to) => fs.rename_path(path(from), path(to)),
    }
    .unwrap_or_else(|e| panic!("{step:?}: {e}"));
}

/// True if recovery finds fast commits.
fn has_fast_commits(image: &Image) -> bool {
    let device = MemDevice::from_bytes(&std::fs::read(&image.path).unwrap());
    let device: extol_block::SharedDevice = Arc::new(device);
    let report = extol::inspect_journal(&device, &MountOptions::default()).unwrap();
    report.fast_commits.iter().any(|commit| commit.outcome == FcOutcome::Valid)
}

fn drive(nr: usize) -> char {
    char::from(b'a' + nr as u8)
}

#[test]
fn linux_replays_names_of_extol() {
    let Some(rig) = rig() else { return };
    let mut images = Vec::new();
    for (nr, (steps, synced)) in STATES.iter().enumerate() {
        steps.iter().for_each(|step| carry_out(&rig.fs, *step));
        rig.fsync(&format!("/d/{synced}"));
        let cut = rig.cut();
        images.push(cut.image.copy_as(&format!("ours-{nr}.img")));
    }
    let fast = images.iter().filter(|image| has_fast_commits(image)).count();
    assert!(fast > 5, "{fast} of {} states have fast commits", images.len());
    let expected = expected();
    assert_eq!(seen_by_linux(&images, &expected), expected);
    for (nr, image) in images.iter().enumerate() {
        e2fsck(image).assert_clean(&format!("state {nr}, replayed by Linux"));
    }
}

/// What Linux, in the guest, finds in the directory of each image when it has replayed the fast
/// commits; it must find each of these names in capitals, too.
fn seen_by_linux(images: &[Image], names: &[Names]) -> Vec<Names> {
    let mut guest = Guest::new();
    let mut script = "set -e\n".to_owned();
    for (nr, (image, names)) in images.iter().zip(names).enumerate() {
        guest = guest.drive(&image.path);
        writeln!(script, "mount -t ext4 /dev/vd{} /mnt; cd /mnt/d", drive(nr)).unwrap();
        writeln!(script, "for f in *; do echo \"{nr}|$f|$(cat \"$f\")\"; done").unwrap();
        for (name, contents) in names {
            let other = name.to_uppercase();
            writeln!(script, "[ \"$(cat '{other}')\" = '{contents}' ] || echo '{nr}: {other}'")
                .unwrap();
        }
        writeln!(script, "cd /; umount /mnt").unwrap();
    }
    let mut seen = vec![Names::new(); images.len()];
    for line in guest.run(&script).lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [nr, name, contents] = fields[..] else { panic!("not found: {line}") };
        seen[nr.parse::<usize>().unwrap()].insert(name.to_owned(), contents.to_owned());
    }
    seen
}

/// Linux works on an image in the guest's memory, through a loop device: a copy of that is what a
/// power cut leaves.
fn states_of_linux(rig: &Rig) -> Vec<Image> {
    rig.fs.unmount().unwrap();
    let cut = rig.cut();
    let base = cut.image.copy_as("base.img");
    let mut guest = Guest::new().module("loop").program("sync").drive_read_only(&base.path);
    let mut script = "set -e
mkdir /work
cat /dev/vda >/work/disk
mount -t ext4 -o loop,commit=300 /work/disk /mnt
cd /mnt/d
create() { printf %s \"$1\" >\"$1\"; }
"
    .to_owned();
    let mut images = Vec::new();
    for (nr, (steps, synced)) in STATES.iter().enumerate() {
        let image =
            Image::sparse(base.path.with_file_name(format!("theirs-{nr}.img")), base.size());
        guest = guest.drive(&image.path);
        for step in *steps {
            let line = match step {
                Create(name) => format!("create '{name}'"),
                Link(from, to) => format!("ln '{from}' '{to}'"),
                Unlink(name) => format!("rm '{name}'"),
                Rename(from, to) => format!("mv '{from}' '{to}'"),
            };
            writeln!(script, "{line}").unwrap();
        }
        writeln!(script, "sync '{synced}'\ncat /work/disk >/dev/vd{}", drive(nr + 1)).unwrap();
        images.push(image);
    }
    script += "cd /\numount /mnt\n";
    assert_eq!(guest.run(&script).output, "");
    images
}

#[test]
fn extol_replays_names_of_linux() {
    let Some(rig) = rig() else { return };
    let images = states_of_linux(&rig);
    let fast = images.iter().filter(|image| has_fast_commits(image)).count();
    assert!(fast > 5, "{fast} of {} states have fast commits", images.len());
    // Linux records the name by which it was asked for another file under it, so that the replay
    // may change the spelling.
    let copies: Vec<Image> = (0..)
        .zip(&images)
        .map(|(nr, image)| image.copy_as(&format!("replayed-{nr}.img")))
        .collect();
    let by_linux = seen_by_linux(&copies, &expected());
    for (nr, (image, names)) in images.iter().zip(expected()).enumerate() {
        let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let mut there = Names::new();
        for entry in fs.read_dir("/d").unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let contents = text(fs.read_file(format!("/d/{name}")).unwrap());
            there.insert(name, contents);
        }
        assert_eq!(there, by_linux[nr], "state {nr}");
        assert_eq!(there.len(), names.len(), "state {nr}: {there:?}");
        for (name, contents) in names {
            let other = fs.read_file(format!("/d/{}", name.to_uppercase())).unwrap();
            assert_eq!(text(other), contents, "state {nr}: {name}");
        }
        fs.unmount().unwrap();
        drop(fs);
        e2fsck(image).assert_clean(&format!("state {nr}, replayed by Extol"));
    }
}
