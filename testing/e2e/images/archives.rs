//! Sources that are archives or container images, and archives of images.

use crate::{LINUX, below_root, read_back};
use extol_testkit::{
    Image, Need, Scratch, Tree, TreeSpec, e2fsck, extol_ok, extol_path, make_tree, refused,
    require, run, run_extol, run_ok, text, tool,
};
use std::os::unix::ffi::OsStrExt as _;

/// What a source may have at most is what `--limits` says; the message names the limit.
#[test]
fn limits_of_a_source_are_those_of_the_option() {
    if !require(&["tar", "gzip"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, tar) = (scratch.dir("tree"), scratch.join("a.tar"));
    std::fs::create_dir_all(dir.join("one/two/three")).expect("directories");
    std::fs::write(dir.join("one/file"), vec![0; 1 << 20]).expect("a file");
    let sparse = std::fs::File::create(dir.join("one/sparse")).expect("a file");
    for run in 0..8 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", run << 20).expect("write");
    }
    let mut command = tool("tar");
    command.args(["--format=pax", "--sparse", "-cf"]).arg(&tar).arg("-C").arg(&dir).arg(".");
    run_ok(&mut command);
    run_ok(tool("gzip").arg("-k").arg(&tar));
    let image = scratch.join("a.img");
    let packed = scratch.join("a.tar.gz");
    // (Of a directory the holes are no list that the source has written.)
    for (source, limit, enough) in [
        (&dir, "entries=3", "entries=7"),
        (&tar, "entries=3", "entries=7"),
        (&dir, "depth=1", "depth=3"),
        (&tar, "depth=1", "depth=3"),
        (&dir, "metadata=10", "metadata=1000"),
        (&dir, "file-size=1000k", "file-size=8M"),
        (&tar, "file-size=1000k", "file-size=8M"),
        (&tar, "sparse-runs=3", "sparse-runs=20"),
        (&packed, "expand=1M", "expand=2M,entries=7"),
    ] {
        let source = text(source);
        let line = |limit| ["mkfs", "-q", "-F", "-d", source, "--limits", limit, text(&image)];
        let (name, _) = limit.split_once('=').expect("a limit");
        let needle = if name == "sparse-runs" { "too many runs" } else { name };
        refused(&line(limit), 32, &[needle]);
        assert!(!image.exists(), "{limit}");
        extol_ok(&line(enough));
        std::fs::remove_file(&image).expect("remove");
    }
    for (limit, needle) in
        [("entries=0", "less than 1"), ("files=3", "unknown limit"), ("depth=", "is empty")]
    {
        let line = ["mkfs", "-q", "-d", text(&dir), "--limits", limit, text(&image)];
        refused(&line, 1, &[needle]);
        assert!(!image.exists(), "{limit}");
    }
}

/// Archives of all kinds, by name and through a pipe, give the same bytes; and these are the files.
#[test]
fn an_archive_is_the_files_in_it() {
    let tools = ["tar", "gzip", "xz", "zstd"].map(Need::Tool);
    if !require(&LINUX) || !require(&tools) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    make_tree(&dir, &TreeSpec { sparse_to: 100 << 20, ..TreeSpec::small(11) });
    let mut before = below_root(Tree::of(&dir));
    // tar leaves sockets out.
    before.nodes.retain(|_, node| node.kind != 's');
    let plain = scratch.join("a.tar");
    let mut command = tool("tar");
    command.args(["--xattrs", "--xattrs-include=*", "--acls", "--format=pax", "--sort=name", "-S"]);
    run_ok(command.arg("-cf").arg(&plain).arg("-C").arg(&dir).arg("."));
    for (program, suffix) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        run_ok(tool(program).args(["-k", "-q"]).arg(&plain));
        assert!(scratch.join(&format!("a.tar.{suffix}")).exists());
    }
    let image = scratch.join("a.img");
    extol_ok(&["mkfs", "-q", "-d", text(&plain), text(&image)]);
    e2fsck(&Image::existing(&image)).assert_clean("of a tar");
    let after = below_root(read_back(&scratch, &image));
    before.assert_same(&after, "the directory", "the image of its tar");
    let bytes = std::fs::read(&image).unwrap();
    for name in ["a.tar", "a.tar.gz", "a.tar.xz", "a.tar.zst"] {
        let archive = scratch.join(name);
        for piped in [false, true] {
            std::fs::remove_file(&image).unwrap();
            if piped {
                let line = r#"cat "$0" | "$1" mkfs -q -d - "$2""#;
                let mut shell = tool("sh");
                run_ok(shell.args(["-c", line]).args([&archive, extol_path(), &image]));
            } else {
                extol_ok(&["mkfs", "-q", "-d", text(&archive), text(&image)]);
            }
            assert!(std::fs::read(&image).unwrap() == bytes, "{name}, piped: {piped}");
        }
    }
    // What is no archive, and what is cut off, is named and leaves nothing.
    std::fs::remove_file(&image).unwrap();
    let broken = scratch.join("broken.tar");
    let archive = std::fs::read(&plain).unwrap();
    std::fs::write(&broken, &archive[..archive.len() / 2]).unwrap();
    refused(&["mkfs", "-d", text(&broken), text(&image)], 32, &["broken.tar"]);
    std::fs::write(&broken, vec![b'x'; 5000]).unwrap();
    refused(&["mkfs", "-d", text(&broken), text(&image)], 1, &["broken.tar", "is neither"]);
    assert!(!image.exists());
    let left = std::fs::read_dir(scratch.path()).unwrap().flatten();
    assert_eq!(left.filter(|e| e.path().is_file()).count(), 5, "nothing of the spool is left");
}

