"""Volumes that are not open: what they are, their size, their properties."""

from __future__ import annotations

import os
from typing import Callable, NamedTuple, Optional, Union

from . import _extol

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Info(NamedTuple):
    """What a volume is, by its superblock."""

    label: str
    uuid: str
    features: list[str]
    """As mke2fs spells them."""
    state: str
    """Such as `"clean"`."""
    needs_recovery: bool
    """The journal has work in it."""
    error_count: int
    """Errors that are recorded."""
    block_size: int
    blocks: int
    free_blocks: int
    reserved_blocks: int
    """Kept for root."""
    inodes: int
    free_inodes: int
    inode_size: int
    journal_blocks: Optional[int]
    last_mounted: str
    """The directory."""
    created: int
    """In seconds since 1970, as are the others."""
    mounted: int
    written: int
    checked: int


class Change(NamedTuple):
    """A property that has changed."""

    name: str
    before: str
    after: str


def info(name: StrPath) -> Info:
    """What a volume is. It may be in use.

    >>> import extol, tempfile
    >>> image = tempfile.mkdtemp() + "/disk.img"
    >>> extol.mkfs(image, 16 << 20, label="data")
    >>> found = extol.info(image)
    >>> found.label, found.state, found.blocks * found.block_size
    ('data', 'clean', 16777216)
    """
    return Info(**_extol.info(os.fsencode(name)))


def resize(
    name: StrPath,
    size: Optional[int] = None,
    *,
    minimum: bool = False,
    options: str = "",
    force: bool = False,
    progress: Optional[Callable[[int, int], object]] = None,
) -> int:
    """Makes a volume, which is not in use, larger or smaller, and gives its new size in bytes.

    Without a `size` it is as large as its device, and with `minimum` as small as what is in use
    allows. A disk image becomes as long. A damaged volume is refused, unless `force`. What
    `progress` raises stops the work; the volume is sound then, and has a size in between.

    >>> import extol, tempfile
    >>> image = tempfile.mkdtemp() + "/disk.img"
    >>> extol.mkfs(image, 16 << 20)
    >>> extol.resize(image, 32 << 20)
    33554432
    """
    return _extol.resize(os.fsencode(name), size, minimum, options, force, progress)


def tune(
    name: StrPath,
    *,
    label: Optional[str] = None,
    uuid: Optional[str] = None,
    features: Optional[str] = None,
    extended: Optional[str] = None,
    journal: Optional[str] = None,
    options: str = "",
    force: bool = False,
) -> tuple[list[Change], list[str]]:
    """Changes properties of a volume that is not in use, as `extol tune` does: `-L`, `-U`, `-O`,
    `-E` and `-J`. Gives what has changed, and what should be known of it.

    >>> import extol, tempfile
    >>> image = tempfile.mkdtemp() + "/disk.img"
    >>> extol.mkfs(image, 16 << 20)
    >>> changes, notes = extol.tune(image, label="data")
    >>> [change.after for change in changes], notes
    (['data'], [])
    """
    changes, notes = _extol.tune(
        os.fsencode(name),
        {
            "label": None if label is None else os.fsencode(label),
            "uuid": uuid,
            "features": features,
            "extended": extended,
            "journal": journal,
        },
        options,
        force,
    )
    return [Change(*change) for change in changes], notes
