//! Arguments of the commands for a mounted volume: stat, top, remount.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use extol_cli_common::{Failure, Result, manual};
use extol_vfs::{NumberError, number};

use super::offer;

/// Show the state and the counters of a volume that is mounted or exported.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol stat /mnt",
        "extol stat --all /mnt",
        "extol stat --watch /mnt",
        "extol stat disk.img",
        "extol stat --json /mnt | jq .journal.fast_commit",
        "extol stat --json /mnt | jq .journal.transactions",
        "extol stat --json --watch 5 /mnt | jq -c .journal.log_free",
    ),
    long_about = "Show the state and the counters of a volume that is mounted or exported.\n\n\
        PATH is a directory on the mount, or the image or device that extol export serves.\n\n\
        The first line says whether the volume may be written, and why not. Then comes a summary \
        of one screen: space, options, log, commits, and how long durable requests (fsync, sync) \
        and commits took.\n\n\
        With --all comes everything. First the lines of Linux's /proc/fs/jbd2/DEVICE/info and, on \
        a volume with fast commits, of /proc/fs/ext4/DEVICE/fc_info (behind Linux's ten reasons \
        for a full commit come those of extol alone); then the mechanisms of the journal, and how \
        long the phases of a commit took; then every counter by name.\n\n\
        Each bar stands for a power of two (nanoseconds, or requests); its height is the \
        logarithm of the count. With --json all of it is one object whose field names stay \
        as they are while its format_version does; times are nanoseconds."
)]
pub struct StatArgs {
    /// Every counter, and what Linux shows in /proc/fs/jbd2.
    #[arg(short, long)]
    pub all: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Again every SECONDS, with rates, until interrupted [default: 2].
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
        allow_negative_numbers = true)]
    watch: Option<String>,
    /// A directory on the mount; for an export its image or device.
    path: PathBuf,
}

impl StatArgs {
    /// The path, and the interval in seconds (`None`: once).
    pub fn places(&self) -> Result<(PathBuf, Option<f64>)> {
        let bad = |why| Failure::usage(format_args!("--watch: {why} (see extol stat --help)"));
        let interval = self.watch.as_deref().map(seconds).transpose().map_err(bad)?;
        Ok((self.path.clone(), interval))
    }
}

/// Puts the usual interval behind `--watch` where only the directory follows: `--watch DIR` is as
/// good as `--watch 2 DIR`.
pub(super) fn separate_watch(words: &mut Vec<OsString>) {
    let is_plain = |word: &OsString| !word.as_encoded_bytes().starts_with(b"-");
    let plain: Vec<_> = (2..words.len()).filter(|n| words.get(*n).is_some_and(is_plain)).collect();
    let [at] = plain[..] else { return };
    let is_watch = words.get(at - 1).is_some_and(|word| match word.as_encoded_bytes() {
        b"--watch" => true,
        [b'-', b'-', ..] => false,
        flags => flags.starts_with(b"-") && flags.ends_with(b"w"),
    });
    let is_interval = words.get(at).is_some_and(|word| {
        std::str::from_utf8(word.as_encoded_bytes()).is_ok_and(|text| text.parse::<f64>().is_ok())
    });
    if is_watch && !is_interval {
        words.insert(at, "2".into());
    }
}

/// Watch a mounted volume in the terminal.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol top /mnt",
        "extol top --interval 0.2 /mnt",
        "extol top --once /mnt"
    ),
    long_about = "Watch a mounted volume in the terminal.\n\n\
        The first line says whether the volume may be written, and why not. Shown are the log \
        (how full, how much is not yet checkpointed), inode tables still to be \
        zeroed, commits, durable requests and blocks checkpointed per second, latencies (of fsync \
        also for the last interval alone, to powers of two), group size, batching, checkpoints \
        and waits for log space.\n\n\
        Keys: q, Esc or Ctrl-C end, p or space pauses, + and - change the interval."
)]
pub struct TopArgs {
    /// Interval in seconds.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds,
        allow_negative_numbers = true)]
    pub interval: f64,
    /// Print one frame as text and end. (Takes one interval, for the rates.)
    #[arg(long)]
    pub once: bool,
    /// A directory on the mount.
    pub dir: PathBuf,
}

