//! The client, on an export of a volume in memory.

use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_vfs::FileSystem as _;

use super::*;
use crate::target::{Library, Target};

fn address(socket: SocketAddr) -> Address {
    Address { socket, handle: None, delay: Duration::ZERO }
}

#[test]
fn what_a_client_does_is_on_the_volume() {
    let device = Arc::new(MemDevice::new(32 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let fs = Ext4::open(device, &MountOptions::default()).unwrap();
    let serving = Serving::start(Arc::clone(&fs)).unwrap();
    let client = Client::new(&address(serving.address)).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    client.create_dir("dir").unwrap();
    let file = client.create("dir/file").unwrap();
    file.write_at(&data, 0).unwrap();
    file.write_at(b"xyz", 1_500_000).unwrap();
    file.sync(false).unwrap();
    file.write_at(b"late", 10).unwrap();
    drop(file);
    client.link("dir/file", "link").unwrap();
    client.symlink("dir", "soft").unwrap();
    client.chmod("link", 0o600).unwrap();
    client.set_times("link", 1_000_000).unwrap();
    client.touch("touched").unwrap();
    assert!(client.create("touched").is_err());
    client.rename("dir", "other").unwrap();
    client.remove("touched").unwrap();
    assert_eq!(client.open("touched").err().unwrap().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(client.list("").unwrap(), 4);
    assert_eq!(client.size_of("other/file").unwrap(), 3_000_000);
    client.sync().unwrap();
    // Another client has none of it in its memory.
    let other = Client::new(&address(serving.address)).unwrap();
    let mut expected = data;
    expected[1_500_000..1_500_003].copy_from_slice(b"xyz");
    expected[10..14].copy_from_slice(b"late");
    for target in [&other as &dyn Target, &Library::new(Arc::clone(&fs))] {
        let file = target.open("other/file").unwrap();
        let mut read = vec![0; expected.len()];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), read.len());
        assert!(read == expected);
        let entries = target.entries("other").unwrap();
        assert!(entries.iter().any(|item| item.name == "file" && !item.is_dir));
    }
    let attr = fs.metadata("link").unwrap();
    assert_eq!((attr.perm, attr.mtime.sec), (0o600, 1_000_000));
    drop(serving);
    fs.sync().unwrap();
    fs.unmount().unwrap();
}

#[test]
fn addresses_have_a_delay_and_a_handle() {
    let address = Address::parse("127.0.0.1:2049,delay_us=300,handle=01fF").unwrap();
    assert_eq!(address.socket, "127.0.0.1:2049".parse().unwrap());
    assert_eq!((address.delay, address.handle), (Duration::from_micros(300), Some(vec![1, 255])));
    for text in ["", "localhost", "127.0.0.1:1,x", "127.0.0.1:1,handle=f", "1.1.1.1:1,delay_us=x"] {
        assert!(Address::parse(text).is_err(), "{text}");
    }
    assert_eq!(
        split_delay("fast_commit,delay_us=7").unwrap(),
        (Duration::from_micros(7), "fast_commit".into())
    );
}
