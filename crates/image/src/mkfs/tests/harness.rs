//! Running mkfs and the tools of e2fsprogs on the same options.

use crate::mkfs::{FsType, MkfsOptions, OnError, Result, Summary, mkfs};
use extol_block::{Direct, FileDevice, OpenOptions};
use extol_vfs::Size;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What today's e2fsprogs configures; distributions differ.
const CONFIG: &str = "
[defaults]
    base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
    default_mntopts = acl,user_xattr
    enable_periodic_fsck = 0
    blocksize = 4096
    inode_size = 256
    inode_ratio = 16384
[fs_types]
    ext3 = {
        features = has_journal
    }
    ext4 = {
        features = has_journal,extent,huge_file,flex_bg,metadata_csum,\
            metadata_csum_seed,64bit,dir_nlink,extra_isize,orphan_file
    }
    small = {
        blocksize = 1024
        inode_ratio = 4096
    }
    floppy = {
        blocksize = 1024
        inode_ratio = 8192
    }
    big = {
        inode_ratio = 32768
    }
    huge = {
        inode_ratio = 65536
    }
    news = {
        inode_ratio = 4096
    }
    largefile = {
        inode_ratio = 1048576
        blocksize = -1
    }
    largefile4 = {
        inode_ratio = 4194304
        blocksize = -1
    }
";
const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const HASH_SEED: &str = "01234567-89ab-cdef-0123-456789abcdef";
const NOW: u64 = 1_700_000_000;

/// Output of a program: exit code, both streams together.
pub(crate) fn run(
    program: &str,
    args: &[&str],
) -> std::result::Result<(i32, String), std::io::Error> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    let text = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    Ok((out.status.code().unwrap_or(-1), text))
}

/// True if the program is there; says so if not.
pub(crate) fn have(program: &str) -> bool {
    let there = run(program, &["-V"]).is_ok();
    if !there {
        println!("SKIP: {program} is not installed");
    }
    there
}

/// mke2fs's command line as options.
pub(crate) fn options(args: &str) -> Result<MkfsOptions> {
    let mut options = MkfsOptions::default();
    let mut words = args.split_whitespace();
    while let Some(flag) = words.next() {
        if flag == "-F" {
            options.force = true;
            continue;
        }
        let text = words.next().expect("value");
        let value = || text;
        let number = || -> u32 { text.parse().expect("number") };
        match flag {
            "-t" => options.fs_type = FsType::parse(value())?,
            "-T" => options.usage = Some(value().into()),
            "-O" => options.features.push(value().into()),
            "-E" => options.set_extended(value())?,
            "-J" => options.set_journal(value())?,
            "-b" => match text.strip_prefix('-') {
                Some(least) => options.least_block_size = Some(least.parse().expect("number")),
                None => options.block_size = Some(number()),
            },
            "-C" => options.cluster_size = Some(number()),
            "-g" => options.blocks_per_group = Some(number()),
            "-G" => options.groups_per_flex = Some(number()),
            "-I" => options.inode_size = Some(number()),
            "-i" => options.bytes_per_inode = Some(number()),
            "-N" => options.inodes = Some(u64::from(number())),
            "-L" => options.label = Some(value().into()),
            "-M" => options.last_mounted = Some(value().into()),
            "-m" => options.reserved_percent = Some(value().parse().expect("number")),
            "-r" => options.revision = Some(number()),
            "-e" => options.on_error = OnError::parse(value())?,
            "-U" => options.uuid = Some(value().into()),
            other => panic!("unknown option {other}"),
        }
    }
    Ok(options)
}

/// A folder with images that is deleted at the end.
pub(crate) struct Lab {
    dir: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let dir = TempDir::with_prefix("extol-mkfs-").expect("dir");
        std::fs::write(dir.path().join("mke2fs.conf"), CONFIG).expect("config");
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sparse(&self, name: &str, size: &str) -> PathBuf {
        let path = self.path(name);
        let _ = std::fs::remove_file(&path);
        let bytes = size.parse::<Size>().and_then(|size| size.bytes(1024)).expect("size");
        std::fs::File::create(&path).and_then(|f| f.set_len(bytes)).expect("image");
        path
    }

    /// Makes a volume with Extol's mkfs, fixed UUID, seed and time.
    pub(crate) fn ours(&self, size: &str, args: &str) -> Result<(PathBuf, Summary)> {
        let path = self.sparse("ours.img", size);
        let mut options = options(args)?;
        options.uuid.get_or_insert(UUID.into());
        options.set_extended(&format!("hash_seed={HASH_SEED}"))?;
        options.now = Some(NOW);
        let device = open(&path);
        let summary = mkfs(&device, &options, &mut |_| {})?;
        Ok((path, summary))
    }

    /// Makes a volume with mke2fs, the same fixed values. `Err` holds its words.
    pub(crate) fn theirs(&self, size: &str, args: &str) -> std::result::Result<PathBuf, String> {
        let path = self.sparse("theirs.img", size);
        // Only the last -E counts for mke2fs.
        let mut extended = format!("hash_seed={HASH_SEED}");
        let mut words: Vec<&str> = Vec::new();
        let mut parts = args.split_whitespace();
        while let Some(word) = parts.next() {
            if word == "-E" {
                extended = format!("{extended},{}", parts.next().expect("value"));
            } else {
                words.push(word);
            }
        }
        if !words.contains(&"-t") {
            words.extend(["-t", "ext4"]);
        }
        let out = Command::new("mke2fs")
            .args(["-q", "-F", "-U", UUID, "-E", &extended])
            .args(words)
            .arg(&path)
            .env("MKE2FS_CONFIG", self.path("mke2fs.conf"))
            .env("E2FSPROGS_FAKE_TIME", NOW.to_string())
            .stdin(Stdio::null())
            .output()
            .expect("mke2fs");
        let words = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        if out.status.success() { Ok(path) } else { Err(words) }
    }
}

pub(crate) fn open(path: &Path) -> FileDevice {
    let options = OpenOptions::read_write().direct(Direct::Off).exclusive(false);
    FileDevice::open(path, &options).expect("open")
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// Fails unless `e2fsck -fn` is content.
pub(crate) fn assert_clean(path: &Path, what: &str) {
    let (code, words) = run("e2fsck", &["-fn", text(path)]).expect("e2fsck");
    assert_eq!(code, 0, "{what}: {words}");
}

/// Everything dumpe2fs says, without what legitimately differs.
pub(crate) fn dump(path: &Path) -> Vec<String> {
    let (code, words) = run("dumpe2fs", &[text(path)]).expect("dumpe2fs");
    assert_eq!(code, 0, "{words}");
    let differs = [
        "Lifetime writes",
        "Checksum:",
        "dumpe2fs ",
        "node_name",
        "device_name",
        "checksum:",
        "    mmp_",
    ];
    words
        .lines()
        .filter(|l| !differs.iter().any(|d| l.trim_start().starts_with(d.trim_start())))
        .map(str::to_owned)
        .collect()
}

/// What debugfs says about the inodes that mkfs makes.
pub(crate) fn inodes(lab: &Lab, path: &Path) -> String {
    const COMMANDS: &str = "stat <1>\nstat <2>\nstat <3>\nstat <7>\nstat <8>\nstat <11>\n\
        stat <12>\nls -l /\nls -l /lost+found\n";
    let script = lab.path("commands");
    std::fs::write(&script, COMMANDS).expect("script");
    run("debugfs", &["-f", text(&script), text(path)]).expect("debugfs").1
}
