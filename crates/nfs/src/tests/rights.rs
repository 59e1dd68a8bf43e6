//! What callers may do.

use extol_vfs::VolumeControl as _;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::Squash;

const READ_BIT: u32 = 1;
const MODIFY: u32 = 4;
const EXECUTE: u32 = 32;
const ALL: u32 = 63;

#[test]
fn permission_bits_count() {
    let (_, owner) = Client::new(Config::default());
    let root = owner.root();
    let file = owner.create(&root, b"file", 0o640).expect("create");
    assert_eq!(owner.write(&file, 0, b"data", 0).0, 0);
    let (group, other) = (owner.user(2000, 100), owner.user(3000, 300));
    assert_eq!(group.read(&file, 0, 9), Ok((b"data".to_vec(), true)));
    assert_eq!(group.write(&file, 0, b"x", 0).0, 13);
    assert_eq!(other.read(&file, 0, 9), Err(13));
    assert_eq!(other.truncate(&file, 0), 13);
    assert_eq!(owner.access(&file, ALL), READ_BIT | MODIFY | 8);
    assert_eq!(group.access(&file, ALL), READ_BIT);
    assert_eq!(other.access(&file, ALL), 0);
    // A client that has the file open goes on, as its owner; and a program is read to be run.
    assert_eq!(owner.chmod(&file, 0), 0);
    assert_eq!(owner.write(&file, 0, b"more", 0).0, 0);
    assert_eq!(owner.access(&file, ALL), 0);
    assert_eq!(owner.chmod(&file, 0o711), 0);
    assert_eq!(other.read(&file, 0, 4), Ok((b"more".to_vec(), true)));
    assert_eq!(other.access(&file, ALL), EXECUTE);

    let dir = owner.mkdir(&root, b"dir", 0o755).expect("mkdir");
    assert_eq!(other.create(&dir, b"x", 0o600), Err(13));
    assert_eq!(other.mkdir(&dir, b"x", 0o700), Err(13));
    assert_eq!(owner.create(&dir, b"mine", 0o666).map(drop), Ok(()));
    assert_eq!(other.remove(REMOVE, &dir, b"mine"), 13);
    assert_eq!(other.rename((&dir, b"mine"), (&root, b"mine")), 13);
    assert_eq!(owner.chmod(&dir, 0o700), 0);
    assert_eq!(other.lookup(&dir, b"mine"), Err(13));
}

#[test]
fn only_owners_change_attributes() {
    let (_, owner) = Client::new(Config { squash: Squash::None, ..Config::default() });
    let root = owner.root();
    let file = owner.create(&root, b"file", 0o644).expect("create");
    let (other, admin) = (owner.user(3000, 300), owner.user(0, 0));
    assert_eq!(other.chmod(&file, 0o777), 1);
    assert_eq!(owner.chown(&file, Some(3000), None), 1);
    assert_eq!(owner.chown(&file, None, Some(300)), 1);
    // Group 7 is one of its groups.
    assert_eq!(owner.chown(&file, None, Some(7)), 0);
    // Set-group-id is only for groups of the owner, and a new owner gets no privileges.
    assert_eq!(owner.user(1000, 7).chmod(&file, 0o6755), 0);
    assert_eq!(owner.mode(&file), 0o6755);
    assert_eq!(admin.chown(&file, Some(3000), Some(300)), 0);
    assert_eq!(owner.attr(&file).expect("attributes")[1..5], [0o755, 1, 3000, 300]);
    let times = |client: &Client, how: u32| {
        client.set(&file, |out| {
            out.u32(0).u32(0).u32(0).u32(0).u32(0).u32(how);
            if how == 2 {
                out.u32(5).u32(6);
            }
        })
    };
    assert_eq!((times(&owner, 2), times(&owner, 1)), (1, 13));
    assert_eq!((times(&other, 2), times(&other, 1)), (0, 0));
    // A write by another takes privileges away.
    assert_eq!(other.chmod(&file, 0o4777), 0);
    assert_eq!(owner.write(&file, 0, b"x", 0).0, 0);
    assert_eq!(owner.mode(&file), 0o777);
}

