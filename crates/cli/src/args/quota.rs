//! Arguments of quota.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use extol_cli_common::manual;
use extol_vfs::{NumberError, number};

use super::offer;

/// Report and set quotas of users, groups and projects, and check their usage.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol quota report disk.img",
        "extol quota report --user --json disk.img alice bob",
        "extol quota set --block-soft 9G --block-hard 10G disk.img alice",
        "extol quota set --group --inode-hard 100000 disk.img users",
        "extol quota set --project --block-grace 3d disk.img",
        "extol quota check --repair disk.img",
    ),
    long_about = "Report and set quotas of users, groups and projects, and check their usage.\n\n\
        report shows what each owner uses, and its limits, as repquota does: usage above a soft \
        limit has a + in the second column, for blocks and for inodes, and behind it stands for \
        how long that is still allowed.\n\n\
        set sets limits of the owners that are named, as setquota does; 0 is no limit. What is not \
        given stays. Without owners it sets the grace times: how long usage may be above a soft \
        limit.\n\n\
        check compares the usage with what all inodes have, as quotacheck does; with --repair it \
        writes it right. Usage follows every change in the same transaction, so it is only wrong \
        where something else has changed the volume.\n\n\
        Owners are names of this system (projects: those of /etc/projid) or numbers. The volume \
        has quota inodes if it was made with -O quota, or with -O quota,project for projects; \
        extol tune -O quota makes them. Usage is kept on every mount. Limits are enforced by \
        mounts with -o usrquota, grpquota or prjquota.\n\n\
        A volume that Extol has mounted is named by a directory on it; for check it must not be \
        mounted. quotactl(2), which quota(1), setquota(8) and their like use, does not reach a \
        file system in user space."
)]
pub struct QuotaArgs {
    /// Quotas of users (for set, what it does if nothing else is said).
    #[arg(short, long)]
    pub user: bool,
    /// Quotas of groups.
    #[arg(short, long)]
    pub group: bool,
    /// Quotas of projects.
    #[arg(short = 'P', long)]
    pub project: bool,
    /// set: space that may be exceeded for the grace time; without a unit in KiB.
    #[arg(long, value_name = "SIZE", value_parser = space, allow_negative_numbers = true)]
    pub block_soft: Option<u64>,
    /// set: most space; without a unit in KiB.
    #[arg(long, value_name = "SIZE", value_parser = space, allow_negative_numbers = true)]
    pub block_hard: Option<u64>,
    /// set: number of inodes that may be exceeded for the grace time.
    #[arg(long, value_name = "COUNT", value_parser = inodes, allow_negative_numbers = true)]
    pub inode_soft: Option<u64>,
    /// set: most inodes.
    #[arg(long, value_name = "COUNT", value_parser = inodes, allow_negative_numbers = true)]
    pub inode_hard: Option<u64>,
    /// set: how long space may be above its soft limit: seconds, or with m, h, d or w.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub block_grace: Option<String>,
    /// set: how long inodes may be above their soft limit.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub inode_grace: Option<String>,
    /// check: write the usage right.
    #[arg(long)]
    pub repair: bool,
    /// Print the result as JSON (see the json page of the guide).
    #[arg(long)]
    pub json: bool,
    /// Options for opening the volume.
    #[arg(short = 'o', value_name = "OPTIONS",
        value_parser = offer::text(offer::OPENING), hide_possible_values = true)]
    pub options: Vec<String>,
    /// report, set or check.
    #[arg(value_name = "ACTION", value_parser = offer::text(offer::QUOTA_ACTIONS),
        hide_possible_values = true)]
    pub action: String,
    /// Disk image or block device, or a directory on a volume that Extol has mounted.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
    /// Users, groups or projects, by name or number.
    #[arg(value_name = "OWNER")]
    pub owners: Vec<String>,
}

/// Bytes that a limit can be.
const MOST_SPACE: u64 = i64::MAX.unsigned_abs();

fn space(text: &str) -> Result<u64, NumberError> {
    number::size(text, 1024, 0..=MOST_SPACE)
}

fn inodes(text: &str) -> Result<u64, NumberError> {
    number::count(text, 0..=u64::from(u32::MAX))
}
