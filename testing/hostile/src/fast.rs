//! Made-up fast commits: records as [`Choices`] make them, or any bytes, in the area of a
//! volume that is sound but for them. Checksums are right, so all of it is replayed.

use extol_block::{BlockDevice as _, BlockSize, MemDevice};
use extol_jbd2::Tid;
use extol_jbd2::format::{Features, crc32c};
use extol_ondisk::fast_commit::{FcEntry, FcRecord, FcWriter};

use crate::base::Base;
use crate::choices::Choices;
use crate::layout::{Kind, le16, le32, read};
use crate::seal;

/// The transaction that recovery expects: newer than all that the log ever held.
pub const TID: Tid = Tid(77_000);

const MUST: &str = "inside the device";

/// The volume as a power cut would leave it: its log is empty but live, and its area begins with
/// these bytes.
///
/// # Panics
/// If the base has no area.
#[must_use]
pub fn crashed(base: &Base, area: &[u8]) -> MemDevice {
    let layout = &base.layout;
    let dev = base.image.snapshot();
    let bs = layout.geo.block_len();
    let mut jsb = layout.journal.clone().expect("a journal");
    jsb.features.incompat |= Features::INCOMPAT_FAST_COMMIT;
    (jsb.start, jsb.sequence) = (jsb.first, TID);
    let range = jsb.fc_range().expect("an area");
    for (nr, block) in range.zip(area.chunks(bs)) {
        dev.write_at(block, layout.log[nr as usize]).expect(MUST);
    }
    dev.write_at(&vec![0; bs], layout.log[jsb.first as usize]).expect(MUST);
    dev.write_at(&jsb.encode(), layout.log[0]).expect(MUST);
    // The volume says that its log is needed.
    let superblock = layout.targets[0];
    let mut bytes = read(&dev, superblock.at, superblock.len);
    bytes[0x60] |= 4;
    seal::seal(layout, &superblock, &mut bytes);
    dev.write_at(&bytes, superblock.at).expect(MUST);
    dev
}

/// Makes the transactions and checksums of any area right, as far as its tags can be followed.
pub fn make_right(area: &mut [u8], block: usize) {
    let mut sum = 0;
    for bytes in area.chunks_mut(block) {
        let mut at = 0;
        while at + 4 <= bytes.len() {
            let (tag, len) = (le16(bytes, at), usize::from(le16(bytes, at + 2)));
            let end = at + 4 + len;
            if end > bytes.len() || !(1..=9).contains(&tag) {
                return;
            }
            match tag {
                8 if len >= 8 => {
                    bytes[at + 4..at + 8].copy_from_slice(&TID.0.to_le_bytes());
                    sum = crc32c(sum, &bytes[at..at + 8]);
                    bytes[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
                    sum = 0;
                }
                _ => {
                    if tag == 9 && len >= 8 {
                        bytes[at + 8..at + 12].copy_from_slice(&TID.0.to_le_bytes());
                    }
                    sum = crc32c(sum, &bytes[at..end]);
                }
            }
            at = end;
        }
    }
}

/// Makes up records.
#[derive(Debug)]
pub struct Maker<'a> {
    base: &'a Base,
    /// Inodes that records before named: what belongs together is about the same ones.
    recent: Vec<u32>,
    names: Vec<Vec<u8>>,
}

impl<'a> Maker<'a> {
    /// For this volume.
    #[must_use]
    pub fn new(base: &'a Base) -> Self {
        let long = vec![b'x'; 255];
        let odd: [&[u8]; 9] =
            [b".", b"..", b"a/b", b"nul\0", b"lost+found", b"new", b"newer", b"\xff", &long];
        let mut names: Vec<Vec<u8>> = odd.iter().map(|n| n.to_vec()).collect();
        names.extend(base.layout.names.values().take(40).map(|n| n.name.to_vec()));
        Self { base, recent: vec![2], names }
    }

    fn ino(&mut self, choices: &mut Choices) -> u32 {
        let count = self.base.layout.geo.inodes();
        let ino = match choices.below(16) {
            0..6 => *choices.pick(&self.recent),
            6..11 => *choices.pick(&self.base.layout.inodes),
            11..14 => count - choices.below(24) as u32,
            14 => choices.below(14) as u32,
            _ => *choices.pick(&[0, count + 1, u32::MAX, 1 << 31]),
        };
        self.recent.push(ino);
        if self.recent.len() > 6 {
            self.recent.remove(0);
        }
        ino
    }

    fn dir(&mut self, choices: &mut Choices) -> u32 {
        if choices.below(8) == 0 {
            self.ino(choices)
        } else {
            *choices.pick(&self.base.layout.dirs)
        }
    }

