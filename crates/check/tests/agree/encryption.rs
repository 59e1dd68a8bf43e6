//! What is said about encrypted inodes and names on volumes that have other damage as well.

use std::sync::Arc;

use extol_check::{Kind, Report};
use extol_testkit::{Need, Scratch, e2fsck, new_e2fsck, require};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use crate::checker::report_on;
use crate::compare;
use crate::editor::{ImageEditor, Part, le16, le32};
use crate::images::variant;
use crate::mutate::damage;

/// Damaged volumes of each kind.
const ROUNDS: u64 = 90;

/// What is said about encryption: names that are too short, and policies and contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Alarms {
    names: bool,
    policies: bool,
}

impl Alarms {
    /// By the checker, beside what e2fsck passes over.
    fn ours(report: &Report) -> Self {
        let mut alarms = Self::default();
        let common = |f: &&extol_check::Finding| f.kind == Kind::Encryption && !f.beyond_e2fsck;
        for finding in report.findings.iter().filter(common) {
            let is_name = finding.what.contains("an encrypted name has");
            *(if is_name { &mut alarms.names } else { &mut alarms.policies }) = true;
        }
        alarms
    }

    /// By e2fsck.
    fn theirs(output: &str) -> Self {
        let mut alarms = Self::default();
        let about = ["Encrypted", "encrypted inode", "encrypt flag", "encryption"];
        let is_about = |line: &&str| about.iter().any(|word| line.contains(word));
        for line in output.lines().filter(is_about) {
            let is_name = line.contains("is too short");
            *(if is_name { &mut alarms.names } else { &mut alarms.policies }) = true;
        }
        alarms
    }

    fn or(self, other: Self) -> Self {
        Self { names: self.names || other.names, policies: self.policies || other.policies }
    }

    fn any(self) -> bool {
        self.names || self.policies
    }
}

/// What either e2fsck says, if one of them comes to the directories, and what the checker says.
fn alarms(v: &ImageEditor) -> Option<(Alarms, Alarms, String)> {
    let reports = [e2fsck(&v.image), new_e2fsck(&v.image)];
    if reports.iter().any(|report| !report.output.contains("Pass 3")) {
        return None;
    }
    let theirs = reports.iter().map(|report| Alarms::theirs(&report.output));
    let theirs = theirs.fold(Alarms::default(), Alarms::or);
    let report = report_on(Arc::new(v.device()), None).ok()?;
    let text = format!("{}\nours: {report}", reports[0].output);
    Some((theirs, Alarms::ours(&report), text))
}

fn able() -> bool {
    require(&[
        Need::Root,
        Need::Loop,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
        Need::NewE2fsck,
    ])
}

/// On a volume that is damaged in any way the checker says of encryption what e2fsck says.
#[test]
fn other_damage_gives_no_alarm_about_encryption() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let (mut silent, mut told, mut wrong) = (0, 0, Vec::new());
    for name in ["encrypt", "encrypt-no-csum"] {
        let mut v = compare::volume(&scratch, variant(name), 5);
        for seed in 0..ROUNDS {
            let what = damage(&mut v, &mut SmallRng::seed_from_u64(seed));
            if let Some((theirs, ours, text)) = alarms(&v) {
                *(if theirs.any() { &mut told } else { &mut silent }) += 1;
                // (e2fsck finds no context in an inode whose checksum is wrong.)
                let unread = text.contains("checksum does not match inode");
                if ours != theirs && !(unread && ours == Alarms { policies: false, ..theirs }) {
                    wrong.push(format!("{name}:{seed}: {what}: {theirs:?}, ours {ours:?}\n{text}"));
                }
            }
            v.restore();
        }
        v.image.remove();
    }
    assert!(wrong.is_empty(), "{} disagreements\n{}", wrong.len(), wrong.join("\n"));
    assert!(silent > 50 && told > 5, "{silent} without an alarm, {told} with one");
}

/// The first encrypted name, as its block, the place of its length and the number of its inode.
fn encrypted_name(v: &ImageEditor) -> (Part, usize, u32) {
    // `.` and `..` take 24 bytes; no name of another directory is as long as a block of the cipher.
    let third = 24;
    v.parts
        .iter()
        .filter(|part| matches!(part, Part::DirBlock(..)))
        .map(|part| (*part, v.range(*part).0 + third))
        .find(|(_, at)| {
            let is_first = le16(&v.bytes, at - 20) == 12 && v.bytes[at - 18] == 1;
            let ino = le32(&v.bytes, *at);
            let in_use = is_first && ino != 0 && v.bytes[at + 6] >= 16;
            in_use && le32(v.inode_bytes(ino), 0x20) & 0x800 != 0
        })
        .map(|(part, at)| (part, at + 6, le32(&v.bytes, at)))
        .expect("an encrypted directory")
}

/// A name that is too short is told beside other damage, and other damage alone tells nothing of
/// names; each damage is in an encrypted directory or in its inodes.
#[test]
fn a_short_name_beside_other_damage() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    for name in ["encrypt", "encrypt-no-csum"] {
        let mut v = compare::volume(&scratch, variant(name), 5);
        let (part, length, ino) = encrypted_name(&v);
        // Links, blocks, the type in the entry; and a bit of the first group's bitmap.
        let inode = v.inode_at(ino);
        let bitmap = v.range(Part::BlockBitmap(0)).0;
        let others = [
            (Part::Inode(ino), inode + 0x1A),
            (Part::Inode(ino), inode + 0x1C),
            (part, length + 1),
            (Part::BlockBitmap(0), bitmap),
        ];
        for is_short in [false, true] {
            for (other, at) in others {
                if is_short {
                    v.write(length, &[15]);
                }
                v.write(at, &[v.bytes[at] ^ 4]);
                v.fix(part);
                v.fix(other);
                let (theirs, ours, text) = alarms(&v).expect("e2fsck comes to the directories");
                let what = format!("{name}: short {is_short}, {other:?}\n{text}");
                assert!(text.contains("errors"), "{what}");
                assert_eq!((theirs.names, ours.names), (is_short, is_short), "{what}");
                assert_eq!((theirs.policies, ours.policies), (false, false), "{what}");
                v.restore();
            }
        }
        v.image.remove();
    }
}
