"""Opening volumes."""

from __future__ import annotations

import io
import os
import stat as modes
from typing import Any, Optional

from . import _extol
from ._volume import Volume


def open(  # noqa: A001
    name: Any, options: str = "", *, read_only: bool = False
) -> Volume:
    """Opens a volume: a disk image, a block device, a partition of one (`"disk.img:2"`), a tag
    (`"LABEL=data"`), an address (`"nbd://host/export"`), or an open binary file that can be sought.

    A journal with work in it is replayed; with `read_only` that is done in memory if the device is
    not to be written. `options` are those of `mount -o`.
    """
    is_file = hasattr(name, "seek") and hasattr(name, "read")
    writable = not read_only and (not is_file or name.writable())
    if not writable:
        options = read_only_options(options)
    if not is_file:
        return Volume(_extol.RawVolume.open(os.fsencode(name), options))
    if (path := _path_of(name)) is not None:
        if writable:
            name.flush()
        return Volume(_extol.RawVolume.open(path, options))
    size = name.seek(0, io.SEEK_END)
    return Volume(_extol.RawVolume.of_file(name, size, writable, options))


def read_only_options(options: str) -> str:
    """These options, for reading."""
    return f"ro,{options}" if options else "ro"


def _path_of(file: Any) -> Optional[bytes]:
    """A way to the file or device of the host that a file object is, which is used by itself then:
    it is locked, and made durable, as one that is opened by its name."""
    try:
        number = file.fileno()
        mode = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    return b"/proc/self/fd/%d" % number if modes.S_ISREG(mode) or modes.S_ISBLK(mode) else None
