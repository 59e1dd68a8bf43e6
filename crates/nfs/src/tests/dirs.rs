//! Lists of directories.

use std::collections::BTreeSet;

use super::*;

/// An entry of a list.
struct Entry {
    name: Vec<u8>,
    cookie: u64,
    handle: Option<Handle>,
}

/// A part of a list, the verifier, and whether it is the last.
fn part(
    client: &Client,
    dir: &Handle,
    (cookie, verifier): (u64, [u8; 8]),
    most: u32,
    plus: bool,
) -> Result<(Vec<Entry>, [u8; 8], bool), u32> {
    let number = if plus { READDIRPLUS } else { READDIR };
    let (status, rest) = client.call(number, |out| {
        out.opaque(dir).u64(cookie).fixed(&verifier);
        if plus {
            out.u32(most);
        }
        out.u32(most);
    });
    if status != 0 {
        return Err(status);
    }
    assert!(rest.len() <= most as usize, "{} of {most} bytes", rest.len());
    let mut args = Args::new(&rest[4 + ATTR..]);
    let verifier = args.fixed().expect("a verifier");
    let mut entries = Vec::new();
    while args.bool().expect("a word") {
        args.u64().expect("a number");
        let name = args.opaque(255).expect("a name").to_vec();
        let cookie = args.u64().expect("a cookie");
        let mut handle = None;
        if plus {
            if args.bool().expect("a word") {
                args.fixed::<ATTR>().expect("attributes");
            }
            let its_handle = args.optional(|args| args.opaque(64)).expect("a handle");
            handle = its_handle.map(<[u8]>::to_vec);
        }
        entries.push(Entry { name, cookie, handle });
    }
    let is_end = args.bool().expect("a word");
    assert_eq!(args.end(), Ok(()));
    Ok((entries, verifier, is_end))
}

#[test]
fn every_name_is_listed_once_in_parts_of_any_size() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let dir = client.mkdir(&root, b"dir", 0o755).expect("mkdir");
    let mut expected = BTreeSet::from([b".".to_vec(), b"..".to_vec()]);
    for number in 0..400 {
        let name = format!("a name that is not short {number}").into_bytes();
        client.create(&dir, &name, 0o600).expect("create");
        expected.insert(name);
    }
    for (most, plus) in [(300, false), (4096, false), (1 << 20, false), (500, true), (9000, true)] {
        let (mut seen, mut at) = (BTreeSet::new(), (0, [0; 8]));
        loop {
            let (entries, verifier, is_end) = part(&client, &dir, at, most, plus).expect("a list");
            for entry in &entries {
                assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name);
                if let Some(handle) = &entry.handle {
                    assert_eq!(client.lookup(&dir, &entry.name).as_ref(), Ok(handle));
                } else {
                    assert!(!plus || entry.name.starts_with(b"."));
                }
            }
            if is_end {
                break;
            }
            at = (entries.last().expect("an entry").cookie, verifier);
        }
        assert_eq!(seen, expected, "{most} bytes");
    }
}

#[test]
fn what_cannot_be_listed() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let whole = (0, [0; 8]);
    assert_eq!(part(&client, &root, whole, 100, false).map(drop), Err(10005));
    let (entries, _, _) = part(&client, &root, whole, 4096, false).expect("a list");
    let foreign = (entries[0].cookie, [9; 8]);
    assert_eq!(part(&client, &root, foreign, 4096, false).map(drop), Err(10003));
    let file = client.create(&root, b"file", 0o600).expect("create");
    assert_eq!(part(&client, &file, whole, 4096, true).map(drop), Err(20));
    let dir = client.mkdir(&root, b"dir", 0o711).expect("mkdir");
    client.create(&dir, b"inside", 0o600).expect("create");
    let other = client.user(2000, 200);
    assert_eq!(part(&other, &dir, whole, 4096, true).map(drop), Err(13));
    // Names without the right to what they lead to.
    assert_eq!(client.chmod(&dir, 0o744), 0);
    let (entries, _, _) = part(&other, &dir, whole, 4096, true).expect("a list");
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|entry| entry.handle.is_none()));
}