#[test]
fn root_is_squashed_unless_it_is_not() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let squashed = client.user(0, 0).create(&root, b"squashed", 0o600).expect("create");
    assert_eq!(client.attr(&squashed).expect("attributes")[3..5], [65534, 65534]);
    let secret = client.create(&root, b"secret", 0o600).expect("create");
    assert_eq!(client.user(0, 0).read(&secret, 0, 1), Err(13));

    let config = Config { squash: Squash::All, anonymous_uid: 5, ..Config::default() };
    let (_, client) = Client::new(config);
    let file = client.create(&client.root(), b"file", 0o600).expect("create");
    assert_eq!(client.attr(&file).expect("attributes")[3..5], [5, 65534]);

    let (_, client) = Client::new(Config { squash: Squash::None, ..Config::default() });
    let root = client.root();
    let secret = client.create(&root, b"secret", 0).expect("create");
    assert_eq!(client.user(0, 0).read(&secret, 0, 1).map(drop), Ok(()));
}

/// The number that stands for none is no owner: a caller with it is the anonymous user, and none is
/// given it.
#[test]
fn no_file_belongs_to_the_number_that_stands_for_none() {
    let (_, client) = Client::new(Config { squash: Squash::None, ..Config::default() });
    let root = client.root();
    let none = client.user(u32::MAX, u32::MAX);
    let file = none.create(&root, b"file", 0o600).expect("create");
    assert_eq!(client.attr(&file).expect("attributes")[3..5], [65534, 65534]);
    let admin = client.user(0, 0);
    assert_eq!(admin.chown(&file, Some(u32::MAX), None), 22);
    assert_eq!(admin.chown(&file, None, Some(u32::MAX)), 22);
    for number in [CREATE, MKDIR] {
        let made = admin.make(number, &root, b"new", |out| {
            if number == CREATE {
                out.u32(0);
            }
            out.u32(0).u32(1).u32(u32::MAX).u32(0).u32(0).u32(0).u32(0);
        });
        assert_eq!(made, Err(22));
    }
    assert_eq!(admin.lookup(&root, b"new"), Err(2));
    assert_eq!(client.attr(&file).expect("attributes")[3..5], [65534, 65534]);
}

#[test]
fn a_sticky_directory_keeps_names_of_others() {
    let (_, owner) = Client::new(Config::default());
    let root = owner.root();
    let dir = owner.mkdir(&root, b"tmp", 0o1777).expect("mkdir");
    let (one, other) = (owner.user(2000, 200), owner.user(3000, 300));
    one.create(&dir, b"mine", 0o666).expect("create");
    other.create(&dir, b"theirs", 0o666).expect("create");
    assert_eq!(other.remove(REMOVE, &dir, b"mine"), 1);
    assert_eq!(other.rename((&dir, b"mine"), (&dir, b"x")), 1);
    assert_eq!(other.rename((&dir, b"theirs"), (&dir, b"mine")), 1);
    assert_eq!(one.remove(REMOVE, &dir, b"mine"), 0);
    assert_eq!(owner.remove(REMOVE, &dir, b"theirs"), 0);
}

#[test]
fn nothing_is_changed_through_a_read_only_export() {
    let device = device();
    let fs = open(&device);
    fs.set_permissions("/", 0o777).expect("chmod");
    fs.write_file("/file", b"data").expect("write");
    fs.set_permissions("/file", 0o666).expect("chmod");
    let client = Client::of(fs, Config { read_only: true, ..Config::default() });
    let root = client.root();
    let file = client.lookup(&root, b"file").expect("lookup");
    assert_eq!(client.read(&file, 0, 9), Ok((b"data".to_vec(), true)));
    assert_eq!(client.access(&file, ALL), READ_BIT);
    assert_eq!(client.create(&root, b"new", 0o600), Err(30));
    assert_eq!(client.mkdir(&root, b"new", 0o700), Err(30));
    assert_eq!(client.remove(REMOVE, &root, b"file"), 30);
    assert_eq!(client.rename((&root, b"file"), (&root, b"x")), 30);
    assert_eq!(client.write(&file, 0, b"x", 0).0, 30);
    assert_eq!((client.chmod(&file, 0), client.truncate(&file, 0)), (30, 30));
    let link = |out: &mut Out| {
        out.opaque(&file).opaque(&root).opaque(b"x");
    };
    assert_eq!(client.call(LINK, link).0, 30);
}