/// The way back: other programs read the archive of an image, and the image of the archive has the
/// same archive, whatever its blocks are.
#[test]
fn an_archive_of_an_image_is_the_image() {
    if !require(&LINUX) || !require(&["tar", "bsdtar", "gzip"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    make_tree(&dir, &TreeSpec { large: 9 << 20, sparse_to: 300 << 20, ..TreeSpec::small(17) });
    std::fs::write(dir.join("zeros"), vec![0; 5 << 20]).unwrap();
    let bytes = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    std::fs::write(dir.join(bytes), "no text").unwrap();
    let long = dir.join("d".repeat(200)).join("e".repeat(200));
    std::fs::create_dir_all(&long).unwrap();
    std::fs::hard_link(dir.join("zeros"), long.join("f".repeat(200))).unwrap();
    let image = scratch.join("a.img");
    extol_ok(&["mkfs", "-q", "-d", text(&dir), text(&image)]);
    let archive = scratch.join("a.tar");
    let done = run_extol(&["tar", "-f", text(&archive), text(&image)]);
    assert!(done.success(), "{}", done.output);
    assert!(done.stderr.contains("not in the archive: 1 socket"), "{}", done.output);
    assert!(std::fs::metadata(&archive).unwrap().len() < 20 << 20, "holes are holes");
    let mut before = below_root(Tree::of(&dir));
    before.nodes.retain(|_, node| node.kind != 's');
    let words = ["--xattrs", "--xattrs-include=*", "--acls", "--same-owner", "-p"];
    for (program, words) in [("tar", &words[..]), ("bsdtar", &["-p", "--xattrs", "--acls"])] {
        let out = scratch.dir(program);
        let mut command = tool(program);
        command.args(words).arg("-xf").arg(&archive).arg("-C").arg(&out);
        let done = run(command.env("LC_ALL", "C.UTF-8"), std::time::Duration::from_secs(60));
        assert!(done.success(), "{}", done.output);
        let (mut files, mut out) = (before.clone(), below_root(Tree::of(&out)));
        if program == "bsdtar" {
            // libarchive 3.6 loses the sign of a fraction of a second before 1970.
            for nodes in [&mut files.nodes, &mut out.nodes] {
                nodes.retain(|_, node| node.mtime.0 != -1 && node.mtime != (0, node.mtime.1));
            }
        }
        files.assert_same(&out, "the files", &format!("by {program}"));
    }
    let first = std::fs::read(&archive).unwrap();
    for options in ["-b 1024 -O ^has_journal", "-t ext2 -b 4096", "-O inline_data -I 512 -b 2048"] {
        let again = scratch.join("again.img");
        let line = format!(r#""$0" tar "$1" | "$0" mkfs -F -q {options} -d - "$2""#);
        run_ok(tool("sh").args(["-c", &line]).args([extol_path(), &image, &again]));
        e2fsck(&Image::existing(&again)).assert_clean(options);
        extol_ok(&["tar", "-f", text(&archive), text(&again)]);
        assert!(std::fs::read(&archive).unwrap() == first, "{options}");
        std::fs::remove_file(&again).unwrap();
    }
    // Compressed, of a part, without some names.
    let gz = scratch.join("a.tar.gz");
    extol_ok(&["tar", "-f", text(&gz), text(&image)]);
    run_ok(tool("gzip").args(["-d", "-f"]).arg(&gz));
    assert!(std::fs::read(&archive).unwrap() == first);
    let list = |options: &[&str]| {
        let words = [&["tar", "-f", text(&archive)], options].concat();
        extol_ok(&words);
        run_ok(tool("tar").arg("-tf").arg(&archive))
    };
    assert_eq!(list(&[text(&image), "/zeros"]), "zeros\n");
    assert_eq!(list(&["--exclude", "*", text(&image)]), "./\n");
    let some = list(&["--exclude", "/lost+found", "--exclude=d0*", text(&image)]);
    assert!(some.starts_with("./\n") && some.contains("./zeros\n"), "{some}");
    assert!(!some.contains("lost+found") && !some.contains("./d0"), "{some}");
    let told = extol_ok(&["tar", "--json", "-f", text(&archive), text(&image)]);
    assert!(told.contains("\"sockets\": 1") && told.contains("\"failed\": 0"), "{told}");
    // What fails leaves what was there, and nothing else.
    let whole = std::fs::read(&archive).unwrap();
    refused(&["tar", "-f", text(&archive), text(&image), "/nothing"], 32, &["/nothing"]);
    refused(&["tar", "-f", text(&scratch.join("x.tar.zst")), text(&image)], 1, &["| zstd > FILE"]);
    refused(&["tar", "-f", "/dev/full", text(&image)], 32, &["/dev/full", "No space left"]);
    assert!(std::fs::read(&archive).unwrap() == whole);
    let left = std::fs::read_dir(scratch.path()).unwrap().flatten();
    assert_eq!(left.filter(|e| e.path().is_file()).count(), 2, "a.img and a.tar");
}

/// A container image of two layers, made by hand: what the second removes is not there.
#[test]
fn a_container_image_is_its_layers() {
    if !require(&["tar", "sha256sum"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::new();
    let blobs = scratch.dir("layout/blobs/sha256");
    let layout = scratch.join("layout");
    let blob = |bytes: &[u8]| {
        let path = blobs.join("new");
        std::fs::write(&path, bytes).unwrap();
        let sum = run_ok(tool("sha256sum").arg(&path));
        let sum = sum.split_whitespace().next().unwrap().to_owned();
        std::fs::rename(&path, blobs.join(&sum)).unwrap();
        serde_json::json!({"digest": format!("sha256:{sum}"), "size": bytes.len()})
    };
    let layer = |name: &str, files: &[(&str, &str)]| {
        let dir = scratch.dir(name);
        for (path, text) in files {
            std::fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.join(path), text).unwrap();
        }
        let tar = scratch.join(&format!("{name}.tar"));
        run_ok(tool("tar").arg("-cf").arg(&tar).arg("-C").arg(&dir).arg("."));
        let mut blob = blob(&std::fs::read(tar).unwrap());
        blob["mediaType"] = "application/vnd.oci.image.layer.v1.tar".into();
        blob
    };
    let first = layer("one", &[("etc/keep", "1"), ("etc/gone", "1"), ("opt/a/old", "1")]);
    let second =
        layer("two", &[("etc/.wh.gone", ""), ("opt/a/.wh..wh..opq", ""), ("opt/a/new", "2")]);
    let json = |value: serde_json::Value| blob(&serde_json::to_vec(&value).unwrap());
    let mut config = json(serde_json::json!({"architecture": "amd64", "os": "linux"}));
    config["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let mut manifest = json(serde_json::json!({
        "schemaVersion": 2, "mediaType": manifest_type, "config": config,
        "layers": [first, second],
    }));
    manifest["mediaType"] = manifest_type.into();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
    std::fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    let (image, archive) = (scratch.join("a.img"), scratch.join("oci.tar"));
    run_ok(tool("tar").arg("-cf").arg(&archive).arg("-C").arg(&layout).arg("."));
    let mut bytes = Vec::new();
    for source in [&layout, &archive] {
        let _ = std::fs::remove_file(&image);
        extol_ok(&["mkfs", "-q", "-d", text(source), text(&image)]);
        extol_ok(&["check", text(&image)]);
        assert_eq!(extol_ok(&["ls", text(&image), "/etc"]), "keep\n");
        assert_eq!(extol_ok(&["ls", "-a", text(&image), "/opt/a"]), "new\n");
        bytes.push(std::fs::read(&image).unwrap());
    }
    assert!(bytes[0] == bytes[1], "a layout and an archive of it");
    std::fs::remove_file(&image).unwrap();
    refused(&["mkfs", "-d", text(&layout), "--platform", "x", text(&image)], 1, &["x"]);
    assert!(!image.exists());

    // No file of the layout is written over, whatever its path; a new one beside them may be.
    let index = layout.join("index.json");
    let before = std::fs::read(&index).unwrap();
    std::os::unix::fs::symlink(&index, scratch.join("link")).unwrap();
    for target in [&index, &layout.join("blobs/../index.json"), &scratch.join("link")] {
        let words = ["mkfs", "-F", "-d", text(&layout), text(target)];
        refused(&words, 1, &["is a file of the container image"]);
        assert!(std::fs::read(&index).unwrap() == before, "{}", target.display());
    }
    let inside = layout.join("x.img");
    extol_ok(&["mkfs", "-q", "-d", text(&layout), text(&inside)]);
    assert!(std::fs::read(&inside).unwrap() == bytes[0]);
}
