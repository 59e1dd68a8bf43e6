//! `extol info -h` and `-g`: superblock and groups in the lines of dumpe2fs, so that scripts
//! can read either. Times are in UTC.

use std::fmt::Write as _;

use extol::Header;
use extol_jbd2::format::JournalSuperblock;
use extol_ondisk::superblock::{State, SuperFlags};
use extol_ondisk::{Compat, GroupDesc, GroupNr, Incompat, RoCompat, Superblock, mmp};

use extol_vfs::bytes_text;

use crate::calendar::date;

/// The lines of `dumpe2fs -h`.
pub(super) fn text(header: &Header) -> String {
    let mut lines = Lines(String::new());
    let sb = &header.superblock;
    lines.names(sb);
    lines.numbers(sb);
    lines.times(sb);
    lines.inodes(sb);
    lines.errors(sb);
    lines.features(sb);
    if let Some(journal) = &header.journal {
        lines.journal(journal, sb.block_bytes());
    }
    lines.mmp(header);
    lines.0
}

/// The lines of `dumpe2fs -g`: one for each group, with -1 where there is no superblock.
pub(super) fn groups(header: &Header, descriptors: &[GroupDesc]) -> String {
    let mut text = String::from("group:block:super:gdt:bbitmap:ibitmap:itable\n");
    let Some(geo) = &header.geometry else { return text };
    for (group, desc) in (0..).map(GroupNr).zip(descriptors) {
        let first = geo.group_first_block(group).0;
        let place = |there: bool, at: String| if there { at } else { "-1".to_owned() };
        let has_super = geo.has_super(group);
        // With clusters, blocks of 1 KiB begin with 0; the superblock is in block 1 all the same.
        let start = if first == 0 && geo.block_len() == 1024 { 1 } else { first };
        let table = start + u64::from(has_super);
        let count = u64::from(geo.group_desc_blocks(group));
        let end = (table + count).saturating_sub(1);
        // The one descriptor block of a meta group is no range.
        let meta = geo.incompat().contains(Incompat::META_BG)
            && group.0 / geo.descs_per_block() >= geo.first_meta_bg();
        let blocks = if meta { table.to_string() } else { format!("{table}-{end}") };
        let at = place(has_super, start.to_string());
        let descriptors = place(count > 0, blocks);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}:{first}:{at}:{descriptors}:{}:{}:{}",
            group.0, desc.block_bitmap, desc.inode_bitmap, desc.inode_table
        );
    }
    text
}

struct Lines(String);

fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

/// Bytes up to the first NUL, as text.
fn padded_text(bytes: &[u8]) -> String {
    bytes_text(bytes.split(|&b| b == 0).next().unwrap_or_default())
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (i, b) in bytes.iter().enumerate() {
        let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(text, "{dash}{b:02x}");
    }
    text
}

pub fn time(sec: u64) -> String {
    match sec {
        0 => "n/a".to_owned(),
        sec => date(i64::try_from(sec).unwrap_or(i64::MAX)).ctime(),
    }
}

