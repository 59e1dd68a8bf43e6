//! Kinds of mistakes, and the same one of many commands.

use extol_testkit::{Image, Need, Scratch, require, run_extol, text};
use std::path::Path;

/// A kind of mistake, its exit code, and what its line says. `check` has the codes of fsck(8).
struct Kind {
    name: &'static str,
    code: i32,
    of_check: i32,
    words: &'static [&'static str],
    /// Command lines; `IMAGE` and the like stand for paths.
    lines: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        name: "an unknown option",
        code: 1,
        of_check: 16,
        words: &["--frobnicate"],
        lines: &[
            "mount --frobnicate IMAGE DIR",
            "umount --frobnicate DIR",
            "remount --frobnicate DIR",
            "stat --frobnicate DIR",
            "top --frobnicate DIR",
            "sync --frobnicate DIR",
            "checkpoint --frobnicate DIR",
            "freeze --frobnicate DIR",
            "thaw --frobnicate DIR",
            "info --frobnicate IMAGE",
            "log --frobnicate IMAGE",
            "replay --frobnicate IMAGE",
            "check --frobnicate IMAGE",
            "mkfs --frobnicate IMAGE",
            "ls --frobnicate IMAGE",
            "cat --frobnicate IMAGE /a",
            "cp --frobnicate IMAGE /a DIR",
            "put --frobnicate IMAGE IMAGE /",
            "rm --frobnicate IMAGE /a",
            "mkdir --frobnicate IMAGE /a",
        ],
    },
    Kind {
        name: "an unknown mount option",
        code: 1,
        of_check: 16,
        words: &["frobnicate"],
        lines: &[
            "mount -o frobnicate IMAGE DIR",
            "log -o frobnicate IMAGE",
            "replay -o frobnicate IMAGE",
            "info -o frobnicate IMAGE",
            "ls -o frobnicate IMAGE",
            "rm -o frobnicate IMAGE /a",
        ],
    },
    Kind {
        name: "a negative number",
        code: 1,
        of_check: 16,
        words: &["must not be negative"],
        lines: &[
            "mount -o offset=-1 IMAGE DIR",
            "mount -o sizelimit=-5M IMAGE DIR",
            "mount -o cache_size=-5 IMAGE DIR",
            "mount -o commit=-1 IMAGE DIR",
            "mount -o inode_cache=-1 IMAGE DIR",
            "mount -o max_threads=-1 IMAGE DIR",
            "mount -o uid=-1 IMAGE DIR",
            "mount --fd -1 IMAGE",
            "umount --timeout -1 DIR",
            "top --interval -1 DIR",
            "stat --watch -1 DIR",
            "check --limit -1 IMAGE",
            "check -C -1 IMAGE",
            "info -o superblock=-1 IMAGE",
            "ls -o sb=-1 IMAGE",
            "mkfs NEW -5M",
            "mkfs -g -1 NEW 10M",
            "mkfs -N -1 NEW 10M",
            "mkfs -J size=-1 NEW 10M",
            "mkfs -E stride=-1 NEW 10M",
        ],
    },
    Kind {
        name: "a number that is too large",
        code: 1,
        of_check: 16,
        words: &["larg"],
        lines: &[
            "mount -o offset=99999999999999999999 IMAGE DIR",
            "mount -o commit=99999999999999999999 IMAGE DIR",
            "mount -o cache_mb=2P IMAGE DIR",
            "mount -o max_threads=1G IMAGE DIR",
            "umount --timeout 1e999 DIR",
            "top --interval 1e6 DIR",
            "check --limit 99999999999999999999 IMAGE",
            "mkfs NEW 99999999999999T",
            "mkfs -b 128k NEW 10M",
            "mkfs -N 99G NEW 10M",
            "mkfs -m 51 NEW 10M",
            "mkfs -E stride=70000 NEW 10M",
        ],
    },
    Kind {
        name: "options that do not go together",
        code: 1,
        of_check: 16,
        words: &["cannot be used with"],
        lines: &[
            "mount -r -w IMAGE DIR",
            "mount -w -o norecovery IMAGE DIR",
            "mount -o fakeroot,allow_other IMAGE DIR",
            "umount -l -f DIR",
            "checkpoint --discard --zeroout DIR",
            "check -p -n IMAGE",
            "put -o ro IMAGE IMAGE /a",
            "rm -o norecovery IMAGE /a",
            "mkdir -o ro IMAGE /a",
        ],
    },
    Kind {
        name: "an option of another program",
        code: 1,
        of_check: 16,
        words: &["is not supported"],
        lines: &[
            "mount -a IMAGE DIR",
            "mount -B IMAGE DIR",
            "mount -o bind IMAGE DIR",
            "mount -o usrjquota=aquota.user IMAGE DIR",
            "umount -R DIR",
            "info -b IMAGE",
            "check -y IMAGE",
            "check -c IMAGE",
            "mkfs -z undo IMAGE",
            "mkfs -O shared_blocks -F IMAGE",
        ],
    },
    Kind {
        name: "a flag with a value",
        code: 1,
        of_check: 16,
        words: &["takes no value"],
        lines: &[
            "mount -o ro=1 IMAGE DIR",
            "mount -o noatime=5 IMAGE DIR",
            "mount -o nosuid=x IMAGE DIR",
            "mount -o nobarrier=1 IMAGE DIR",
            "mount -o nocheckpoint_merge=1 IMAGE DIR",
            "mount -o untrusted=1 IMAGE DIR",
            "mount -o kernel_cache=1 IMAGE DIR",
            "mount -o nombcache=1 IMAGE DIR",
            "ls -o ro=1 IMAGE",
        ],
    },
    Kind {
        name: "an external journal of a volume with another one",
        code: 32,
        of_check: 8,
        words: &["IMAGE", "journal of its own", "leave out journal_path="],
        lines: &["ls -o journal_path=/dev/null IMAGE", "rm -o journal_path=/dev/null IMAGE /a"],
    },
    Kind {
        name: "an external journal that is not there",
        code: 32,
        of_check: 8,
        words: &["/nonexistent: No such file"],
        lines: &["mount -o journal_path=/nonexistent IMAGE DIR"],
    },
    Kind {
        name: "what no volume could have",
        code: 1,
        of_check: 16,
        words: &["ends with a name"],
        lines: &["rm IMAGE /", "rm -r IMAGE /", "rm -rf IMAGE /..", "rm IMAGE ."],
    },
    Kind {
        name: "no such image",
        code: 32,
        of_check: 8,
        words: &["MISSING", "o such file or directory"],
        lines: &[
            "mount MISSING DIR",
            "info MISSING",
            "log MISSING",
            "replay MISSING",
            "check MISSING",
            "ls MISSING",
            "cat MISSING /a",
            "cp MISSING /a DIR",
            "put MISSING IMAGE /",
            "rm MISSING /a",
            "mkdir MISSING /a",
        ],
    },
    Kind {
        name: "no volume",
        code: 32,
        of_check: 8,
        words: &["ZEROS"],
        lines: &[
            "mount ZEROS DIR",
            "info ZEROS",
            "log ZEROS",
            "replay ZEROS",
            "check ZEROS",
            "ls ZEROS",
            "cat ZEROS /a",
            "cp ZEROS /a DIR",
            "put ZEROS IMAGE /",
            "rm ZEROS /a",
            "mkdir ZEROS /a",
        ],
    },
    Kind {
        name: "no such file on it",
        code: 32,
        of_check: 8,
        words: &["/none", "no such file"],
        lines: &[
            "ls IMAGE /none",
            "cat IMAGE /none",
            "cp IMAGE /none DIR",
            "put IMAGE ZEROS /none/",
            "rm IMAGE /none",
            "mkdir IMAGE /none/below",
        ],
    },
    Kind {
        name: "an empty name",
        code: 32,
        of_check: 8,
        words: &["''"],
        lines: &[
            "ls IMAGE EMPTY",
            "cat IMAGE EMPTY",
            "cp IMAGE EMPTY DIR",
            "rm IMAGE EMPTY",
            "mkdir IMAGE EMPTY",
        ],
    },
    Kind {
        name: "no source at all",
        code: 1,
        of_check: 16,
        words: &["SOURCE"],
        lines: &["mount EMPTY DIR", "info EMPTY", "check EMPTY", "ls EMPTY", "replay", "cat"],
    },
    Kind {
        name: "what is there is not overwritten",
        code: 32,
        of_check: 8,
        words: &["IMAGE", "-F overwrites it"],
        lines: &["mkfs IMAGE", "mkfs IMAGE 10M", "mkfs -d DIR IMAGE"],
    },
    Kind {
        name: "not a mount of Extol",
        code: 32,
        of_check: 8,
        words: &["DIR"],
        lines: &[
            "umount DIR",
            "remount -o ro DIR",
            "stat DIR",
            "top --once DIR",
            "sync DIR",
            "checkpoint DIR",
            "freeze DIR",
            "thaw DIR",
        ],
    },
];

