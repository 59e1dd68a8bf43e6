//! `extol-bench metadata`, `seq`, `rand`, `untar`, and `speed`, which runs them all.

use std::path::Path;

use extol::mkfs::parse_size;
use extol_bench::Programs;
use extol_bench::contender::Medium;
use extol_bench::speed::{Part, Speed};
use extol_bench::workload::{Direction, Metadata, Rand, Seq, Untar};
use extol_cli_common::{Failure, Result};

use crate::args::{MetadataArgs, RandArgs, SeqArgs, SpeedArgs, UntarArgs};
use crate::conduct::{Where, carry_out, usage};
use crate::loads::{loadfile, run};

/// Sizes of direct I/O are whole sectors of every medium.
const PAGE: u64 = 4096;

pub fn metadata(args: &MetadataArgs, programs: Programs) -> Result<()> {
    let load = Metadata {
        threads: args.threads,
        files: args.files,
        shared: args.shared,
        ..Metadata::default()
    };
    run(&load, &args.targets, programs)
}

/// Bytes, as fio understands them: a number without a unit is no KiB.
fn size(option: &str, text: &str) -> Result<u64> {
    let size = match text.parse() {
        Ok(bytes) => bytes,
        Err(_) => {
            parse_size(text, None).map_err(|e| Failure::usage(format_args!("{option}: {e}")))?
        }
    };
    if size == 0 { Err(Failure::usage(format_args!("{option} must not be 0"))) } else { Ok(size) }
}

/// A size and the bytes of one call in it.
fn sizes(bytes: &str, block: &str, direct: bool) -> Result<(u64, usize)> {
    const MOST: u64 = 1 << 30;
    let (bytes, block) = (size("--size", bytes)?, size("--bs", block)?);
    if block > bytes || block > MOST {
        return Err(Failure::usage("--bs must be at most --size, and at most 1G"));
    }
    if direct && (block % PAGE != 0 || bytes % PAGE != 0) {
        return Err(Failure::usage("with --direct, --size and --bs must be multiples of 4k"));
    }
    Ok((bytes, block as usize))
}

pub fn seq(args: &SeqArgs, programs: Programs) -> Result<()> {
    let (size, block) = sizes(&args.size, &args.bs, args.direct)?;
    run(&Seq { size, block, jobs: args.numjobs, direct: args.direct }, &args.targets, programs)
}

pub fn rand(args: &RandArgs, programs: Programs) -> Result<()> {
    let (size, block) = sizes(&args.size, &args.bs, args.direct)?;
    let load = Rand {
        rw: Direction::parse(&args.rw).unwrap_or(Direction::Read),
        size,
        block,
        jobs: args.numjobs,
        depth: args.iodepth,
        direct: args.direct,
        sync_every: args.fsync.max(args.fdatasync),
        data_only: args.fdatasync > 0,
        calls: args.number_ios,
        seed: args.seed,
    };
    run(&load, &args.targets, programs)
}

pub fn untar(args: &UntarArgs, programs: Programs) -> Result<()> {
    let load = Untar {
        files: args.files,
        threads: args.threads,
        fsync: args.fsync,
        sync: args.sync,
        remove: !args.keep,
        seed: args.seed,
        ..Untar::default()
    };
    run(&load, &args.targets, programs)
}

pub fn speed(args: &SpeedArgs, programs: Programs) -> Result<()> {
    const CLIENT: &str = "/usr/share/dbench/client.txt";
    // Each contest sets its own medium.
    let place = Where { medium: "memory", volume: &args.volume, log: None, dir: &args.dir };
    let media = args.media.iter().map(|m| Medium::parse(m)).collect::<extol_bench::Result<_>>();
    let client = Path::new(CLIENT);
    let bench = Speed {
        parts: match args.parts.is_empty() {
            true => Part::ALL.iter().map(|(_, part)| *part).collect(),
            false => args.parts.iter().filter_map(|name| Part::parse(name)).collect(),
        },
        media: media.map_err(usage)?,
        size: sizes(&args.size, "4k", true)?.0,
        files: args.files,
        options: args.options.join(","),
        loadfile: if client.exists() { Some(loadfile(client)?) } else { None },
        conduct: place.conduct(programs, args.rounds, Some(args.seconds))?,
    };
    carry_out(&args.output, &bench.conduct, |progress| bench.run(progress))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_without_a_unit() {
        assert_eq!(sizes("1M", "4096", true).unwrap(), (1 << 20, 4096));
        assert_eq!(sizes("1048577", "64k", false).unwrap(), ((1 << 20) + 1, 64 << 10));
        for (bytes, block, direct) in
            [("0", "1", false), ("4k", "8k", false), ("1M", "1000", true), ("x", "1", false)]
        {
            assert!(sizes(bytes, block, direct).is_err(), "{bytes} {block}");
        }
    }
}