impl Lines {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{:<26}{value}", format!("{name}:"));
    }

    /// A line for what is there.
    fn unless_zero(&mut self, name: &str, value: impl Into<u64>) {
        let value = value.into();
        if value != 0 {
            self.line(name, value);
        }
    }

    fn names(&mut self, sb: &Superblock) {
        self.line("Filesystem volume name", or(&bytes_text(sb.label()), "<none>"));
        self.line("Last mounted on", or(&padded_text(&sb.last_mounted), "<not available>"));
        self.line("Filesystem UUID", uuid(&sb.uuid));
        self.line("Filesystem magic number", format_args!("0x{:04X}", sb.magic));
        let revision = match sb.rev_level {
            0 => "0 (original)".to_owned(),
            1 => "1 (dynamic)".to_owned(),
            other => format!("{other} (unknown)"),
        };
        self.line("Filesystem revision #", revision);
        let features =
            [sb.feature_compat.names(), sb.feature_incompat.names(), sb.feature_ro_compat.names()]
                .concat();
        self.line("Filesystem features", or(&features.join(" "), "(none)"));
        if !sb.flags.is_empty() {
            self.line("Filesystem flags", flags(sb.flags));
        }
        self.line("Default mount options", or(&sb.default_mount_opts.names().join(" "), "(none)"));
        if sb.mount_opts[0] != 0 {
            self.line("Mount options", padded_text(&sb.mount_opts));
        }
        let clean = if sb.state.contains(State::VALID) { "clean" } else { "not clean" };
        let errors = if sb.state.contains(State::ERROR) { " with errors" } else { "" };
        self.line("Filesystem state", format_args!("{clean}{errors}"));
        let behaviour = match sb.errors {
            1 => "Continue",
            2 => "Remount read-only",
            3 => "Panic",
            _ => "Unknown (continue)",
        };
        self.line("Errors behavior", behaviour);
        let os = match sb.creator_os {
            0 => "Linux",
            1 => "GNU/Hurd",
            2 => "Masix",
            3 => "FreeBSD",
            4 => "Lites",
            _ => "unknown",
        };
        self.line("Filesystem OS type", os);
    }

    fn numbers(&mut self, sb: &Superblock) {
        self.line("Inode count", sb.inodes_count);
        self.line("Block count", sb.blocks_count);
        self.line("Reserved block count", sb.r_blocks_count);
        self.unless_zero("Overhead clusters", sb.overhead_clusters);
        self.line("Free blocks", sb.free_blocks_count);
        self.line("Free inodes", sb.free_inodes_count);
        self.line("First block", sb.first_data_block);
        let bytes = |log: u32| 1024_u64 << log.min(40);
        let clusters = sb.feature_ro_compat.contains(RoCompat::BIGALLOC);
        let unit = if clusters { "Cluster" } else { "Fragment" };
        self.line("Block size", bytes(sb.log_block_size));
        self.line(&format!("{unit} size"), bytes(sb.log_cluster_size));
        if sb.feature_incompat.contains(Incompat::BIT64) {
            self.line("Group descriptor size", sb.desc_size);
        }
        self.unless_zero("Reserved GDT blocks", sb.reserved_gdt_blocks);
        self.line("Blocks per group", sb.blocks_per_group);
        self.line(&format!("{unit}s per group"), sb.clusters_per_group);
        self.line("Inodes per group", sb.inodes_per_group);
        let table = u64::from(sb.inodes_per_group) * u64::from(sb.inode_size);
        self.line("Inode blocks per group", table.div_ceil(bytes(sb.log_block_size)));
        self.unless_zero("First meta block group", sb.first_meta_bg);
        self.unless_zero("RAID stride", sb.raid_stride);
        self.unless_zero("RAID stripe width", sb.raid_stripe_width);
        if sb.log_groups_per_flex != 0 {
            self.line("Flex block group size", 1_u64 << sb.log_groups_per_flex.min(63));
        }
    }

    fn times(&mut self, sb: &Superblock) {
        if sb.mkfs_time != 0 {
            self.line("Filesystem created", time(sb.mkfs_time));
        }
        self.line("Last mount time", time(sb.mtime));
        self.line("Last write time", time(sb.wtime));
        self.line("Mount count", sb.mnt_count);
        self.line("Maximum mount count", sb.max_mnt_count.cast_signed());
        self.line("Last checked", time(sb.lastcheck));
        let interval = sb.checkinterval;
        self.line("Check interval", format_args!("{interval} ({})", interval_text(interval)));
        if interval != 0 {
            self.line("Next check after", time(sb.lastcheck.saturating_add(interval.into())));
        }
        if sb.kbytes_written != 0 {
            self.line("Lifetime writes", written_text(sb.kbytes_written));
        }
    }

    fn inodes(&mut self, sb: &Superblock) {
        for (name, id, kind) in [
            ("Reserved blocks uid", sb.def_resuid, "user"),
            ("Reserved blocks gid", sb.def_resgid, "group"),
        ] {
            self.line(name, format_args!("{id} ({kind} {})", name_of(kind, id)));
        }
        if sb.rev_level > 0 {
            self.line("First inode", sb.first_ino);
            let _ = writeln!(self.0, "Inode size:\t          {}", sb.inode_size);
            self.unless_zero("Required extra isize", sb.min_extra_isize);
            self.unless_zero("Desired extra isize", sb.want_extra_isize);
        }
        if sb.journal_uuid != [0; 16] {
            self.line("Journal UUID", uuid(&sb.journal_uuid));
        }
        self.unless_zero("Journal inode", sb.journal_inum);
        if sb.journal_dev != 0 {
            let _ = writeln!(self.0, "Journal device:\t          0x{:04x}", sb.journal_dev);
        }
        self.unless_zero("First orphan inode", sb.last_orphan);
        if sb.feature_compat.contains(Compat::DIR_INDEX) || sb.def_hash_version != 0 {
            let hash = match sb.def_hash_version {
                0 => "legacy",
                1 => "half_md4",
                2 => "tea",
                6 => "siphash",
                _ => "unknown",
            };
            self.line("Default directory hash", hash);
        }
        if sb.hash_seed != [0; 4] {
            let mut seed = [0; 16];
            for (bytes, word) in seed.as_chunks_mut::<4>().0.iter_mut().zip(sb.hash_seed) {
                *bytes = word.to_le_bytes();
            }
            self.line("Directory Hash Seed", uuid(&seed));
        }
        match sb.jnl_backup_type {
            0 => {}
            1 => self.line("Journal backup", "inode blocks"),
            other => self.line("Journal backup", format_args!("type {other}")),
        }
        if sb.backup_bgs != [0; 2] {
            let groups = sb.backup_bgs.iter().filter(|group| **group != 0);
            let groups: Vec<String> = groups.map(ToString::to_string).collect();
            self.line("Backup block groups", groups.join(" "));
        }
        if sb.snapshot_inum != 0 {
            self.line("Snapshot inode", sb.snapshot_inum);
            self.line("Snapshot ID", sb.snapshot_id);
            self.line("Snapshot reserved blocks", sb.snapshot_r_blocks_count);
            self.line("Snapshot list head", sb.snapshot_list);
        }
    }

    fn errors(&mut self, sb: &Superblock) {
        self.unless_zero("FS Error count", sb.error_count);
        let first = (
            sb.first_error_time,
            &sb.first_error_func,
            sb.first_error_line,
            sb.first_error_ino,
            sb.first_error_block,
            sb.first_error_errcode,
        );
        let last = (
            sb.last_error_time,
            &sb.last_error_func,
            sb.last_error_line,
            sb.last_error_ino,
            sb.last_error_block,
            sb.last_error_errcode,
        );
        for (which, (when, function, line, inode, block, code)) in
            [("First", first), ("Last", last)]
        {
            if when == 0 {
                continue;
            }
            self.line(&format!("{which} error time"), time(when));
            self.line(&format!("{which} error function"), padded_text(function));
            self.line(&format!("{which} error line #"), line);
            self.unless_zero(&format!("{which} error inode #"), inode);
            self.unless_zero(&format!("{which} error block #"), block);
            if code != 0 {
                self.line(&format!("{which} error err"), error_name(code));
            }
        }
    }

    fn features(&mut self, sb: &Superblock) {
        if sb.feature_incompat.contains(Incompat::MMP) {
            self.line("MMP block number", sb.mmp_block);
            self.line("MMP update interval", sb.mmp_update_interval);
        }
        if sb.feature_ro_compat.contains(RoCompat::QUOTA) {
            self.unless_zero("User quota inode", sb.usr_quota_inum);
            self.unless_zero("Group quota inode", sb.grp_quota_inum);
            self.unless_zero("Project quota inode", sb.prj_quota_inum);
        }
        if sb.feature_ro_compat.contains(RoCompat::METADATA_CSUM) {
            let kind = if sb.checksum_type == 1 { "crc32c" } else { "unknown" };
            self.line("Checksum type", kind);
            self.line("Checksum", format_args!("0x{:08x}", sb.checksum));
        }
        if sb.feature_incompat.contains(Incompat::CSUM_SEED) {
            self.line("Checksum seed", format_args!("0x{:08x}", sb.checksum_seed));
        }
        if sb.encrypt_pw_salt != [0; 16] {
            self.line("Encryption PW Salt", uuid(&sb.encrypt_pw_salt));
        }
        if let Some(encoding) = sb.encoding_name() {
            self.line("Character encoding", encoding);
        }
        self.unless_zero("Orphan file inode", sb.orphan_file_inum);
    }

    fn journal(&mut self, jsb: &JournalSuperblock, block_size: u32) {
        self.line("Journal features", or(&jsb.features.names().join(" "), "(none)"));
        let kib = u64::from(jsb.maxlen) * u64::from(jsb.block_size) / 1024;
        let size = if kib < 8192 { format!("{kib}k") } else { format!("{}M", kib / 1024) };
        let users = jsb.users.iter().take(jsb.nr_users as usize);
        let fast = if jsb.features.has_fast_commit() { jsb.fc_blocks() } else { jsb.num_fc_blocks };
        self.line("Total journal size", size);
        if jsb.block_size != block_size {
            self.line("Journal block size", jsb.block_size);
        }
        self.line("Total journal blocks", jsb.maxlen);
        self.line("Max transaction length", jsb.maxlen.saturating_sub(fast));
        self.line("Fast commit length", fast);
        if jsb.first != 1 {
            self.line("Journal first block", jsb.first);
        }
        self.line("Journal sequence", format_args!("0x{:08x}", jsb.sequence.0));
        self.line("Journal start", jsb.start);
        if jsb.nr_users != 1 {
            self.line("Journal number of users", jsb.nr_users);
        }
        if jsb.features.has_csum_v1() {
            self.line("Journal checksum type", "crc32");
        }
        if jsb.features.has_csum_v2_or_v3() {
            let kind = if jsb.checksum_type == 4 { "crc32c" } else { "unknown" };
            self.line("Journal checksum type", kind);
            self.line("Journal checksum", format_args!("0x{:08x}", jsb.checksum()));
        }
        if jsb.nr_users > 1 || jsb.users.first().is_some_and(|user| *user != [0; 16]) {
            for (n, user) in users.enumerate() {
                match n {
                    0 => self.line("Journal users", uuid(user)),
                    _ => {
                        let _ = writeln!(self.0, "{:26}{}", "", uuid(user));
                    }
                }
            }
        }
        if jsb.errno != 0 {
            self.line("Journal errno", jsb.errno);
        }
    }

    fn mmp(&mut self, header: &Header) {
        let Some(block) = &header.mmp else { return };
        self.0.push_str("MMP_block:\n");
        for (name, value) in [
            ("magic", format!("{:#x}", mmp::MAGIC)),
            ("check_interval", block.check_interval.to_string()),
            ("sequence", format!("{:#08x}", block.seq)),
            ("update_date", time(block.time)),
            ("update_time", block.time.to_string()),
            ("node_name", padded_text(&block.nodename)),
            ("device_name", padded_text(&block.bdevname)),
        ] {
            let _ = writeln!(self.0, "    mmp_{name}: {value}");
        }
    }
}

