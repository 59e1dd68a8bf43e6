//! Arguments of export.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};
use extol_cli_common::manual;

use super::offer;

/// What `-o` takes, for the manual.
macro_rules! export_options {
    () => {
        "OPTIONS OF -o:
  ro, rw
        clients may change nothing, or everything that their ids may [rw]
  root_squash, no_root_squash, all_squash
        whose ids are replaced by those of the anonymous user: root's, none, or all [root's]
  anonuid=ID, anongid=ID
        ids of the anonymous user [65534]
  subtree=DIR
        export this directory of the volume; clients see nothing above it [the root]
  secure, insecure
        only clients on ports below 1024, which only root may use, or all [insecure]
  connections=N
        most connections at a time [256]; one that is idle makes room, or one of the address that
        has the most
  memory=SIZE
        most memory for requests and replies [128m], at least 4m
  journal_path=FILE, key=FILE, offset=BYTES, sizelimit=BYTES and others
        as for mount, but for what is about the kernel and FUSE

"
    };
}

/// Serve a volume to other machines over NFS.
#[derive(Args, Debug)]
#[command(
    after_long_help = concat!(export_options!(), manual!(
        "extol export disk.img",
        "mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,nolock host:/ /mnt",
        "extol export --listen 192.168.1.5:2049 --allow 192.168.1.0/24 /dev/sdb1",
        "extol export -f -o ro,subtree=/pub --listen 127.0.0.1:0 disk.img",
        "extol export --metrics 127.0.0.1:9184 disk.img",
        "extol export --pid-file /run/disk.pid /srv/disk.img",
        "extol stat disk.img",
        "extol export --stop disk.img",
        "nfs-ls nfs://127.0.0.1/?nfsport=2049&mountport=2049",
    )),
    long_about = "Serve a volume to other machines over NFS.\n\n\
        NFS version 3 over TCP, with its MOUNT protocol on the same port; no portmapper and no \
        lock manager (clients say nolock). The volume is not mounted: no FUSE, and no root on a \
        port from 1024.\n\n\
        Clients of this machine may connect, and others only where --listen and --allow let them. \
        NFS believes what a client says of its users (AUTH_SYS), and encrypts nothing: let in only \
        hosts whose root you trust, over a network that you trust.\n\n\
        The command returns when the export answers; a process in the background serves it until \
        it gets SIGTERM or SIGINT, or until extol export --stop, which closes the volume. extol \
        stat shows its counters. What a client has committed (fsync, \
        close), and each change of names and attributes, is durable before it is answered. After \
        a restart, or a crash, clients go on with their handles: the secret that seals them is \
        kept in a file of this user (--state-dir)."
)]
pub struct ExportArgs {
    /// Options of the export and of the volume, separated by commas. The list is below.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append,
        value_parser = offer::bytes(offer::EXPORT), hide_possible_values = true)]
    pub options: Vec<OsString>,
    /// Address to listen at: HOST:PORT, or :PORT for this machine alone; port 0 is any free one,
    /// which is printed.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2049",
        value_hint = ValueHint::Other)]
    pub listen: String,
    /// Clients that may connect: an address, or the first bits of some, such as 192.168.1.0/24; may
    /// be repeated. Without it only this machine may.
    #[arg(long, value_name = "CIDR", action = ArgAction::Append, value_hint = ValueHint::Other)]
    pub allow: Vec<String>,
    /// Serve counters for Prometheus at http://ADDR/metrics while it is exported (HOST:PORT, or
    /// :PORT for this machine alone; port 0 is any free one, which is printed).
    #[arg(long, value_name = "ADDR", value_hint = ValueHint::Other)]
    pub metrics: Option<String>,
    /// Stay in the foreground. A line on standard output says where it answers.
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Change nothing on the volume; the same as -o ro.
    #[arg(short = 'r', long)]
    pub read_only: bool,
    /// Say which clients lose their connection, and why.
    #[arg(short, long)]
    pub verbose: bool,
    /// Write the number of the process that serves into a file, once it answers. The file is empty
    /// when it has ended.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pid_file: Option<PathBuf>,
    /// End the export of this image or device, and return when the volume is closed.
    #[arg(long, conflicts_with_all = ["listen", "allow", "metrics", "foreground", "read_only",
        "verbose", "pid_file", "state_dir"])]
    pub stop: bool,
    /// Directory that keeps the secret of the clients' handles, so that they outlive the server
    /// [default: /var/lib/extol for root, else $XDG_STATE_HOME/extol or ~/.local/state/extol].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
    /// Leave the server all rights of its caller, for a debugger.
    #[arg(long)]
    pub no_sandbox: bool,
    /// The environment is clean.
    #[arg(long, hide = true)]
    pub clean: bool,
    /// Announce on standard output that the export answers, then leave the terminal.
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Disk image, block device, or LABEL=, UUID=, PARTLABEL=, PARTUUID= of one.
    pub source: PathBuf,
}
