"""Open files."""

from __future__ import annotations

import errno
import io
import os
import threading
from typing import TYPE_CHECKING, Any, Optional

from . import _extol

if TYPE_CHECKING:
    from ._volume import Volume

_STEP = 1 << 30


def _raw_bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else memoryview(data).cast("B").tobytes()


class File(io.RawIOBase):
    """An open file without a buffer. `Volume.open` makes it, and puts a buffer before it unless it
    is told not to."""

    name: Any
    mode: str

    def __init__(self, volume: Volume, raw: _extol.RawFile, how: str, name: Any) -> None:
        # A volume stays open as long as one of its files is used.
        self._volume = volume
        self._raw = raw
        self._at = 0
        # For the position: calls on the volume let other threads run.
        self._lock = threading.RLock()
        self._readable = how[0] == "r" or "+" in how
        self._writable = how[0] != "r" or "+" in how
        self._append = how[0] == "a"
        self._sync_on_close = False
        self.name = name
        self.mode = how[0] + "b" + how[1:]
        if self._append:
            self._at = raw.size()

    @classmethod
    def _open(
        cls, volume: Volume, path: bytes, how: str, permissions: int, name: Any
    ) -> File:
        first, both = how[0], "+" in how
        raw = volume._raw.open_file(
            path,
            read=first == "r" or both,
            write=first != "r" or both,
            create=first in "wa",
            exclusive=first == "x",
            truncate=first == "w",
            mode=permissions,
        )
        volume._handles.add(raw)
        return cls(volume, raw, how, name)

    def readable(self) -> bool:
        self._check()
        return self._readable

    def writable(self) -> bool:
        self._check()
        return self._writable

    def seekable(self) -> bool:
        self._check()
        return True

    def _check(self, may: bool = True, what: str = "") -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not may:
            raise io.UnsupportedOperation(f"the file is not open for {what}")

    def read(self, size: Optional[int] = -1) -> bytes:
        """Reads up to `size` bytes, or all that follow; fewer only at the end of the file."""
        if size is None or size < 0:
            return self.readall()
        self._check(self._readable, "reading")
        with self._lock:
            data = self.pread(size, self._at)
            self._at += len(data)
        return data

    def readall(self) -> bytes:
        """Reads all that follows."""
        self._check(self._readable, "reading")
        pieces: list[bytes] = []
        with self._lock:
            while data := self._raw.pread(_STEP, self._at):
                self._at += len(data)
                pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer from the position."""
        self._check(self._readable, "reading")
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        """Writes at the position; fewer bytes only if the volume gets full."""
        self._check(self._writable, "writing")
        raw = _raw_bytes(data)
        with self._lock:
            if self._append:
                at, n = self._raw.append(raw)
            else:
                at, n = self._at, self._raw.pwrite(raw, self._at)
            self._at = at + n
        return n

    def pread(self, size: int, offset: int) -> bytes:
        """Reads at an offset; the position stays."""
        self._check(self._readable, "reading")
        data = self._raw.pread(min(size, _STEP), offset)
        while len(data) < size and len(data) % _STEP == 0 and data:
            more = self._raw.pread(min(size - len(data), _STEP), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, data: bytes, offset: int) -> int:
        """Writes at an offset; the position stays."""
        self._check(self._writable, "writing")
        return self._raw.pwrite(_raw_bytes(data), offset)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position."""
        self._check()
        with self._lock:
            if whence == io.SEEK_CUR:
                offset += self._at
            elif whence == io.SEEK_END:
                offset += self._raw.size()
            elif whence != io.SEEK_SET:
                raise ValueError(f"invalid whence: {whence}")
            self._at = self._offset(offset)
        return offset

    @staticmethod
    def _offset(offset: int) -> int:
        if not 0 <= offset < 1 << 63:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return offset

    def tell(self) -> int:
        """The position."""
        self._check()
        return self._at

    def truncate(self, size: Optional[int] = None) -> int:
        """Sets the size; the position stays."""
        self._check(self._writable, "writing")
        size = self._offset(self._at if size is None else size)
        self._raw.truncate(size)
        return size

    def fsync(self) -> None:
        """Makes the file durable: contents, attributes, and the names that lead to it."""
        self._check()
        self._raw.sync(False)

    def fdatasync(self) -> None:
        """Makes the contents durable, with those attributes that reading them needs."""
        self._check()
        self._raw.sync(True)

    def close(self) -> None:
        """Closes the file; a second time does nothing."""
        if not self.closed:
            try:
                if self._sync_on_close and self._writable:
                    self._raw.sync(False)
            finally:
                try:
                    super().close()
                finally:
                    self._raw.close()

    def __repr__(self) -> str:
        return f"<extol.File {self.name!r} {self.mode!r}>"
