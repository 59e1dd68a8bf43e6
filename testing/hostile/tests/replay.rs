//! Every input that is kept, through its target: the corpus (inputs that reach as much as possible,
//! an archive for each target) and the cases (inputs that once found a bug). `EXTOL_INPUT=file`
//! with the name of a target runs one: see the message of a failure. `scripts/fuzz.sh` says how an
//! input gets here.

use std::path::{Path, PathBuf};
use std::process::Command;

use extol_hostile::targets;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The inputs of the archive. They stay unpacked, for the message of a failure.
fn corpus(target: &str) -> Vec<PathBuf> {
    let archive = fuzz_dir().join(format!("corpus/{target}.tar.gz"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus").join(target);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let done = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&dir).output();
    let done = done.expect("the program tar");
    assert!(
        done.status.success(),
        "{}: {}",
        archive.display(),
        String::from_utf8_lossy(&done.stderr)
    );
    files(&dir)
}

fn cases(target: &str) -> Vec<PathBuf> {
    files(&fuzz_dir().join("cases").join(target))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(dir) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut all: Vec<PathBuf> = dir.map(|e| e.expect("an entry").path()).collect();
    all.sort();
    all
}

fn run(target: &'static str, path: &Path) -> bool {
    let input = std::fs::read(path).expect("an input");
    let good = std::panic::catch_unwind(|| targets::run(target, &input)).is_ok();
    if !good {
        eprintln!(
            "again: EXTOL_INPUT={} cargo test -p extol-hostile --test replay -- {target}",
            path.display()
        );
    }
    good
}

fn replay(targets: &[&'static str]) {
    let mut failed = 0;
    for target in targets {
        let only = std::env::var_os("EXTOL_INPUT").map(|path| vec![PathBuf::from(path)]);
        let (corpus, cases) = (corpus(target), cases(target));
        assert!(!corpus.is_empty(), "{target} has no corpus");
        println!("{target}: {} inputs of the corpus, {} found cases", corpus.len(), cases.len());
        failed += only
            .unwrap_or_else(|| [corpus, cases].concat())
            .iter()
            .filter(|p| !run(target, p))
            .count();
    }
    assert_eq!(failed, 0, "inputs that fail");
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(&[stringify!($name)]);
        })*

        /// Each target is replayed here, and scripts/fuzz.sh finds its archive.
        #[test]
        fn every_target_is_here() {
            let names: Vec<&str> = targets::ALL.iter().map(|t| t.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let mut archives: Vec<String> = files(&fuzz_dir().join("corpus"))
                .iter()
                .map(|p| p.file_name().unwrap().to_str().unwrap().to_owned())
                .collect();
            archives.sort();
            let mut expected: Vec<String> =
                names.iter().map(|name| format!("{name}.tar.gz")).collect();
            expected.sort();
            assert_eq!(archives, expected);
        }
    };
}

tests! {
    superblock group_desc inode extent indirect dirent htree xattr acl orphan_file quota verity
    fscrypt casefold nbd mmp bitmap
    journal_format journal_log fast_commit fuse_request nfs_request mount_options
    log check volume tar
    identify partition_table container oci meta_file tune qcow2 vmdk vhdx
    resize values
}
