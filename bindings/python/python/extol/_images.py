"""Making, recovering and checking volumes."""

from __future__ import annotations

import os
from typing import Callable, NamedTuple, Optional, Union

from . import _extol

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Finding(NamedTuple):
    """One thing that a check found."""

    is_error: bool
    """False: worth knowing, but no damage."""
    kind: str
    """What kind, in snake_case: the kinds of `extol check --json`."""
    what: str
    """What exactly, as a sentence."""
    inode: Optional[int]
    block: Optional[int]
    path: Optional[str]


class Report(NamedTuple):
    """The result of a check."""

    clean: bool
    """True if there are no errors."""
    findings: list[Finding]


def mkfs(
    path: StrPath,
    size: Optional[int] = None,
    *,
    label: Optional[str] = None,
    features: Optional[str] = None,
    extended: Optional[str] = None,
    uuid: Optional[str] = None,
    block_size: Optional[int] = None,
    inodes: Optional[int] = None,
) -> None:
    """Makes an empty volume in a file or on a block device, whose contents are lost.

    `size` is in bytes; a file that is there keeps its size without it. `features`, `extended` and
    `uuid` are `-O`, `-E` and `-U` of mkfs.ext4, such as `"fast_commit,^64bit"`.

    >>> import extol, tempfile
    >>> path = tempfile.mkdtemp() + "/disk.img"
    >>> extol.mkfs(path, 16 << 20, features="fast_commit")
    """
    _extol.mkfs(
        os.fsencode(path), (label, features, extended, uuid), (size, block_size, inodes)
    )


def build(
    path: StrPath,
    source: StrPath,
    size: Optional[int] = None,
    *,
    free: int = 0,
    label: Optional[str] = None,
    features: Optional[str] = None,
    extended: Optional[str] = None,
    uuid: Optional[str] = None,
    block_size: Optional[int] = None,
    inodes: Optional[int] = None,
    source_date_epoch: Optional[int] = None,
    progress: Optional[Callable[[int, int], object]] = None,
) -> list[str]:
    """Builds a volume with the files of `source`: a directory, an archive (tar, also compressed) or
    the layout of a container image.

    Without a `size` the volume is as large as its files need, and `free` bytes more. The same files
    give the same bytes. `progress` is called with what is done and with all of it, in bytes or
    files; what it raises stops the work. Returns a line for each thing that was taken in another
    way than the source says.

    >>> import extol, pathlib, tempfile
    >>> work = pathlib.Path(tempfile.mkdtemp())
    >>> (work / "tree").mkdir()
    >>> _ = (work / "tree" / "file").write_text("text")
    >>> extol.build(work / "new.img", work / "tree")
    []
    """
    return _extol.build(
        os.fsencode(path),
        os.fsencode(source),
        (label, features, extended, uuid),
        (size, block_size, inodes),
        free,
        source_date_epoch,
        progress,
    )


def replay(name: StrPath, options: str = "") -> bool:
    """Replays the journal of a volume on it, and finishes what was being deleted. True if it was
    needed. (`open` does it by itself, with `read_only=True` in memory.)"""
    return _extol.replay(os.fsencode(name), options)


def check(name: StrPath) -> Report:
    """Compares a volume with itself, as `e2fsck -fn` does. Nothing is changed; a journal with work
    in it is replayed in memory first."""
    clean, found = _extol.check(os.fsencode(name))
    return Report(clean, [Finding(*finding) for finding in found])
