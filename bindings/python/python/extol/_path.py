"""Paths of a volume, with the methods of `pathlib`."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Optional, Union, overload

from ._names import OfVolume, StrVolumePath, Text, VolumePath, text

if TYPE_CHECKING:
    import io

    from _typeshed import (
        OpenBinaryMode,
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
    )

    from ._file import File
    from ._volume import Volume


class Path(OfVolume):
    """A path of a volume: what `pathlib.Path` is for the host.

    Its methods and the functions of its volume take it. It is no `os.PathLike`, so `open` and
    `shutil.rmtree` of the host refuse it; `str(path)` is its text.

    >>> import extol, tempfile
    >>> image = tempfile.mkdtemp() + "/disk.img"
    >>> extol.mkfs(image, 16 << 20)
    >>> volume = extol.open(image)
    >>> home = volume.path("/home")
    >>> home.mkdir()
    >>> _ = (home / "notes.txt").write_text("hello")
    >>> [path.name for path in home.iterdir()], (home / "notes.txt").stat().st_size
    (['notes.txt'], 5)
    """

    __slots__ = ("_pure", "volume")

    def __init__(self, volume: Volume, *parts: StrVolumePath) -> None:
        self.volume = volume
        """The volume."""
        self._pure = PurePosixPath("/", *map(self._text, parts))

    def _text(self, other: VolumePath) -> str:
        return os.fsdecode(text(self.volume, other))

    def _of(self, pure: PurePosixPath) -> Path:
        path = object.__new__(type(self))
        path.volume, path._pure = self.volume, pure
        return path

    def _place(self) -> tuple[Volume, Text]:
        return self.volume, str(self._pure)

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"extol.Path({str(self._pure)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self.volume is other.volume and self._pure == other._pure

    def __lt__(self, other: Path) -> bool:
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash((id(self.volume), self._pure))

    def __truediv__(self, other: StrVolumePath) -> Path:
        return self.joinpath(other)

    def joinpath(self, *others: StrVolumePath) -> Path:
        """This path, with others below it."""
        return self._of(self._pure.joinpath(*map(self._text, others)))

    @property
    def name(self) -> str:
        """The last name."""
        return self._pure.name

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its point."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the name."""
        return self._pure.suffixes

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return self._pure.stem

    @property
    def parts(self) -> tuple[str, ...]:
        """The names, the root first."""
        return self._pure.parts

    @property
    def parent(self) -> Path:
        """The directory above."""
        return self._of(self._pure.parent)

    @property
    def parents(self) -> list[Path]:
        """All directories above, the nearest first."""
        return [self._of(pure) for pure in self._pure.parents]

    def relative_to(self, other: StrVolumePath) -> PurePosixPath:
        """The way from another path to this one."""
        return self._pure.relative_to(PurePosixPath("/", self._text(other)))

    def is_relative_to(self, other: StrVolumePath) -> bool:
        """True if it lies below another path."""
        return self._pure.is_relative_to(PurePosixPath("/", self._text(other)))

    def match(self, pattern: str) -> bool:
        """True if the path is as a pattern says."""
        return self._pure.match(pattern)

    def with_name(self, name: str) -> Path:
        """With another name."""
        return self._of(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Path:
        """With another name, and the same suffix."""
        return self._of(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Path:
        """With another suffix."""
        return self._of(self._pure.with_suffix(suffix))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes."""
        return self.volume.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """Attributes of a link itself."""
        return self.volume.lstat(self)

    def as_posix(self) -> str:
        """The path as text."""
        return str(self)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """True if it leads to something; without following, if there is such a name."""
        return self.volume.exists(self) or (not follow_symlinks and self.is_symlink())

    def is_dir(self) -> bool:
        """True for a directory, or a link to one."""
        return self.volume.isdir(self)

    def is_file(self) -> bool:
        """True for a regular file, or a link to one."""
        return self.volume.isfile(self)

    def is_symlink(self) -> bool:
        """True for a symbolic link."""
        return self.volume.islink(self)

    def samefile(self, other: StrVolumePath) -> bool:
        """True if both lead to the same file."""
        if isinstance(other, Path) and other.volume is not self.volume:
            return False
        return self.stat().st_ino == self.volume.stat(other).st_ino

    def iterdir(self) -> Iterator[Path]:
        """What is in the directory."""
        for name in self.volume.listdir(self):
            yield self / name

    def walk(self, top_down: bool = True) -> Iterator[tuple[Path, list[str], list[str]]]:
        """Directories below, as of `Volume.walk`."""
        for here, dirs, files in self.volume.walk(self, topdown=top_down):
            yield self._of(PurePosixPath(here)), dirs, files

    def glob(self, pattern: str) -> Iterator[Path]:
        """What lies below and is as a pattern says; `**` is any directories."""
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        seen: set[Path] = set()
        for path in self._glob(parts):
            if path not in seen:
                seen.add(path)
                yield path

    def rglob(self, pattern: str) -> Iterator[Path]:
        """The same, with `**` before it."""
        return self.glob(f"**/{pattern}")

    def _glob(self, parts: tuple[str, ...]) -> Iterator[Path]:
        if not parts:
            yield self
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            yield from self._glob(rest)
        if not any(mark in first for mark in "*?["):
            below = self / first
            if below.volume.exists(below) or below.is_symlink():
                yield from below._glob(rest)
            return
        if not self.is_dir():
            return
        for entry in sorted(self.volume.scandir(self), key=lambda entry: os.fsencode(entry.name)):
            name = os.fsdecode(entry.name)
            if first == "**":
                if entry.is_dir(follow_symlinks=False):
                    yield from (self / name)._glob(parts)
            elif fnmatchcase(name, first):
                yield from (self / name)._glob(rest)

    @overload
    def open(
        self,
        mode: OpenTextMode = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(self, mode: OpenBinaryMode, buffering: Literal[0]) -> File: ...
    @overload
    def open(
        self, mode: OpenBinaryModeUpdating, buffering: Literal[-1, 1] = -1
    ) -> io.BufferedRandom: ...
    @overload
    def open(
        self, mode: OpenBinaryModeWriting, buffering: Literal[-1, 1] = -1
    ) -> io.BufferedWriter: ...
    @overload
    def open(
        self, mode: OpenBinaryModeReading, buffering: Literal[-1, 1] = -1
    ) -> io.BufferedReader: ...
    @overload
    def open(self, mode: OpenBinaryMode, buffering: int = -1) -> Union[File, io.BufferedIOBase]: ...
    @overload
    def open(
        self,
        mode: str,
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> Any: ...
    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> Any:
        """Opens the file, as of `Volume.open`."""
        return self.volume.open(self, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """The contents."""
        return self.volume.read_bytes(self)

    def read_text(self, encoding: str = "utf-8", errors: Optional[str] = None) -> str:
        """The contents as text."""
        with self.open("r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_bytes(self, data: bytes) -> int:
        """Replaces the contents."""
        return self.volume.write_bytes(self, data)

    def write_text(
        self, data: str, encoding: str = "utf-8", errors: Optional[str] = None
    ) -> int:
        """Replaces the contents by a text."""
        with self.open("w", encoding=encoding, errors=errors) as file:
            return file.write(data)

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Makes an empty file, or sets the times of the one that is there."""
        if exist_ok and self.exists():
            self.volume.utime(self)
            return
        how = "ab" if exist_ok else "xb"
        self.volume.open(self, how, permissions=mode).close()

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory."""
        if parents:
            self.volume.makedirs(self, mode, exist_ok)
            return
        try:
            self.volume.mkdir(self, mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        """Removes the directory, which is empty."""
        self.volume.rmdir(self)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the name of a file."""
        try:
            self.volume.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: StrVolumePath) -> Path:
        """Renames; returns the new path."""
        new = self._of(PurePosixPath("/", self._text(target)))
        self.volume.rename(self, new)
        return new

    replace = rename

    def symlink_to(self, target: StrVolumePath) -> None:
        """Makes this path a symbolic link."""
        self.volume.symlink(target, self)

    def hardlink_to(self, target: StrVolumePath) -> None:
        """Makes this path another name of a file."""
        self.volume.link(target, self)

    def readlink(self) -> PurePosixPath:
        """The target of a symbolic link."""
        return PurePosixPath(self.volume.readlink(str(self)))

    def chmod(self, mode: int) -> None:
        """Sets the permission bits."""
        self.volume.chmod(self, modes.S_IMODE(mode))
