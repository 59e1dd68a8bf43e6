//! Volumes without a journal become smaller.

use super::*;

/// A volume that `mkfs -d` has made as small as it thinks fit, without a journal; then half of its
/// files went.
fn made_of_a_directory(scratch: &Scratch, options: &[&str]) -> Image {
    let dir = scratch.dir("files");
    make_tree(&dir, &TreeSpec::small(5));
    std::fs::write(dir.join("ballast"), vec![7; 3 << 20]).expect("write");
    let path = scratch.path().join("a.img");
    run_ok(extol().args(["mkfs", "-q"]).args(options).arg("-d").arg(&dir).arg(&path));
    let image = Image { path, journal: None };
    run_ok(extol().args(["rm"]).arg(&image.path).arg("/ballast"));
    let about = extol_testkit::dump_super(&image);
    assert!(!about.contains("has_journal"), "{about}");
    image
}

fn tree(scratch: &Scratch, image: &Image) -> Tree {
    let mount = KernelMount::mount(image, &scratch.dir("mnt"), &["ro"]);
    let tree = Tree::of(mount.path());
    mount.unmount();
    tree
}

/// No more blocks than resize2fs needs, and a second time not a byte changes.
#[test]
fn minimum_without_a_journal() {
    if !require(&NEEDS) {
        return;
    }
    for options in [&["-O", "^has_journal"][..], &["-O", "^has_journal", "-b", "4096"]] {
        let scratch = Scratch::new();
        let what = format!("{options:?}");
        let image = made_of_a_directory(&scratch, options);
        let before = tree(&scratch, &image);
        let copy = Image { path: scratch.path().join("theirs.img"), journal: None };
        std::fs::copy(&image.path, &copy.path).expect("copy");
        run_ok(tool("resize2fs").args(["-f", "-M"]).arg(&copy.path));
        let said = run_ok(extol().args(["resize", "--minimum"]).arg(&image.path));
        assert!(said.contains(": shrank from "), "{what}: {said}");
        let (ours, theirs) = (blocks(&image), blocks(&copy));
        assert!(ours <= theirs, "{what}: {ours} of {theirs} blocks");
        e2fsck(&image).assert_clean(&what);
        assert!(!extol_testkit::dump_super(&image).contains("has_journal"), "{what}");
        before.assert_same(&tree(&scratch, &image), "before", &what);
        nothing_is_written(&image, &what);
    }
}

fn nothing_is_written(image: &Image, what: &str) {
    let bytes = std::fs::read(&image.path).expect("read");
    let again = run_ok(extol().args(["resize", "--minimum"]).arg(&image.path));
    assert!(again.contains("nothing to do"), "{what}: {again}");
    assert!(std::fs::read(&image.path).expect("read") == bytes, "{what}: was changed");
}

#[test]
fn a_second_minimum_writes_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=4"];
    let image = Image::mke2fs(scratch.path(), "a.img", 40 << 20, &options);
    make_files(&image);
    run_ok(extol().args(["resize", "--minimum"]).arg(&image.path));
    nothing_is_written(&image, "with a journal");
    let said = run_ok(extol().args(["resize", "--minimum", "--json"]).arg(&image.path));
    assert!(said.contains("\"outcome\": \"same\""), "{said}");
}
