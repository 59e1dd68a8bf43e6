//! Tests of directories as sources.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use super::{DirOptions, DirSource, Source as _};
use crate::edits::Pattern;
use crate::error::BuildError;
use crate::tree::{Kind, Limits, Tree, TreeBuilder};

fn scan(dir: &Path) -> (DirSource, Tree) {
    let mut source = DirSource::open(dir, DirOptions::default()).expect("opens");
    let mut builder = TreeBuilder::new(Limits::default());
    source.scan(&mut builder).expect("scan");
    (source, builder.finish())
}

#[test]
fn a_directory_is_listed_and_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    fs::create_dir(root.join("d")).expect("mkdir");
    fs::write(root.join("d/f"), b"contents").expect("write");
    fs::set_permissions(root.join("d/f"), Permissions::from_mode(0o4751)).expect("chmod");
    fs::hard_link(root.join("d/f"), root.join("a")).expect("link");
    symlink("d/f", root.join("l")).expect("symlink");
    let (source, tree) = scan(root);
    let paths: Vec<_> = tree.nodes().map(|(id, _)| tree.path(id)).collect();
    assert_eq!(paths, [&b""[..], b"a", b"l", b"d"]);
    let node = tree.node(tree.find(b"d/f").expect("is there"));
    assert_eq!(tree.find(b"d/f"), tree.find(b"a"));
    assert_eq!((node.nlink, node.meta.mode), (2, 0o4751));
    let stat = root.join("a").metadata().expect("stat");
    assert_eq!(node.meta.mtime.sec, stat.mtime());
    assert_eq!(i64::from(node.meta.mtime.nsec), stat.mtime_nsec());
    let Kind::File { size: 8, data } = node.kind else { panic!("{:?}", node.kind) };
    let mut reader = source.reader(data).expect("opens");
    let mut buf = [0; 20];
    assert_eq!(reader.read_at(3, &mut buf).expect("reads"), 5);
    assert_eq!(&buf[..5], b"tents");
    reader.end().expect("unchanged");
    let Kind::Symlink(target) = tree.node(tree.find(b"l").expect("link")).kind else { panic!() };
    assert_eq!(tree.bytes(target), b"d/f");
}

#[test]
fn a_file_that_changes_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, b"contents").expect("write");
    let (source, tree) = scan(dir.path());
    let Kind::File { data, .. } = tree.node(tree.find(b"f").expect("is there")).kind else {
        panic!()
    };
    let mut reader = source.reader(data).expect("opens");
    File::options().write(true).open(&path).expect("opens").write_at(b"x", 9).expect("write");
    assert!(matches!(reader.end(), Err(BuildError::Changed { .. })));
    drop(reader);
    assert!(matches!(source.reader(data).err(), Some(BuildError::Changed { .. })));
    fs::remove_file(&path).expect("unlink");
    let error = source.reader(data).err().expect("gone").to_string();
    assert!(error.contains("f: has changed while it was read"), "{error}");
}

/// Sockets, devices, names that are no text, and directories without end.
#[test]
fn all_kinds_and_names() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    let odd = OsStr::from_bytes(b"\xff\n\x1b[31m");
    fs::write(root.join(odd), b"").expect("write");
    let long = "n".repeat(255);
    fs::write(root.join(&long), b"").expect("write");
    let socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("bind");
    let fifo = std::process::Command::new("mkfifo").arg(root.join("fifo")).status();
    assert!(fifo.expect("mkfifo").success());
    let deep: std::path::PathBuf = (0..200).map(|_| "d").collect();
    fs::create_dir_all(root.join(&deep)).expect("mkdir");
    fs::write(root.join(&deep).join("f"), b"deep").expect("write");
    let (source, tree) = scan(root);
    drop(socket);
    assert_eq!(tree.len(), 206);
    let kind = |path: &[u8]| tree.node(tree.find(path).expect("is there")).kind;
    assert!(matches!(kind(b"socket"), Kind::Socket) && matches!(kind(b"fifo"), Kind::Fifo));
    assert!(matches!(kind(b"\xff\n\x1b[31m"), Kind::File { .. }));
    let Kind::File { data, .. } = kind(deep.join("f").as_os_str().as_bytes()) else { panic!() };
    let mut buf = [0; 4];
    source.reader(data).expect("opens").read_at(0, &mut buf).expect("reads");
    assert_eq!(&buf, b"deep");
    // A message is one line, whatever the name.
    fs::remove_file(root.join(odd)).expect("unlink");
    let Kind::File { data, .. } = kind(b"\xff\n\x1b[31m") else { panic!() };
    let error = source.reader(data).err().expect("gone").to_string();
    assert!(!error.contains(['\n', '\x1b']), "{error}");
}

