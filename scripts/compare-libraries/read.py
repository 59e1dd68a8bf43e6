"""The jobs in Python: read.py extol|dissect|pytsk3 list|hash IMAGE, or extract IMAGE DIRECTORY.

Prints how many files and directories there are, the bytes of files, and a digest that does not
depend on the order.
"""

import os
import stat
import struct
import sys
import zlib

PIECE = 1 << 20


def with_extol(image):
    """The path, mode, size and time of each file, and a function that gives pieces of it."""
    import extol

    def pieces(path):
        with volume.open(path, "rb", buffering=0) as file:
            while data := file.read(PIECE):
                yield data

    def walk(directory):
        for entry in volume.scandir(directory):
            found = entry.stat(follow_symlinks=False)
            path = entry.path
            yield path, found.st_mode, found.st_size, int(found.st_mtime), lambda: pieces(path)
            if entry.is_dir(follow_symlinks=False):
                yield from walk(path)

    with extol.open(image, read_only=True) as volume:
        yield from walk(b"/")


def with_dissect(image):
    """The same with dissect.extfs."""
    from dissect.extfs import ExtFS

    def pieces(inode):
        file = inode.open()
        while data := file.read(PIECE):
            yield data

    def walk(directory, above):
        for inode in directory.iterdir():
            if inode.filename in (".", ".."):
                continue
            path = above + b"/" + os.fsencode(inode.filename)
            found = inode.inode
            mtime = inode.mtime_ns // 1_000_000_000
            yield path, found.i_mode, inode.size, mtime, lambda: pieces(inode)
            if stat.S_ISDIR(found.i_mode):
                yield from walk(inode, path)

    with open(image, "rb") as file:
        yield from walk(ExtFS(file).get("/"), b"")


def with_pytsk3(image):
    """The same with pytsk3."""
    import pytsk3

    # (It shows a directory of its own, of files that have no name.)
    own = b"$OrphanFiles"

    def pieces(file, size):
        at = 0
        while at < size:
            data = file.read_random(at, min(PIECE, size - at))
            at += len(data)
            yield data

    def walk(directory, above):
        for file in directory:
            name = file.info.name.name
            # What has no attributes, or is not used, is a name that was removed.
            meta = file.info.meta
            removed = meta is None or not int(meta.flags) & pytsk3.TSK_FS_META_FLAG_ALLOC
            if name in (b".", b"..", own) or removed:
                continue
            path = above + b"/" + name
            is_dir = meta.type == pytsk3.TSK_FS_META_TYPE_DIR
            kind = stat.S_IFDIR if is_dir else stat.S_IFREG
            size = meta.size
            yield path, kind | int(meta.mode), size, meta.mtime, lambda: pieces(file, size)
            if is_dir:
                yield from walk(file.as_directory(), path)

    yield from walk(pytsk3.FS_Info(pytsk3.Img_Info(image)).open_dir("/"), b"")


def main():
    """Does one job."""
    library, job, image, *to = sys.argv[1:]
    walk = {"extol": with_extol, "dissect": with_dissect, "pytsk3": with_pytsk3}[library]
    target = os.fsencode(to[0]) if job == "extract" else b""
    found = all_bytes = digest = 0
    for path, mode, size, mtime, pieces in walk(image):
        found += 1
        crc = zlib.crc32(path)
        if job == "list":
            crc = zlib.crc32(struct.pack("<IQq", mode & 0o7777, size, mtime), crc)
        elif job == "extract" and stat.S_ISDIR(mode):
            os.mkdir(target + path)
        elif job == "extract":
            with open(target + path, "wb", buffering=0) as file:
                for piece in pieces():
                    file.write(piece)
        elif stat.S_ISREG(mode):
            for piece in pieces():
                crc = zlib.crc32(piece, crc)
        if stat.S_ISREG(mode):
            all_bytes += size
        digest += crc
    print(found, all_bytes, digest)


main()
