use super::*;

fn file(fs: &NoopFs, dir: u32, name: &[u8]) -> Attr {
    fs.create(dir, name, NewNode::Regular, 0o644, 0o022, Creds::default()).expect("create")
}

fn names(fs: &NoopFs, dir: u32) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name).expect("ascii"));
        true
    })
    .expect("readdir");
    names
}

#[test]
fn sizes_without_data() {
    let fs = NoopFs::new();
    let ino = file(&fs, ROOT, b"a").id.ino;
    assert_eq!(fs.write(ino, 10, &[7; 4096]), Ok(4096));
    assert_eq!(fs.getattr(ino).expect("there").size, 4106);
    let mut buf = [9; 5000];
    assert_eq!(fs.read(ino, 6, &mut buf), Ok(4100));
    assert!(buf[..4100].iter().all(|b| *b == 0));
    fs.setattr(ino, &SetAttr { size: Some(5), perm: Some(0o600), ..SetAttr::default() })
        .expect("setattr");
    let attr = fs.getattr(ino).expect("there");
    assert_eq!((attr.size, attr.perm), (5, 0o600));
    assert_eq!(fs.write(ino, u64::MAX, &[1, 2]), Err(FsError::TooBig));
}

#[test]
fn an_unlinked_file_lives_until_it_is_forgotten() {
    let fs = NoopFs::new();
    let ino = file(&fs, ROOT, b"a").id.ino;
    assert_eq!(fs.link(ino, ROOT, b"b").expect("link").nlink, 2);
    fs.unlink(ROOT, b"a").expect("unlink");
    fs.unlink(ROOT, b"b").expect("unlink");
    assert_eq!((fs.getattr(ino).expect("held").nlink, fs.held()), (0, (2, 3)));
    fs.forget(ino, 2);
    assert_eq!((fs.getattr(ino), fs.held()), (Err(FsError::Stale), (1, 1)));
    // Forgotten first, then unlinked.
    let ino = file(&fs, ROOT, b"c").id.ino;
    fs.forget(ino, 1);
    fs.unlink(ROOT, b"c").expect("unlink");
    assert_eq!(fs.held(), (1, 1));
}

#[test]
fn directories() {
    let fs = NoopFs::new();
    let dir = fs
        .create(ROOT, b"d", NewNode::Directory, 0o755, 0, Creds::default())
        .expect("mkdir")
        .id
        .ino;
    file(&fs, dir, b"x");
    assert_eq!(fs.rmdir(ROOT, b"d"), Err(FsError::NotEmpty));
    assert_eq!(
        fs.create(dir, b"x", NewNode::Regular, 0, 0, Creds::default()),
        Err(FsError::Exists)
    );
    assert_eq!(fs.lookup(dir, b"..").expect("parent").id.ino, ROOT);
    fs.rename(dir, b"x", ROOT, b"y", RenameFlags::empty()).expect("rename");
    assert_eq!(
        (names(&fs, dir), names(&fs, ROOT)),
        (vec![".".into(), "..".into()], { [".", "..", "d", "y"].map(str::to_owned).into() })
    );
    fs.rmdir(ROOT, b"d").expect("rmdir");
    assert_eq!(fs.getattr(ROOT).expect("root").nlink, 2);
    assert_eq!(fs.lookup(ROOT, b"d"), Err(FsError::NotFound));
}

#[test]
fn a_rename_replaces() {
    let fs = NoopFs::new();
    let kept = file(&fs, ROOT, b"a").id.ino;
    let gone = file(&fs, ROOT, b"b").id.ino;
    assert_eq!(fs.rename(ROOT, b"a", ROOT, b"b", RenameFlags::NOREPLACE), Err(FsError::Exists));
    fs.rename(ROOT, b"a", ROOT, b"b", RenameFlags::empty()).expect("rename");
    assert_eq!((names(&fs, ROOT).len(), fs.getattr(gone).expect("held").nlink), (3, 0));
    assert_eq!(fs.lookup(ROOT, b"b").expect("there").id.ino, kept);
}

/// A listing that goes on where it stopped misses nothing that stays.
#[test]
fn a_long_listing_while_names_go() {
    let fs = NoopFs::new();
    for n in 0..500 {
        file(&fs, ROOT, format!("f{n}").as_bytes());
    }
    let (mut cookie, mut seen) = (0, Vec::new());
    loop {
        let before = seen.len();
        fs.readdir(ROOT, cookie, &mut |entry| {
            cookie = entry.cookie;
            seen.push(entry.name);
            seen.len() % 7 != 0
        })
        .expect("readdir");
        if seen.len() == before {
            break;
        }
        let name = seen.last().expect("one").clone();
        if name.starts_with(b"f") {
            fs.unlink(ROOT, &name).expect("unlink");
        }
    }
    assert_eq!(seen.len(), 502);
}
