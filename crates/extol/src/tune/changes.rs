//! What a request has changed, in words.

use extol_ondisk::superblock::{State, SuperFlags, uuid_text};
use extol_ondisk::{Incompat, RoCompat, Superblock};
use extol_vfs::{bytes_text, plain};

use super::Change;

/// What differs.
pub(super) fn changes(before: &Superblock, after: &Superblock) -> Vec<Change> {
    let texts = [before, after].map(properties);
    let [before, after] = texts;
    before
        .into_iter()
        .zip(after)
        .filter(|((_, before), (_, after))| before != after)
        .map(|((property, before), (_, after))| Change { property, before, after })
        .collect()
}

/// All that can be tuned, as text.
fn properties(sb: &Superblock) -> Vec<(&'static str, String)> {
    let text = |bytes: &[u8]| {
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        plain(&bytes_text(bytes)).to_string()
    };
    // (Two of them are states of a volume in use.)
    let features = [
        sb.feature_compat.names(),
        (sb.feature_incompat - Incompat::NEEDS_RECOVERY).names(),
        (sb.feature_ro_compat - RoCompat::ORPHAN_PRESENT).names(),
    ];
    let errors = match sb.errors {
        2 => "remount-ro",
        3 => "panic",
        _ => "continue",
    };
    let hash = match sb.def_hash_version {
        0 | 3 => "legacy",
        1 | 4 => "half_md4",
        2 | 5 => "tea",
        _ => "unknown",
    };
    let encoding = sb.encoding_name().map_or_else(Vec::new, |name| vec![name.to_owned()]);
    let encoding = [encoding, sb.encoding_flag_names()].concat().join(" ");
    let yes = |is| if is { "yes" } else { "no" }.to_owned();
    vec![
        ("label", text(&sb.volume_name)),
        ("uuid", uuid_text(&sb.uuid)),
        ("last_mounted", text(&sb.last_mounted)),
        ("features", features.concat().join(" ")),
        ("default_mount_options", sb.default_mount_opts.names().join(" ")),
        ("mount_options", text(&sb.mount_opts)),
        ("errors", errors.to_owned()),
        ("reserved_blocks", sb.r_blocks_count.to_string()),
        ("reserved_uid", sb.def_resuid.to_string()),
        ("reserved_gid", sb.def_resgid.to_string()),
        ("mounts", sb.mnt_count.to_string()),
        ("most_mounts", sb.max_mnt_count.cast_signed().to_string()),
        ("check_interval", sb.checkinterval.to_string()),
        ("last_check", sb.lastcheck.to_string()),
        ("encoding", encoding),
        ("hash", hash.to_owned()),
        ("raid_stride", sb.raid_stride.to_string()),
        ("raid_stripe_width", sb.raid_stripe_width.to_string()),
        ("mmp_update_interval", sb.mmp_update_interval.to_string()),
        ("needs_check", yes(sb.state.contains(State::ERROR))),
        ("test_filesystem", yes(sb.flags.contains(SuperFlags::TEST_FILESYS))),
    ]
}