/// The name of a user or group on this machine, by its files; `unknown` without one.
fn name_of(kind: &str, id: u16) -> String {
    let file = if kind == "user" { "/etc/passwd" } else { "/etc/group" };
    let names = std::fs::read(file).unwrap_or_default();
    let of_line = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (extol_proc::number::<u32>(number)? == u32::from(id)).then(|| bytes_text(name))
    };
    let found = names.split(|byte| *byte == b'\n').find_map(of_line);
    found.unwrap_or_else(|| "unknown".to_owned())
}

/// The name of an error in the superblock's numbering.
fn error_name(code: u8) -> String {
    const NAMES: [&str; 17] = [
        "UNKNOWN",
        "EIO",
        "ENOMEM",
        "EFSBADCRC",
        "EFSCORRUPTED",
        "ENOSPC",
        "ENOKEY",
        "EROFS",
        "EFBIG",
        "EEXIST",
        "ERANGE",
        "EOVERFLOW",
        "EBUSY",
        "ENOTDIR",
        "ENOTEMPTY",
        "ESHUTDOWN",
        "EFAULT",
    ];
    let name = usize::from(code).checked_sub(1).and_then(|at| NAMES.get(at));
    name.map_or_else(|| format!("UNKNOWN_ERRCODE_{code}"), |name| (*name).to_owned())
}

