//! What is answered survives a crash, and so do handles.

use extol_vfs::{Shutdown, VolumeControl as _};

use super::*;

/// Another server, on what the device holds at this moment.
fn after_crash(device: &MemDevice) -> Client {
    Client::of(open(&Arc::new(device.snapshot())), Config::default())
}

/// NF-1, for each procedure that changes something; and NF-3.
#[test]
fn changes_are_durable_when_they_are_answered() {
    let (device, client) = Client::new(Config::default());
    let root = client.root();
    let crashed = || after_crash(&device);

    let file = client.create(&root, b"file", 0o640).expect("create");
    assert_eq!(crashed().lookup(&root, b"file"), Ok(file.clone()));
    let exclusive = client.make(CREATE, &root, b"lock", |out| {
        out.u32(2).fixed(b"verifier");
    });
    let again = crashed().make(CREATE, &root, b"lock", |out| {
        out.u32(2).fixed(b"verifier");
    });
    assert_eq!(again, exclusive);
    let dir = client.mkdir(&root, b"dir", 0o755).expect("mkdir");
    assert_eq!(crashed().lookup(&root, b"dir"), Ok(dir.clone()));
    let link = client.make(SYMLINK, &dir, b"link", |out| {
        settings(out, None);
        out.opaque(b"target");
    });
    assert_eq!(crashed().lookup(&dir, b"link"), link);
    let fifo = client.make(MKNOD, &dir, b"fifo", |out| {
        out.u32(7);
        settings(out, Some(0o600));
    });
    assert_eq!(crashed().lookup(&dir, b"fifo"), fifo);
    let args = |out: &mut Out| {
        out.opaque(&file).opaque(&dir).opaque(b"hard");
    };
    assert_eq!(client.call(LINK, args).0, 0);
    assert_eq!(crashed().attr(&file).expect("attributes")[2], 2);
    assert_eq!(client.chmod(&file, 0o604), 0);
    assert_eq!(crashed().mode(&file), 0o604);
    assert_eq!(client.truncate(&file, 12345), 0);
    assert_eq!(crashed().size(&file), 12345);
    assert_eq!(client.rename((&root, b"file"), (&dir, b"moved")), 0);
    assert_eq!(crashed().lookup(&root, b"file"), Err(2));
    assert_eq!(crashed().lookup(&dir, b"moved"), Ok(file.clone()));
    assert_eq!(client.remove(REMOVE, &dir, b"moved"), 0);
    assert_eq!(crashed().lookup(&dir, b"moved"), Err(2));
    assert_eq!(crashed().attr(&file).expect("attributes")[2], 1);
    assert_eq!(client.remove(REMOVE, &dir, b"hard"), 0);
    assert_eq!(crashed().attr(&file), Err(70));
    for name in [&b"link"[..], b"fifo"] {
        assert_eq!(client.remove(REMOVE, &dir, name), 0);
    }
    assert_eq!(client.remove(RMDIR, &root, b"dir"), 0);
    assert_eq!(crashed().lookup(&root, b"dir"), Err(2));
    assert_eq!(crashed().attr(&dir), Err(70));
}

#[test]
fn writes_are_durable_when_they_are_committed() {
    let (device, client) = Client::new(Config::default());
    let root = client.root();
    let file = client.create(&root, b"file", 0o600).expect("create");
    let crashed = |len| after_crash(&device).read(&file, 0, len).expect("read").0;
    let (status, verifier) = client.write(&file, 0, &[1; 5000], 0);
    assert_eq!((status, crashed(5000)), (0, Vec::new()));
    assert_eq!(client.commit(&file), (0, verifier));
    assert_eq!(crashed(5000), [1; 5000]);
    // The same writes that ask for it need no commit.
    for (byte, stable) in [(2, 1), (3, 2)] {
        assert_eq!(client.write(&file, 0, &[byte; 5000], stable), (0, verifier));
        assert_eq!(crashed(5000), [byte; 5000]);
    }
    // The next server has another verifier, so a client writes again what it had not committed.
    let next = after_crash(&device);
    assert_ne!(next.write(&file, 0, b"x", 0).1, verifier);
}

/// NF-2: the file system stops, and what it had not written is lost.
#[test]
fn a_failed_sync_changes_the_verifier() {
    let device = device();
    let fs = open(&device);
    fs.set_permissions("/", 0o777).expect("chmod");
    let client = Client::of(Arc::clone(&fs), Config::default());
    let file = client.create(&client.root(), b"file", 0o600).expect("create");
    let (status, verifier) = client.write(&file, 0, b"lost", 0);
    assert_eq!(status, 0);
    fs.shut_down(Shutdown::Now).expect("shutdown");
    assert_eq!(client.commit(&file).0, 5);
    assert_ne!(client.export.verifier.now(), verifier);
}

/// NF-3: the number of an inode is used again, and the old handle does not lead to the new file.
#[test]
fn a_handle_of_a_removed_file_stays_stale() {
    let (device, client) = Client::new(Config::default());
    let root = client.root();
    let old = client.create(&root, b"old", 0o600).expect("create");
    let number = |handle: &Handle| handle[12..16].to_vec();
    assert_eq!(client.remove(REMOVE, &root, b"old"), 0);
    let mut reused = false;
    for nr in 0..50 {
        let name = format!("new{nr}").into_bytes();
        let new = client.create(&root, &name, 0o600).expect("create");
        reused |= number(&new) == number(&old);
        assert_eq!(client.attr(&old), Err(70));
    }
    assert!(reused, "no number was used again");
    assert_eq!(after_crash(&device).attr(&old), Err(70));
}

#[test]
fn a_handle_of_another_volume_is_stale() {
    let (_, client) = Client::new(Config::default());
    let (_, other) = Client::new(Config::default());
    assert_eq!(other.attr(&client.root()), Err(70));
}
