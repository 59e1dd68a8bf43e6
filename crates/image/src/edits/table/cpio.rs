//! Lists of gen_init_cpio, by which kernels are built with files in them.

use extol_vfs::Rdev;

use super::{Item, Line, What, id, mode, number, text, words};

/// What a line may begin with.
pub(super) const WORDS: [&[u8]; 6] = [b"file", b"dir", b"nod", b"slink", b"pipe", b"sock"];

pub(super) fn line(line: &[u8], items: &mut Vec<Item>) -> Line<()> {
    let fields: Vec<&[u8]> = words(line).collect();
    let usage = |usage: &str| Err(format!("is not: {usage}"));
    // The place of the mode, behind which stand owner and group.
    let (what, at) = match fields[..] {
        [b"file", _, _, _, _, _, ref links @ ..] => {
            // The contents come from the source; the place on the host says nothing.
            for link in links {
                let path = link.to_vec();
                items.push(Item { path, what: What::File, ..Item::default() });
            }
            (What::File, 3)
        }
        [b"file", ..] => return usage("file NAME PLACE MODE UID GID [LINK...]"),
        [b"dir", _, _, _, _] => (What::Dir, 2),
        [b"dir", ..] => return usage("dir NAME MODE UID GID"),
        [b"nod", _, _, _, _, kind, major, minor] => {
            let rdev = Rdev {
                major: number("the major number", major)?,
                minor: number("the minor number", minor)?,
            };
            match kind {
                b"c" => (What::Char(rdev), 2),
                b"b" => (What::Block(rdev), 2),
                _ => return Err(format!("the type '{}' is neither c nor b", text(kind))),
            }
        }
        [b"nod", ..] => return usage("nod NAME MODE UID GID TYPE MAJOR MINOR"),
        [b"slink", _, target, _, _, _] => (What::Symlink(target.to_vec()), 3),
        [b"slink", ..] => return usage("slink NAME TARGET MODE UID GID"),
        [b"pipe", _, _, _, _] => (What::Fifo, 2),
        [b"pipe", ..] => return usage("pipe NAME MODE UID GID"),
        [b"sock", _, _, _, _] => (What::Socket, 2),
        [b"sock", ..] => return usage("sock NAME MODE UID GID"),
        _ => {
            let first = fields.first().copied().unwrap_or_default();
            return Err(format!("'{}' is none of file dir nod slink pipe sock", text(first)));
        }
    };
    items.push(Item {
        path: fields[1].to_vec(),
        what,
        mode: Some(mode(fields[at])?),
        uid: Some(id("the owner", fields[at + 1])?),
        gid: Some(id("the group", fields[at + 2])?),
        ..Item::default()
    });
    Ok(())
}