/// The words of a line, with the paths in their places.
fn words(line: &str, places: &[(&str, &Path)]) -> Vec<String> {
    let place = |word: &str| match places.iter().find(|(name, _)| *name == word) {
        _ if word == "EMPTY" => String::new(),
        Some((_, path)) => text(path).to_owned(),
        None => word.to_owned(),
    };
    line.split(' ').map(place).collect()
}

#[test]
fn the_same_kind_has_the_same_code() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "IMAGE", 16 << 20, &["-t", "ext4"]);
    let zeros = Image::sparse(scratch.join("ZEROS"), 16 << 20);
    let (dir, missing, new) = (scratch.dir("DIR"), scratch.join("MISSING"), scratch.join("NEW"));
    let places = [
        ("IMAGE", image.path.as_path()),
        ("ZEROS", &zeros.path),
        ("DIR", &dir),
        ("MISSING", &missing),
        ("NEW", &new),
    ];
    for kind in KINDS {
        let before = std::fs::read(&image.path).unwrap();
        for line in kind.lines {
            let words = words(line, &places);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let is_check = words[0] == "check";
            let done = run_extol(&words);
            let code = if is_check { kind.of_check } else { kind.code };
            assert_eq!(done.code, Some(code), "{}: {line}: {}", kind.name, done.output);
            let said: Vec<&str> = done.stderr.lines().collect();
            assert_eq!(said.len(), 1, "{}: {line}: {}", kind.name, done.output);
            for word in kind.words {
                assert!(said[0].contains(word), "{}: {line}: {}", kind.name, said[0]);
            }
            assert!(!new.exists() && !missing.exists(), "{line} has left a file");
        }
        // Wrong arguments are refused before anything is opened for writing.
        if kind.code == 1 {
            let after = std::fs::read(&image.path).unwrap();
            assert!(after == before, "{}: the image was changed", kind.name);
        }
    }
    assert_eq!(run_extol(&["check", text(&image.path)]).code, Some(0));
}
