//! Files beside an open one, while their directory changes.

use super::*;
use std::io::Read as _;

/// A directory that takes the place of the image's is not its directory.
#[test]
fn the_directory_is_that_of_the_open_image() {
    let scratch = tempfile::tempdir().expect("scratch");
    let at = |name: &str| scratch.path().join(name);
    for (dir, below) in [("dir", "own"), ("other", "foreign")] {
        std::fs::create_dir(at(dir)).expect("mkdir");
        std::fs::write(at(dir).join("image"), vec![0; 4096]).expect("image");
        std::fs::write(at(dir).join("base"), below).expect("base");
    }
    let image = FileDevice::open(at("dir/image"), &OpenOptions::read_only()).expect("open");
    std::fs::rename(at("dir"), at("moved")).expect("rename");
    std::fs::rename(at("other"), at("dir")).expect("rename");
    let found = image.open_beside(Path::new(""), "base".as_ref());
    let (mut file, path) = found.expect("the file beside the image");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    assert_eq!((text.as_str(), path), ("own", at("moved/base")));
    // The name of the directory leads to the other one.
    let found = image.open_beside(&at("dir"), "base".as_ref());
    assert!(matches!(found, Err(NotBeside::Elsewhere)), "{found:?}");
    // An image without a name has no directory.
    std::fs::remove_file(at("moved/image")).expect("remove");
    let found = image.open_beside(Path::new(""), "base".as_ref());
    assert!(matches!(found, Err(NotBeside::Failed(_))), "{found:?}");
}