    fn entry(&mut self, choices: &mut Choices) -> FcEntry {
        let (parent, ino) = (self.dir(choices), self.ino(choices));
        let name = if choices.below(3) == 0 {
            format!("made-up-{}", choices.below(20)).into_bytes()
        } else if choices.below(2) == 0 {
            // A name that the inode has.
            self.base.layout.names.get(&ino).map_or_else(|| b"n".to_vec(), |n| n.name.to_vec())
        } else {
            choices.pick(&self.names).clone()
        };
        FcEntry { parent, ino, name: name.into() }
    }

    fn block(&self, choices: &mut Choices) -> u64 {
        let blocks = self.base.layout.geo.blocks();
        match choices.below(8) {
            0..3 => blocks - 1 - choices.below(300) as u64,
            3..6 => *choices.pick(&self.base.layout.blocks),
            6 => choices.below(blocks as usize) as u64,
            _ => *choices.pick(&[0, blocks, blocks - 1, u64::from(u32::MAX), (1 << 48) - 1]),
        }
    }

    fn logical(choices: &mut Choices) -> u32 {
        match choices.below(6) {
            0..4 => choices.below(40) as u32,
            4 => choices.below(1 << 16) as u32,
            _ => *choices.pick(&[u32::MAX, u32::MAX - 1, 1 << 31, (1 << 22) - 1]),
        }
    }

    fn count(choices: &mut Choices) -> u32 {
        match choices.below(6) {
            0..4 => 1 + choices.below(8) as u32,
            4 => 1 + choices.below(500) as u32,
            _ => *choices.pick(&[32768, 32767, 1 << 14, 0, u32::MAX]),
        }
    }

    fn image(&self, choices: &mut Choices, ino: u32) -> Vec<u8> {
        let slots: Vec<_> =
            self.base.layout.targets.iter().filter(|t| t.kind == Kind::Inode).collect();
        let own = slots.iter().find(|t| t.ino == ino);
        let of = match own {
            Some(own) if choices.below(4) > 0 => own,
            _ => *choices.pick(&slots),
        };
        let mut image = read(&self.base.image, of.at, of.len);
        let len = *choices.pick(&[160, 160, 160, 160, 128, 132, 255, 256, 200]);
        image.resize(len, choices.below(256) as u8);
        for _ in 0..choices.below(5) {
            let at = match choices.below(3) {
                // Mode, size, links, blocks, flags.
                0 => *choices
                    .pick(&[0, 1, 4, 5, 0x1A, 0x1B, 0x1C, 0x20, 0x21, 0x22, 0x23, 0x6C, 0x80]),
                _ => choices.below(len),
            };
            image[at.min(len - 1)] = choices.below(256) as u8;
        }
        image
    }

    /// A few records.
    pub fn some(&mut self, choices: &mut Choices) -> Vec<FcRecord> {
        match choices.below(9) {
            0 | 1 => vec![self.range(choices)],
            2 => {
                let ino = self.ino(choices);
                vec![FcRecord::DelRange {
                    ino,
                    block: Self::logical(choices),
                    len: Self::count(choices),
                }]
            }
            3 => vec![FcRecord::Creat(self.entry(choices))],
            4 => vec![FcRecord::Link(self.entry(choices))],
            5 => vec![FcRecord::Unlink(self.entry(choices))],
            6 | 7 => {
                let ino = self.ino(choices);
                vec![FcRecord::Inode { ino, image: self.image(choices, ino).into() }]
            }
            _ => {
                // A new file as it should be, or nearly.
                let entry = self.entry(choices);
                let image = self.image(choices, entry.ino).into();
                let inode = FcRecord::Inode { ino: entry.ino, image };
                let mut range = self.range(choices);
                if let FcRecord::AddRange { ino, .. } = &mut range {
                    *ino = entry.ino;
                }
                vec![inode.clone(), range, FcRecord::Creat(entry), inode]
            }
        }
    }

    fn range(&mut self, choices: &mut Choices) -> FcRecord {
        FcRecord::AddRange {
            ino: self.ino(choices),
            block: Self::logical(choices),
            len: Self::count(choices),
            start: self.block(choices),
            unwritten: choices.below(4) == 0,
        }
    }

    /// Fast commits until the choices are spent, `most` records are made or the area is full.
    pub fn area(&mut self, choices: &mut Choices, most: usize) -> Vec<u8> {
        let block = BlockSize::new(self.base.layout.geo.block_len() as u32).expect("a block size");
        let mut writer = FcWriter::new(block);
        writer.head(0, TID.0);
        let mut made = 0;
        while made < most && !choices.are_spent() {
            for record in self.some(choices) {
                // What does not fit into a block at all is left out.
                made += usize::from(writer.record(&record).is_ok());
            }
            if choices.below(12) == 0 {
                writer.tail(TID.0);
            }
        }
        writer.tail(TID.0);
        writer.into_bytes()
    }
}

/// True if the area begins with a HEAD, so that it is looked at.
#[must_use]
pub fn has_head(area: &[u8]) -> bool {
    le16(area, 0) == 9 && le32(area, 4) == 0
}
