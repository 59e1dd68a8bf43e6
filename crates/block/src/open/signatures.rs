//! The signatures of what is not an ext4 volume: where they stand, and what is said of it.
//!
//! A magic number of few bytes is confirmed by a second field. Places are bytes from the start, or
//! from the end where [`Place::Md`] or [`Place::End`] says so.

use super::found::{Known, Probe};

/// A signature.
pub(super) struct Signature {
    pub known: Known,
    places: Place,
    bytes: &'static [u8],
    /// Confirms it, given where the bytes are.
    confirm: fn(&Probe, u64) -> bool,
}

/// Where the bytes of a signature may be.
enum Place {
    /// Bytes from the start.
    At(&'static [u64]),
    /// So many bytes before the end.
    End(u64),
    /// The places of a RAID superblock of Linux at the end: versions 0.90 and 1.0.
    Md,
}

impl Signature {
    pub fn is_in(&self, probe: &Probe) -> bool {
        let is_at = |at: u64| {
            probe.bytes(at, self.bytes.len()) == Some(self.bytes) && (self.confirm)(probe, at)
        };
        match self.places {
            Place::At(places) => places.iter().any(|at| is_at(*at)),
            Place::End(before) => probe.size.checked_sub(before).is_some_and(is_at),
            Place::Md => md_places(probe.size).into_iter().flatten().any(is_at),
        }
    }
}

/// Where Linux's RAID keeps its superblock at the end of a device.
fn md_places(size: u64) -> [Option<u64>; 2] {
    const RESERVED: u64 = 64 << 10;
    let old = (size & !(RESERVED - 1)).checked_sub(RESERVED);
    let new = (size / 512).checked_sub(16).map(|sector| (sector & !7) * 512);
    [old, new]
}

const fn known(word: &'static str, what: &'static str, advice: &'static str) -> Known {
    Known { word, what, advice }
}

const fn at(known: Known, places: &'static [u64], bytes: &'static [u8]) -> Signature {
    Signature { known, places: Place::At(places), bytes, confirm: |_, _| true }
}

const fn confirmed(
    known: Known,
    places: &'static [u64],
    bytes: &'static [u8],
    confirm: fn(&Probe, u64) -> bool,
) -> Signature {
    Signature { known, places: Place::At(places), bytes, confirm }
}

const RAID: Known = known(
    "linux_raid",
    "a member of a Linux RAID",
    "assemble it (mdadm --assemble), and name the array",
);
const MD_MAGIC: [u8; 4] = 0xA92B_4EFC_u32.to_le_bytes();

/// A RAID superblock of version 1 names its own place.
fn is_md1(probe: &Probe, at: u64) -> bool {
    probe.le32(at + 4) == Some(1) && probe.le64(at + 144) == Some(at / 512)
}

/// Version 0.90: the numbers of its version, in the machine's order.
fn is_md0(probe: &Probe, at: u64) -> bool {
    probe.le32(at + 4) == Some(0) && probe.le32(at + 8).is_some_and(|minor| minor >= 90)
}

/// A disk whose MBR says that it has a GPT, but both of them are damaged.
pub(super) const LOST_GPT: Known =
    known("gpt", "a GPT disk whose tables are both damaged", "gdisk may repair them");

/// A disk of which the start of a GPT is gone.
pub(super) const END_GPT: Known =
    known("gpt", "a disk with the copy of a GPT at its end alone", "gdisk may restore its start");

const fn at_end(known: Known, before: u64, bytes: &'static [u8]) -> Signature {
    Signature { known, places: Place::End(before), bytes, confirm: |_, _| true }
}

/// Those that stand before an ext4 superblock.
pub(super) const FIRST: &[Signature] = &[
    confirmed(RAID, &[0, 4096], &MD_MAGIC, is_md1),
    Signature {
        known: RAID,
        places: Place::Md,
        bytes: &MD_MAGIC,
        confirm: |probe, at| is_md1(probe, at) || is_md0(probe, at),
    },
    Signature {
        known: known(
            "ddf_raid",
            "a member of a firmware RAID (DDF)",
            "assemble it, and name the array",
        ),
        places: Place::End(512),
        bytes: b"\xDE\x11\xDE\x11",
        // Its version, as text.
        confirm: |probe, at| probe.bytes(at + 32, 3) == Some(b"01."),
    },
    at_end(
        known("isw_raid", "a member of an Intel RAID", "assemble it, and name the array"),
        1024,
        b"Intel Raid ISM Cfg Sig. ",
    ),
    confirmed(
        known(
            "lvm",
            "an LVM physical volume",
            "activate its group (vgchange -ay), and name the logical volume",
        ),
        &[0, 512, 1024, 1536],
        b"LABELONE",
        |probe, at| probe.bytes(at + 24, 8) == Some(b"LVM2 001"),
    ),
    confirmed(
        known(
            "luks",
            "a LUKS encrypted volume",
            "open it (cryptsetup open), and name its device in /dev/mapper",
        ),
        &[0],
        b"LUKS\xBA\xBE",
        |probe, at| matches!(probe.bytes(at + 6, 2), Some([0, 1 | 2])),
    ),
    at(
        known("bcache", "a bcache device", "name the device in /dev/bcache*"),
        &[4096 + 24],
        b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81",
    ),
];

/// File systems whose boot sector ends as a table of partitions does.
pub(super) const BOOT_SECTORS: &[Signature] = &[
    at(known("ntfs", "an NTFS file system", ""), &[3], b"NTFS    "),
    at(
        known(
            "bitlocker",
            "a BitLocker encrypted volume",
            "open it (cryptsetup open --type bitlk)",
        ),
        &[3],
        b"-FVE-FS-",
    ),
    at(known("exfat", "an exFAT file system", ""), &[3], b"EXFAT   "),
    confirmed(known("fat", "a FAT file system", ""), &[82], b"FAT32   ", is_fat),
    confirmed(known("fat", "a FAT file system", ""), &[54], b"FAT16   ", is_fat),
    confirmed(known("fat", "a FAT file system", ""), &[54], b"FAT12   ", is_fat),
    confirmed(known("fat", "a FAT file system", ""), &[54], b"FAT     ", is_fat),
    at(known("xfs", "an XFS file system", ""), &[0], b"XFSB"),
];

/// A sector size and a number of FATs that are possible.
fn is_fat(probe: &Probe, _: u64) -> bool {
    let sector = probe.bytes(11, 2).map(|b| u16::from(b[0]) | u16::from(b[1]) << 8);
    let fats = probe.bytes(16, 1).map(|b| b[0]);
    matches!(sector, Some(512 | 1024 | 2048 | 4096)) && matches!(fats, Some(1..=4))
}

const MINIX: Known = known("minix", "a MINIX file system", "");
const UFS: Known = known("ufs", "a UFS file system", "");
const UFS_PLACES: &[u64] = &[8192 + 1372, 65_536 + 1372, 262_144 + 1372];
const BSD: Known = known("bsd", "a disk with a BSD label", "name a part with -o offset=");

/// Versions 1 and 2: blocks for both bitmaps, zones as large as blocks, a known state.
fn is_minix(probe: &Probe, _: u64) -> bool {
    let word = |at: u64| probe.le16(1024 + at).unwrap_or(0);
    word(4) > 0 && word(6) > 0 && word(10) == 0 && word(18) < 4
}

/// Version 3, with its size of blocks.
fn is_minix3(probe: &Probe, _: u64) -> bool {
    let word = |at: u64| probe.le16(1024 + at).unwrap_or(0);
    word(6) > 0 && word(8) > 0 && word(12) == 0 && matches!(word(28), 1024..=32_768)
}

/// The words of a label of Sun's add up to nothing by exclusive or.
fn is_sun(probe: &Probe, _: u64) -> bool {
    let mut words = (0..256).map(|word| probe.le16(word * 2).unwrap_or(1));
    words.by_ref().fold(0, |sum, word| sum ^ word) == 0
}

const SWAP: Known = known("swap", "Linux swap space", "");
const REISER: Known = known("reiserfs", "a ReiserFS file system", "");
/// A qcow2 image.
pub(super) const QCOW2: Known = known("qcow2", "a qcow2 image", CONVERT);
/// A VMDK image.
pub(super) const VMDK: Known = known("vmdk", "a VMDK image", CONVERT);
/// A VHDX image.
pub(super) const VHDX: Known = known("vhdx", "a VHDX image", CONVERT);
const CONVERT: &str = "make a raw image of it: qemu-img convert -O raw";

/// Compressed files that are expanded.
pub(super) const COMPRESSED: [(Known, &[u8]); 3] = [
    (known("gzip", "a gzip file", "expand it first (gzip -d)"), b"\x1F\x8B\x08"),
    (known("xz", "an xz file", "expand it first (xz -d)"), b"\xFD7zXZ\0"),
    (known("zstd", "a zstd file", "expand it first (zstd -d)"), b"\x28\xB5\x2F\xFD"),
];

/// What an Android sparse image is.
pub(super) const ANDROID_SPARSE: Known =
    known("sparse", "an Android sparse image", "make a raw image of it (simg2img)");

/// The last ten bytes of a page, of the sizes that Linux has.
const SWAP_PLACES: &[u64] = &[4086, 8182, 16374, 32758, 65526];
const REISER_PLACES: &[u64] = &[65536 + 52, 8192 + 52];
/// Where a ring of uberblocks of ZFS begins, and places in it that are written first.
const ZFS_PLACES: &[u64] = &[
    0x20000, 0x21000, 0x22000, 0x23000, 0x24000, 0x25000, 0x26000, 0x27000, 0x28000, 0x29000,
    0x2A000, 0x2B000, 0x2C000, 0x2D000, 0x2E000, 0x2F000, 0x30000, 0x31000, 0x32000, 0x33000,
    0x34000, 0x35000, 0x36000, 0x37000, 0x38000, 0x39000, 0x3A000, 0x3B000, 0x3C000, 0x3D000,
    0x3E000, 0x3F000, 0x20400, 0x20800, 0x20C00, 0x21400, 0x21800, 0x21C00,
];
const ZFS: Known = known("zfs", "a member of a ZFS pool", "");

/// The others.
pub(super) const SIGNATURES: &[Signature] = &[
    at(known("btrfs", "a btrfs file system", ""), &[65_600], b"_BHRfS_M"),
    at(SWAP, SWAP_PLACES, b"SWAPSPACE2"),
    at(SWAP, SWAP_PLACES, b"SWAP-SPACE"),
    at(known("swap", "a hibernation image in swap space", ""), SWAP_PLACES, b"S1SUSPEND\0"),
    at(known("squashfs", "a squashfs file system", ""), &[0], b"hsqs"),
    at(known("erofs", "an EROFS file system", ""), &[1024], b"\xE2\xE1\xF5\xE0"),
    at(known("f2fs", "an F2FS file system", ""), &[1024], b"\x10\x20\xF5\xF2"),
    at(
        known("bcachefs", "a bcachefs file system", ""),
        &[4096 + 24],
        b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF",
    ),
    at(known("jfs", "a JFS file system", ""), &[32_768], b"JFS1"),
    at(REISER, REISER_PLACES, b"ReIsErFs"),
    at(REISER, REISER_PLACES, b"ReIsEr2Fs"),
    at(REISER, REISER_PLACES, b"ReIsEr3Fs"),
    at(known("hfsplus", "an HFS+ file system", ""), &[1024], b"H+\0\x04"),
    at(known("hfsplus", "an HFS+ file system", ""), &[1024], b"HX\0\x05"),
    at(known("apfs", "an APFS container", ""), &[32], b"NXSB"),
    confirmed(known("nilfs2", "a NILFS2 file system", ""), &[1024 + 6], b"\x34\x34", |probe, _| {
        probe.le32(1024) == Some(2)
    }),
    at(known("gfs2", "a GFS2 file system", ""), &[65_536], b"\x01\x16\x19\x70\0\0\0\x01"),
    at(known("ocfs2", "an OCFS2 file system", ""), &[1024, 2048, 4096, 8192], b"OCFSV2"),
    at(known("iso9660", "an ISO 9660 image of a CD", ""), &[32_769], b"CD001"),
    at(known("udf", "a UDF file system", ""), &[32_769], b"BEA01"),
    at(known("cramfs", "a cramfs file system", ""), &[0], b"\x45\x3D\xCD\x28"),
    at(known("romfs", "a romfs file system", ""), &[0], b"-rom1fs-"),
    at(known("ubi", "a UBI image", ""), &[0], b"UBI#"),
    at(known("ubifs", "a UBIFS file system", ""), &[0], b"\x31\x18\x10\x06"),
    confirmed(ZFS, ZFS_PLACES, b"\x0C\xB1\xBA\0\0\0\0\0", |probe, at| {
        probe.le64(at + 8).is_some_and(|version| version > 0 && version < 100_000)
    }),
    at(
        known("verity", "hash data of dm-verity", "name the volume, not its hashes"),
        &[0],
        b"verity\0\0",
    ),
    at(
        known("stratis", "a member of a Stratis pool", ""),
        &[512 + 4],
        b"!Stra0tis\x86\xFF\x02^\x41rh",
    ),
    at(known("vdo", "a VDO volume", "activate it, and name its device"), &[0], b"dmvdo001"),
    at(QCOW2, &[0], b"QFI\xFB"),
    at(VMDK, &[0], b"KDMV"),
    at(known("vmdk", "a VMDK image", CONVERT), &[0], b"COWD"),
    at(known("vmdk", "the description of a VMDK image", CONVERT), &[0], b"# Disk DescriptorFile"),
    at(VHDX, &[0], b"vhdxfile"),
    at(known("qed", "a QED image", CONVERT), &[0], b"QED\0"),
    at(known("vhd", "a VHD image", CONVERT), &[0], b"conectix"),
    at(known("vdi", "a VDI image", CONVERT), &[64], b"\x7F\x10\xDA\xBE"),
    at(known("parallels", "an image of Parallels", CONVERT), &[0], b"WithoutFreeSpace"),
    at(known("parallels", "an image of Parallels", CONVERT), &[0], b"WithouFreSpacExt"),
    at_end(known("dmg", "an Apple disk image", CONVERT), 512, b"koly"),
    at(ANDROID_SPARSE, &[0], b"\x3A\xFF\x26\xED"),
    at(COMPRESSED[0].0, &[0], COMPRESSED[0].1),
    at(COMPRESSED[1].0, &[0], COMPRESSED[1].1),
    at(COMPRESSED[2].0, &[0], COMPRESSED[2].1),
    at(known("lz4", "an lz4 file", "expand it first: lz4 -d"), &[0], b"\x04\x22\x4D\x18"),
    confirmed(
        known("bzip2", "a bzip2 file", "expand it first: bzip2 -d"),
        &[0],
        b"BZh",
        |probe, _| probe.bytes(4, 6) == Some(b"\x31\x41\x59\x26\x53\x59"),
    ),
    at(known("7z", "a 7-Zip archive", "unpack it first"), &[0], b"7z\xBC\xAF\x27\x1C"),
    at(known("zip", "a zip archive", "unpack it first"), &[0], b"PK\x03\x04"),
    at(known("tar", "a tar archive", "make a volume of it: extol mkfs -d"), &[257], b"ustar"),
    at(known("cpio", "a cpio archive", ""), &[0], b"070701"),
    at(known("elf", "a program", ""), &[0], b"\x7FELF"),
    confirmed(MINIX, &[1040], b"\x7F\x13", is_minix),
    confirmed(MINIX, &[1040], b"\x8F\x13", is_minix),
    confirmed(MINIX, &[1040], b"\x68\x24", is_minix),
    confirmed(MINIX, &[1040], b"\x78\x24", is_minix),
    confirmed(MINIX, &[1048], b"\x5A\x4D", is_minix3),
    at(UFS, UFS_PLACES, b"\x54\x19\x01\0"),
    at(UFS, UFS_PLACES, b"\0\x01\x19\x54"),
    at(UFS, UFS_PLACES, b"\x19\x01\x54\x19"),
    at(UFS, UFS_PLACES, b"\x19\x54\x01\x19"),
    // The number stands twice in a label.
    confirmed(BSD, &[64, 512], b"\x57\x45\x56\x82", |probe, at| {
        probe.bytes(at + 132, 4) == Some(b"\x57\x45\x56\x82")
    }),
    confirmed(
        known("sun", "a disk with a Sun label", "name a part with -o offset="),
        &[508],
        b"\xDA\xBE",
        is_sun,
    ),
    // Behind those whose header has a place at the end, too.
    at_end(END_GPT, 512, b"EFI PART"),
    at_end(known("vhd", "a VHD image", CONVERT), 512, b"conectix"),
];
