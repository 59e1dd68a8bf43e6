"""What a caller names a file of a volume by."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from ._volume import Volume

# The path is not one of a file that is there.
LEADS_NOWHERE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)

Text = Union[str, bytes]


class OfVolume:
    """A path of one volume. It is no `os.PathLike`: functions of the host (`open`, `shutil.rmtree`)
    would take it for a path of the host, and read or delete what has that name there."""

    __slots__ = ()

    def _place(self) -> tuple[Volume, Text]:
        """The volume, and the path on it."""
        raise NotImplementedError


VolumePath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", OfVolume]
"""What functions of a volume take."""
StrVolumePath = Union[str, "os.PathLike[str]", OfVolume]
"""The same, where it is put together with other names."""


def text(volume: Volume, path: VolumePath) -> Text:
    """The path as text. One of another volume is refused: the same name means another file here."""
    if not isinstance(path, OfVolume):
        return os.fspath(path)
    its, found = path._place()
    if its is not volume:
        raise ValueError(f"{path!r} is a path of another volume")
    return found
