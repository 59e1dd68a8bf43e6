//! Folding against another implementation with tables of its own: the one in libext2fs, which
//! e2fsck and debugfs use.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;

use extol_casefold::{fold, is_valid};
use extol_testkit::{Need, require, tool};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn answer(name: &[u8]) -> String {
    let form = fold(name).map_or_else(|| "-".to_owned(), |form| hex(&form));
    format!("{form} {}", u8::from(is_valid(name)))
}

/// Asks libext2fs for all names, and compares.
fn compare(names: &[Vec<u8>]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/libext2fs.py");
    let mut child = tool("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut input = child.stdin.take().expect("a pipe");
    let lines: String = names.iter().map(|name| hex(name) + "\n").collect();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(lines.as_bytes()));
        child.wait_with_output().expect("the script ends")
    });
    assert!(output.status.success());
    let theirs = String::from_utf8(output.stdout).expect("text");
    let theirs: Vec<&str> = theirs.lines().collect();
    assert_eq!(theirs.len(), names.len());
    let differ: Vec<_> = names
        .iter()
        .zip(&theirs)
        .filter(|(name, theirs)| answer(name) != **theirs)
        .map(|(name, theirs)| (hex(name), answer(name), *theirs))
        .take(10)
        .collect();
    assert!(differ.is_empty(), "name, ours, theirs: {differ:#?}");
}

fn can_ask() -> bool {
    require(&[Need::Tool("python3"), Need::Tool("mke2fs")])
}

#[test]
fn every_code_point_folds_alike() {
    if !can_ask() {
        return;
    }
    let names: Vec<Vec<u8>> =
        ('\u{1}'..=char::MAX).map(|char| char.to_string().into_bytes()).collect();
    assert_eq!(names.len(), 0x11_0000 - 0x800 - 1);
    compare(&names);
}

/// Characters that something happens to: they have a class, are mapped, or are ignored.
fn special() -> Vec<char> {
    // With a class, it does not keep U+0334 (class 1) from going first.
    let class = |char: char| {
        let name = format!("\u{1D165}{char}\u{334}");
        fold(name.as_bytes()).is_some_and(|form| form.starts_with("\u{334}".as_bytes()))
    };
    let changes = |char: char| fold(char.to_string().as_bytes()) != Some(char.to_string().into());
    let found: Vec<char> = ('\u{80}'..='\u{2FFFF}')
        .filter(|char| !('가'..='힣').contains(char))
        .filter(|char| changes(*char) || class(*char))
        .collect();
    assert!(found.len() > 3900, "{}", found.len());
    found
}

#[test]
fn random_names_of_all_planes_fold_alike() {
    if !can_ask() {
        return;
    }
    let special = special();
    let mut rng = SmallRng::seed_from_u64(121);
    let names: Vec<Vec<u8>> = (0..200_000)
        .map(|_| {
            let len = rng.random_range(1..16);
            let chars = (0..len).map(|_| match rng.random_range(0..8) {
                0 => rng.random_range('\u{1}'..=char::MAX),
                1 => rng.random_range('\u{300}'..='\u{36F}'),
                2 => rng.random_range('가'..='힣'),
                3 => rng.random_range('A'..='z'),
                _ => special[rng.random_range(0..special.len())],
            });
            chars.collect::<String>().into_bytes()
        })
        .collect();
    compare(&names);
}

#[test]
fn malformed_names_fold_alike() {
    if !can_ask() {
        return;
    }
    let special = special();
    let mut rng = SmallRng::seed_from_u64(122);
    let mut names: Vec<Vec<u8>> = (0..200_000)
        .map(|_| {
            let mut name = Vec::new();
            for _ in 0..rng.random_range(1..12) {
                match rng.random_range(0..6) {
                    0 => name.push(rng.random_range(0x80..0xC0)),
                    1 => name.push(rng.random_range(1..=u8::MAX)),
                    2 => name.extend_from_slice(
                        rng.random_range('\u{300}'..='\u{36F}').to_string().as_bytes(),
                    ),
                    3 => name.push(rng.random_range(b'A'..b'z')),
                    _ => {
                        let char = special[rng.random_range(0..special.len())];
                        name.extend_from_slice(char.to_string().as_bytes());
                    }
                }
            }
            name
        })
        .collect();
    for (first, second) in (1..=u8::MAX).flat_map(|a| (1..=u8::MAX).map(move |b| (a, b))) {
        names.push(vec![first, second]);
        names.push(vec![b'a', first, second, 0x80]);
        names.push(vec![first, second, 0x80, 0x80]);
    }
    compare(&names);
}
