//! What a fuzzer calls: one function per target, from any bytes to "it held" or a panic.
//!
//! A target panics for what must never happen: a panic of the code under it, or a broken promise
//! that the target states itself. The functions are plain, so that the same inputs run in the
//! ordinary tests.
//!
//! | target | its input |
//! |---|---|
//! | decoders of `ondisk` | a geometry, then the structure's bytes (its checksum is made right) |
//! | `journal_format` | features, then a block of the log |
//! | `journal_log` | a journal superblock and a list of blocks of the log |
//! | `fast_commit` | records, or the bytes of the fast-commit area (checksums are made right), on a sound volume |
//! | `fuse_request` | requests of the kernel |
//! | `nfs_request` | requests of NFS clients |
//! | `mount_options` | the text |
//! | `verity` | where the file ends, a descriptor, its tree |
//! | `fscrypt` | a context (its length first), then a name or target |
//! | `casefold` | two names (the length of one first) |
//! | `nbd` | a byte for TLS, then what a server says; or an address |
//! | `tar` | an archive (its checksums are made right), plain or compressed |
//! | `identify`, `partition_table`, `qcow2`, `vmdk`, `vhdx` | places on a device, and the bytes there: see [`disks`](mod@disks) |
//! | `container` | a file that packs a volume, as it is |
//! | `oci` | layers, and the list of a saved image |
//! | `meta_file` | a byte for the kind, then a metadata file or a file of contexts |
//! | `values` | changes of attribute values in inodes of their own, then operations on attributes |
//! | `log`, `check`, `volume`, `tune`, `resize` | a base, and changes of its structures: see [`volume`](mod@volume) |

mod archives;
mod decoders;
pub mod disks;
mod fast;
mod features;
mod journal;
mod network;
mod nfs;
mod quota;
mod requests;
mod resize;
mod text;
mod values;
pub mod volume;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: that of its corpus and its cases.
    pub name: &'static str,
    /// Runs it on an input.
    pub run: fn(&[u8]),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All targets.
pub const ALL: &[Target] = &[
    Target { name: "superblock", run: decoders::superblock },
    Target { name: "group_desc", run: decoders::group_desc },
    Target { name: "inode", run: decoders::inode },
    Target { name: "extent", run: decoders::extent },
    Target { name: "indirect", run: decoders::indirect },
    Target { name: "dirent", run: decoders::dirent },
    Target { name: "htree", run: decoders::htree },
    Target { name: "xattr", run: decoders::xattr },
    Target { name: "acl", run: decoders::acl },
    Target { name: "orphan_file", run: decoders::orphan_file },
    Target { name: "quota", run: quota::quota },
    Target { name: "verity", run: features::verity },
    Target { name: "fscrypt", run: features::fscrypt },
    Target { name: "casefold", run: features::casefold },
    Target { name: "nbd", run: network::nbd },
    Target { name: "mmp", run: decoders::mmp },
    Target { name: "bitmap", run: decoders::bitmap },
    Target { name: "journal_format", run: journal::format },
    Target { name: "journal_log", run: journal::log },
    Target { name: "fast_commit", run: fast::fast_commit },
    Target { name: "fuse_request", run: requests::fuse },
    Target { name: "nfs_request", run: nfs::nfs },
    Target { name: "mount_options", run: text::mount_options },
    Target { name: "log", run: volume::log },
    Target { name: "check", run: volume::check },
    Target { name: "volume", run: volume::volume },
    Target { name: "tar", run: archives::tar },
    Target { name: "identify", run: disks::identify },
    Target { name: "partition_table", run: disks::partition_table },
    Target { name: "container", run: disks::container },
    Target { name: "oci", run: archives::oci },
    Target { name: "meta_file", run: text::meta_file },
    Target { name: "tune", run: volume::tune },
    Target { name: "qcow2", run: disks::qcow2 },
    Target { name: "vmdk", run: disks::vmdk },
    Target { name: "vhdx", run: disks::vhdx },
    Target { name: "resize", run: resize::resize },
    Target { name: "values", run: values::values },
];

/// Runs the target of that name: what the fuzzer calls.
///
/// # Panics
/// If there is none, and for what must not happen.
pub fn run(name: &str, input: &[u8]) {
    let target = ALL.iter().find(|t| t.name == name).expect("a target of that name");
    (target.run)(input);
}
