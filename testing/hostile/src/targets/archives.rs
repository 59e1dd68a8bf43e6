//! What images are made from: archives, container images.

use std::io::{Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use extol::image::source::{Source, TarSource};
use extol::image::tree::{Kind, Limits, Tree, TreeBuilder};
use sha2::{Digest as _, Sha256};

/// How much is read of each file.
const PART: usize = 64 << 10;
/// What an input may expand to: enough for every path, and soon reached.
const EXPAND: u64 = 4 << 20;
/// A pipe has room for so much, so that one thread can fill and drain it.
const PIPE: usize = 60 << 10;

/// A tar archive, plain or compressed, from a file and through a pipe. Both come to the same.
pub(super) fn tar(input: &[u8]) {
    let mut archive = input.to_vec();
    seal_headers(&mut archive);
    let mut file = temporary();
    file.write_all(&archive).expect("memory");
    file.rewind().expect("a file");
    let plain = scan(TarSource::from_file(file, b"input", Path::new("/dev/shm")));
    if archive.len() > PIPE {
        return;
    }
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&archive).expect("room");
    drop(writer);
    let file = OwnedFd::from(reader).into();
    let streamed = scan(TarSource::from_file(file, b"input", Path::new("/dev/shm")));
    assert_eq!(plain, streamed, "a file and a stream");
}

/// A saved image of some layers: parts of the input, each behind its length in blocks of 512 bytes.
/// The first byte says whether the list of the image is a part as well.
pub(super) fn oci(input: &[u8]) {
    let Some((&kind, mut rest)) = input.split_first() else { return };
    let mut parts = Vec::new();
    while let Some((&blocks, tail)) = rest.split_first() {
        let (part, tail) = tail.split_at(tail.len().min(usize::from(blocks) * 512));
        parts.push(part.to_vec());
        rest = tail;
    }
    let list = if kind & 1 == 1 { parts.pop() } else { None };
    let (mut archive, mut names, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (nr, layer) in parts.iter_mut().enumerate() {
        seal_headers(layer);
        let digest = Sha256::digest(&*layer);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        ids.push(format!("\"sha256:{hex}\""));
        names.push(format!("\"{nr}.tar\""));
        put_file(&mut archive, &format!("{nr}.tar"), layer);
    }
    let config = format!("{{\"rootfs\": {{\"diff_ids\": [{}]}}}}", ids.join(","));
    put_file(&mut archive, "c.json", config.as_bytes());
    let saved = format!("[{{\"Config\": \"c.json\", \"Layers\": [{}]}}]", names.join(","));
    let list = list.unwrap_or_else(|| saved.into_bytes());
    put_file(&mut archive, if kind & 2 == 2 { "index.json" } else { "manifest.json" }, &list);
    if kind & 2 == 2 {
        put_file(&mut archive, "oci-layout", b"{}");
    }
    let mut file = temporary();
    file.write_all(&archive).expect("memory");
    file.rewind().expect("a file");
    let _ = scan(TarSource::from_file(file, b"input", Path::new("/dev/shm")));
}

/// One more file of an archive.
fn put_file(archive: &mut Vec<u8>, name: &str, contents: &[u8]) {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o}\0", contents.len()).as_bytes());
    header[156] = b'0';
    header[257..262].copy_from_slice(b"ustar");
    seal_headers(&mut header);
    archive.extend_from_slice(&header);
    archive.extend_from_slice(contents);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

/// Headers are taken only with the right checksum.
fn seal_headers(archive: &mut [u8]) {
    for header in archive.chunks_exact_mut(512) {
        let is_header = header[257..262] == *b"ustar" || header[148..156] == *b"checksum";
        if is_header {
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

fn temporary() -> std::fs::File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("input", flags).expect("memory").into()
}

/// Lists a source and reads its files. What it says, or why it is refused.
fn scan<S: Source>(source: Result<S, extol::image::BuildError>) -> Result<String, String> {
    let mut limits = Limits::default();
    limits.expand = EXPAND;
    limits.entries = 10_000;
    limits.meta_bytes = 4 << 20;
    let mut tree = TreeBuilder::new(limits);
    let scanned = source.and_then(|mut source| source.scan(&mut tree).map(|()| source));
    match scanned {
        Ok(source) => Ok(walk(&source, &tree.finish())),
        Err(error) => {
            let line = error.to_string();
            assert!(line.len() < 4000 && !line.contains('\n'), "{line}");
            Err(line)
        }
    }
}

/// All of a tree as text; on the way, what must hold for every tree.
fn walk(source: &dyn Source, tree: &Tree) -> String {
    let mut out = String::new();
    let mut links = vec![0; tree.len()];
    for (dir, node) in tree.nodes() {
        let mut last = None;
        for (name, child) in tree.children(dir) {
            assert!(node.kind.is_dir() && !name.is_empty() && name.len() <= 255);
            assert!(name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0));
            assert!(last < Some(name), "names are sorted and there once");
            last = Some(name);
            links[child.0 as usize] += 1;
            out += &format!("{dir:?} {name:?} {child:?}\n");
        }
    }
    let mut buf = vec![0; PART];
    for (id, node) in tree.nodes() {
        let is_root = id == tree.root();
        let names = links[id.0 as usize];
        assert!(if node.kind.is_dir() {
            names == u32::from(!is_root)
        } else {
            names == node.nlink
        });
        assert!(node.meta.mode <= 0o7777);
        let mut data = 0;
        if let Kind::File { size, data: place } = node.kind {
            let mut reader = source.reader(place).expect("a reader");
            for at in [0, size / 2, size.saturating_sub(PART as u64), size, u64::MAX] {
                let len = reader.read_at(at, &mut buf).expect("what was listed is there");
                assert_eq!(len as u64, size.saturating_sub(at).min(PART as u64));
                data = buf[..len]
                    .iter()
                    .fold(data, |sum: u64, &byte| sum * 31 % 997 + u64::from(byte));
                let run = reader.data_from(at).expect("a map");
                assert!(run.is_none_or(|run| run.start >= at && run.start < run.end));
            }
            reader.end().expect("unchanged");
        }
        let meta = node.meta;
        let xattrs = tree.xattrs(meta.xattrs);
        out += &format!("{:?} {meta:?} {data} {xattrs:?}\n", without_place(node.kind));
    }
    for (_, node) in tree.nodes() {
        if let Kind::Symlink(target) = node.kind {
            assert!((1..=4095).contains(&tree.bytes(target).len()));
        }
    }
    out
}

/// A kind without what depends on the source.
fn without_place(kind: Kind) -> String {
    match kind {
        Kind::File { size, .. } => format!("{size} bytes"),
        other => format!("{other:?}"),
    }
}