/// An interval in seconds.
fn seconds(text: &str) -> std::result::Result<f64, NumberError> {
    number::seconds(text, 0.1..=86_400.0)
}

/// A time limit in seconds.
pub(super) fn timeout(text: &str) -> std::result::Result<f64, NumberError> {
    number::seconds(text, 0.0..=1e9)
}

/// Change the options of a mount while it is in use.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol remount -o async_checkpoint=30 /mnt",
        "extol remount -o commit=30,max_batch_time=0 /mnt",
        "extol remount -o ro /mnt",
        "mount -o remount,noatime,noasync_checkpoint /mnt",
    ),
    long_about = "Change the options of a mount while it is in use.\n\n\
        The options are those of mount; what is not named stays as it is. If one of them is \
        unknown, has a bad value, or cannot change while the volume is mounted, none is changed. \
        The options in force are shown by extol stat.\n\n\
        Changeable: ro, rw, commit=, barrier, errors=, discard, noatime, relatime, strictatime, \
        nodiratime, lazytime, grpid, minixdf, resuid=, resgid=, usrquota, grpquota, prjquota, \
        noquota, nodelalloc, dirty_mb=, readahead_kb=, min_batch_time=, max_batch_time=, fua=, \
        fast_commit, nofast_commit, async_checkpoint[=PERCENT], noasync_checkpoint, \
        checkpoint=merge, checkpoint=nomerge, ckpt_thread_ioprio=, journal_ioprio=, \
        init_itable[=N], noinit_itable, the flags of mount(8) (nosuid, nodev, noexec ...), and \
        abort (stop the volume as an error would, for \
        tests).\n\n\
        ro checkpoints everything and marks the volume clean; rw takes that back. A volume that \
        was mounted read-only is recovered first, as by a mount, and stays read-only if that or \
        the device refuses. On a volume that an error has stopped (the host's disk was full, the \
        device failed) rw does what an unmount and a mount would, with the files that are open: \
        what was acknowledged by fsync is there, what was only in memory is lost. Ordinary users \
        can change the options of their own mounts, except for those of the kernel \
        (ro, rw, nosuid, noatime ...)."
)]
pub struct RemountArgs {
    /// Mount options, separated by commas.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append,
        value_parser = offer::bytes(offer::MOUNT), hide_possible_values = true)]
    pub options: Vec<OsString>,
    /// Say what is in force afterwards.
    #[arg(short, long)]
    pub verbose: bool,
    /// Make the kernel's side of the mount with this number read-only, for its daemon.
    #[arg(long, value_name = "ID", hide = true)]
    pub serving: Option<u64>,
    /// A directory on the mount.
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, parse};
    use clap::CommandFactory as _;

    #[test]
    fn the_path_is_shown_as_required() {
        let help = Cli::command()
            .find_subcommand_mut("stat")
            .map(|command| command.render_long_help().to_string())
            .unwrap_or_default();
        assert!(help.contains("stat [OPTIONS] <PATH>") && !help.contains("[PATH]"), "{help}");
        let (_, arguments) = help.split_once("Arguments:\n").expect("arguments");
        assert!(arguments.trim_start().starts_with("<PATH>\n"), "{help}");
    }

    #[test]
    fn watch_takes_seconds_or_not() {
        let ask = |line: &str| {
            let words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
            let Command::Stat(args) = parse(&words)? else { panic!("not stat") };
            args.places()
        };
        let mnt = || PathBuf::from("/mnt");
        for (line, seconds) in [
            ("extol stat /mnt", None),
            ("extol stat --watch /mnt", Some(2.0)),
            ("extol stat /mnt --watch", Some(2.0)),
            ("extol stat -aw /mnt", Some(2.0)),
            ("extol stat --watch 0.5 /mnt", Some(0.5)),
            ("extol stat /mnt -w 7 --json", Some(7.0)),
        ] {
            assert_eq!(ask(line).unwrap(), (mnt(), seconds), "{line}");
        }
        for line in [
            "extol stat",
            "extol stat --watch",
            "extol stat --watch 5",
            "extol stat --watch 0 /mnt",
            "extol stat --watch -1 /mnt",
            "extol stat -w x /mnt",
        ] {
            assert_eq!(ask(line).unwrap_err().code, Failure::USAGE, "{line}");
        }
    }
}