#[test]
fn left_out_names_are_not_looked_at() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    fs::create_dir_all(root.join("a/secret/x")).expect("mkdir");
    fs::write(root.join("a/b.o"), b"").expect("write");
    fs::write(root.join("image"), b"").expect("write");
    let image = root.join("image").metadata().expect("stat");
    let mut options = DirOptions { skip: vec![(image.dev(), image.ino())], ..Default::default() };
    for pattern in ["*.o", "/a/secret/"] {
        options.exclude.push(Pattern::parse("--exclude", pattern.as_bytes()).expect("parses"));
    }
    let mut builder = TreeBuilder::new(Limits::default());
    DirSource::open(root, options).expect("opens").scan(&mut builder).expect("scan");
    let tree = builder.finish();
    assert_eq!(tree.len(), 2);
    assert!(tree.notes().0[0].entry.ends_with("/image"), "{:?}", tree.notes());
}

#[test]
fn attributes_and_times() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, b"").expect("write");
    let long = vec![b'v'; 3000];
    let flags = rustix::fs::XattrFlags::empty();
    for (name, value) in [("user.a", &b"1"[..]), ("user.b", &long)] {
        rustix::fs::setxattr(&path, name, value, flags).expect("setxattr");
    }
    rustix::fs::setxattr(dir.path(), "user.root", b"2", flags).expect("setxattr");
    symlink("f", dir.path().join("l")).expect("symlink");
    let (_, tree) = scan(dir.path());
    let set = |path: &[u8]| {
        let meta = tree.node(tree.find(path).expect("is there")).meta;
        let set = tree.xattrs(meta.xattrs).iter();
        set.map(|(name, value)| (name.to_vec(), value.to_vec()))
            .filter(|(name, _)| name.starts_with(b"user."))
            .collect::<Vec<_>>()
    };
    assert_eq!(set(b"f"), [(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), long)]);
    assert_eq!(set(b""), [(b"user.root".to_vec(), b"2".to_vec())]);
    assert!(set(b"l").is_empty(), "links are not followed");

    let options = DirOptions { xattrs: false, keep_times: true, ..Default::default() };
    let mut builder = TreeBuilder::new(Limits::default());
    DirSource::open(dir.path(), options).expect("opens").scan(&mut builder).expect("scan");
    let tree = builder.finish();
    let meta = tree.node(tree.find(b"f").expect("is there")).meta;
    assert!(tree.xattrs(meta.xattrs).is_empty());
    let stat = path.metadata().expect("stat");
    let times = tree.times(meta.times);
    assert_eq!(times.atime.map(|time| time.sec), Some(stat.atime()));
    assert_eq!(times.ctime.map(|time| time.sec), Some(stat.ctime()));
}

#[test]
fn holes_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    let file = File::create(&path).expect("create");
    file.set_len(1 << 24).expect("truncate");
    file.write_all_at(b"data", 1 << 20).expect("write");
    let (source, tree) = scan(dir.path());
    let Kind::File { data, .. } = tree.node(tree.find(b"f").expect("f")).kind else { panic!() };
    let mut reader = source.reader(data).expect("opens");
    let run = reader.data_from(0).expect("asks").expect("data");
    assert!(run.contains(&(1 << 20)), "{run:?}");
    // A file system without holes says that all is data.
    let rest = reader.data_from((1 << 24) - 1).expect("asks");
    assert!(rest.is_none_or(|run| run.start < 1 << 24));
    assert_eq!(reader.read_at(1 << 24, &mut [0; 10]).expect("reads"), 0);
}

#[test]
fn what_is_no_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, b"").expect("write");
    for (path, why) in [(path, "Not a directory"), (dir.path().join("x"), "No such file")] {
        let error = DirSource::open(&path, DirOptions::default()).expect_err("no directory");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Several threads read at once.
#[test]
fn read_by_many_threads() {
    let dir = tempfile::tempdir().expect("a directory");
    for nr in 0..300 {
        let sub = dir.path().join(format!("{}", nr % 50));
        fs::create_dir_all(&sub).expect("mkdir");
        fs::write(sub.join(format!("{nr}")), format!("contents {nr}")).expect("write");
    }
    let (source, tree) = scan(dir.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (source, tree) = (&source, &tree);
            scope.spawn(move || {
                for nr in (0..300).filter(|nr| nr % 4 == thread) {
                    let path = format!("{}/{nr}", nr % 50);
                    let node = tree.node(tree.find(path.as_bytes()).expect("is there"));
                    let Kind::File { data, size } = node.kind else { panic!() };
                    let mut buf = vec![0; size as usize];
                    let mut reader = source.reader(data).expect("opens");
                    assert_eq!(reader.read_at(0, &mut buf).expect("reads"), buf.len());
                    assert_eq!(buf, format!("contents {nr}").into_bytes());
                }
            });
        }
    });
}