#[test]
fn no_name_and_no_handle_leads_out_of_a_subtree() {
    let device = device();
    let fs = open(&device);
    fs.create_dir_all("/pub/inner").expect("mkdir");
    fs.write_file("/secret", b"secret").expect("write");
    for path in ["/", "/pub", "/pub/inner", "/secret"] {
        fs.set_permissions(path, 0o777).expect("chmod");
    }
    let whole = Client::of(Arc::clone(&fs), Config::default());
    let secret = whole.lookup(&whole.root(), b"secret").expect("lookup");
    let config = Config { subtree: b"/pub".to_vec(), ..Config::default() };
    let client = Client::of(Arc::clone(&fs), config);
    let root = client.root();
    assert_eq!(client.lookup(&root, b".."), Ok(root.clone()));
    assert_eq!(client.mount(b"/../secret"), Err(2));
    assert_eq!(client.mount(b"/../.."), Ok(root.clone()));
    let inner = client.mount(b"/inner").expect("mount");
    assert_eq!(client.lookup(&inner, b".."), Ok(root));
    assert_eq!(client.attr(&secret), Err(10001));
    assert_eq!(whole.attr(&inner), Err(10001));
    let missing = Config { subtree: b"/none".to_vec(), ..Config::default() };
    assert!(Export::new(fs, missing).is_err());
}

/// A client that knows all that can be read of a volume cannot make a handle of its root.
#[test]
fn a_forged_handle_of_the_root_is_refused() {
    let device = device();
    let fs = open(&device);
    fs.create_dir_all("/pub").expect("mkdir");
    for path in ["/", "/pub"] {
        fs.set_permissions(path, 0o777).expect("chmod");
    }
    let uuid = fs.identity().expect("an identity").uuid;
    let config = Config { subtree: b"/pub".to_vec(), ..Config::default() };
    let client = Client::of(fs, config);
    let known = client.root();
    // The export's own handle tells the volume's digest, and the number of its root.
    let mut forged = known.clone();
    forged[12..16].copy_from_slice(&2u32.to_be_bytes());
    let sealed = |key: &[u8], forged: &[u8]| {
        let seal = Sha256::new().chain_update(key).chain_update(&forged[..20]).finalize();
        [&forged[..20], &seal[..12]].concat()
    };
    let root = &known[12..20];
    for key in [
        Sha256::new()
            .chain_update(b"extol handle")
            .chain_update(uuid)
            .chain_update(root)
            .finalize(),
        Sha256::new().chain_update(b"extol handle").chain_update(uuid).finalize(),
    ] {
        assert_eq!(client.attr(&sealed(&key, &forged)), Err(10001));
    }
    assert_eq!(client.attr(&forged), Err(10001));
    assert!(client.attr(&known).is_ok());
}

/// Without a secret that is kept, handles end with the server; with one they do not.
#[test]
fn handles_are_as_good_as_their_secret() {
    let device = device();
    let fs = open(&device);
    let export = |secret| {
        let config = Config { secret, ..Config::default() };
        Export::new(Arc::clone(&fs) as _, config).expect("export")
    };
    let id = export(None).root.attr.id;
    let of = |secret: Option<Secret>| export(secret).handle(id);
    assert_ne!(of(None), of(None));
    let kept = Secret::random().expect("random bytes");
    assert_eq!(of(Some(kept.clone())), of(Some(kept)));
}
