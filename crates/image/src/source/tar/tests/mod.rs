//! Tests of archives.

mod compressed;
mod hostile;
mod peers;

use std::fs::{self, File};
use std::path::Path;

use extol_testkit::Scratch;

use super::TarSource;
use crate::error::Result;
use crate::source::Source as _;
use crate::source::compare::{Listing, assert_same, list, listing};
use crate::source::maker::Maker;
use crate::tree::{Limits, Tree, TreeBuilder};

fn list_tar(path: &Path, spool: &Path) -> Listing {
    list(&mut TarSource::open(path, spool).expect("opens"))
}

/// Scans an archive as a file, and as a stream. Both must come to the same.
fn scan(archive: &[u8], limits: Limits) -> Result<(TarSource, Tree)> {
    let scratch = Scratch::new();
    let path = scratch.join("x.tar");
    fs::write(&path, archive).expect("write");
    let one = |mut source: TarSource| {
        let mut builder = TreeBuilder::new(limits);
        source.scan(&mut builder).map(|()| (source, builder.finish()))
    };
    let plain = one(TarSource::open(&path, scratch.path()).expect("opens"));
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let streamed = std::thread::scope(|scope| {
        scope.spawn(move || {
            use std::io::Write as _;
            // The reader may go first.
            let _ = writer.write_all(archive);
        });
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let name = path.as_os_str().as_encoded_bytes();
        one(TarSource::from_file(file, name, scratch.path()).expect("opens"))
    });
    match (&plain, &streamed) {
        (Ok(plain), Ok(streamed)) => {
            let listings = [plain, streamed].map(|(source, tree)| listing(source, tree));
            assert_same(&listings[1], &listings[0], "a stream and a file");
            assert_eq!(plain.1.notes(), streamed.1.notes());
        }
        (Err(plain), Err(streamed)) => assert_eq!(plain.to_string(), streamed.to_string()),
        other => panic!("{other:?}"),
    }
    plain
}

fn paths(tree: &Tree) -> Vec<String> {
    tree.nodes().skip(1).map(|(id, _)| String::from_utf8_lossy(&tree.path(id)).into()).collect()
}

fn notes(tree: &Tree) -> Vec<String> {
    tree.notes().0.iter().map(|note| format!("{}: {}", note.entry, note.what)).collect()
}

/// What is wrong with an archive, without its name.
fn error(archive: &[u8]) -> String {
    let error = scan(archive, Limits::default()).expect_err("is refused").to_string();
    assert!(error.len() < 600 && !error.contains('\n'), "{error}");
    match error.split_once("/x.tar: ") {
        Some((_, why)) => format!("x.tar: {why}"),
        None => error,
    }
}

fn file(name: &str, data: &[u8]) -> Maker {
    Maker::default().entry(name, b'0', data)
}
