"""ext4 volumes in user space: no mount, no root, no kernel driver.

>>> import extol, tempfile, pathlib
>>> image = pathlib.Path(tempfile.mkdtemp()) / "disk.img"
>>> extol.mkfs(image, 16 << 20, label="example")
>>> with extol.open(image) as volume:
...     volume.makedirs("/etc/app")
...     with volume.open("/etc/app/greeting", "w") as file:
...         _ = file.write("hello\\n")
...     volume.symlink("app/greeting", "/etc/motd")
>>> with extol.open(image, read_only=True) as volume:
...     print(volume.open("/etc/motd").read(), end="")
...     print(sorted(volume.listdir("/")))
hello
['etc', 'lost+found']
>>> extol.check(image).clean
True

Paths begin at the root of the volume, with or without a slash. They are `str`, `bytes` or
`os.PathLike`, or a `Path` or `DirEntry` of the volume, which functions of the host refuse.
Functions give names back as `bytes` where they were given `bytes`, as those of `os` do. No path
leads out of a volume. Errors are `OSError` and its subclasses, with Linux's errno.

A volume may be used by many threads. Whatever reads or writes runs without the GIL.
"""

from ._extol import __version__
from ._entries import DirEntry, StatVfs
from ._file import File
from ._images import Finding, Report, build, check, mkfs, replay
from ._open import open  # noqa: A004
from ._path import Path
from ._volume import Volume

__all__ = [
    "DirEntry",
    "File",
    "Finding",
    "Path",
    "Report",
    "StatVfs",
    "Volume",
    "__version__",
    "build",
    "check",
    "mkfs",
    "open",
    "replay",
]