fn flags(flags: SuperFlags) -> String {
    let names = [
        (SuperFlags::SIGNED_HASH, "signed_directory_hash"),
        (SuperFlags::UNSIGNED_HASH, "unsigned_directory_hash"),
        (SuperFlags::TEST_FILESYS, "test_filesystem"),
    ];
    let known = names.iter().filter(|(flag, _)| flags.contains(*flag));
    // Each is followed by a space.
    let text: String = known.map(|(_, name)| format!("{name} ")).collect();
    or(&text, "(none)").to_owned()
}

/// A time span in the largest units that fit, as `6 months` or `1 week, 2 days`.
fn interval_text(seconds: u32) -> String {
    let mut left = seconds;
    let mut parts = Vec::new();
    for (unit, len) in [("month", 2_592_000), ("week", 604_800), ("day", 86_400)] {
        let count = left / len;
        left %= len;
        match count {
            0 => {}
            1 => parts.push(format!("1 {unit}")),
            count => parts.push(format!("{count} {unit}s")),
        }
    }
    if left > 0 {
        parts.push(format!("{}:{:02}:{:02}", left / 3600, left / 60 % 60, left % 60));
    }
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(", ") }
}

/// KiB in a unit in which the number has at most four digits.
fn written_text(kib: u64) -> String {
    let mut value = kib;
    for (shift, unit) in [(0, "kB"), (10, "MB"), (20, "GB"), (30, "TB")] {
        value = if shift == 0 { kib } else { (kib >> (shift - 1)).div_ceil(2) };
        if kib < 1 << (shift + 13) {
            return format!("{value} {unit}");
        }
    }
    format!("{} PB", value.div_ceil(1024))
}
