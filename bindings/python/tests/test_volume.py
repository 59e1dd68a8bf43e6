"""Volumes: the functions of os, and their errors."""

from __future__ import annotations

import errno
import gc
import io
import os
import pathlib
import stat
import subprocess
import sys
import threading
import time

import extol
import pytest
from conftest import fsck


def test_attributes(volume: extol.Volume) -> None:
    volume.write_bytes("/a", b"hello")
    volume.chmod("/a", 0o4711)
    volume.chown("/a", 1000)
    volume.utime("/a", ns=(-1, 1_600_000_000_123_456_789))
    found = volume.stat("/a")
    assert stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o4711
    assert (found.st_size, found.st_uid, found.st_gid, found.st_nlink) == (5, 1000, 0, 1)
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1, 1_600_000_000_123_456_789)
    assert found.st_mtime == pytest.approx(1_600_000_000.123456789)
    assert found[stat.ST_MTIME] == 1_600_000_000 and found.st_blocks == 2
    assert found.st_blksize == volume.statvfs().f_bsize
    # A time that nanoseconds in 64 bits do not reach.
    late = 12_000_000_000 * 10**9 + 1
    volume.utime("/a", ns=(late, 0))
    found = volume.stat("/a")
    assert (found.st_atime_ns, found.st_atime, found[stat.ST_ATIME]) == (late, 12e9, 12 * 10**9)
    volume.utime("/a", (1.5, 2.5))
    assert volume.stat("/a").st_mtime_ns == 2_500_000_000
    with pytest.raises(ValueError, match="at once"):
        volume.utime("/a", (1, 2), ns=(1, 2))
    volume.mknod("/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    found = volume.stat("/null")
    assert stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)
    sizes = volume.statvfs()
    assert sizes.f_bsize in (1024, 4096) and sizes.f_bfree > 1000 and sizes.f_namemax == 255


def test_names(volume: extol.Volume) -> None:
    volume.makedirs("/a/b/c")
    volume.makedirs("/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        volume.makedirs("/a/b/c")
    volume.write_bytes("/a/file", b"x")
    with pytest.raises(FileExistsError):
        volume.makedirs("/a/file", exist_ok=True)
    volume.link("/a/file", "/a/b/same")
    volume.symlink("b/same", "/a/link")
    assert volume.readlink("/a/link") == "b/same" and volume.readlink(b"/a/link") == b"b/same"
    assert volume.islink("/a/link") and volume.isfile("/a/link") and not volume.isdir("/a/link")
    assert sorted(volume.listdir("/a")) == ["b", "file", "link"]
    assert sorted(volume.listdir(b"/a")) == [b"b", b"file", b"link"]
    with volume.scandir("/a") as entries:
        kinds = {e.name: (e.is_dir(), e.is_file(), e.is_symlink(), e.path) for e in entries}
    assert kinds["link"] == (False, True, True, "/a/link")
    assert kinds["b"] == (True, False, False, "/a/b")
    assert [top for top, _, _ in volume.walk("/a")] == ["/a", "/a/b", "/a/b/c"]
    assert [top for top, _, _ in volume.walk("/a", topdown=False)] == ["/a/b/c", "/a/b", "/a"]
    volume.rename("/a/file", "/a/renamed")
    volume.exchange("/a/renamed", "/a/b")
    assert volume.isdir("/a/renamed") and volume.isfile("/a/b")
    with pytest.raises(OSError, match="empty") as full:
        volume.rmdir("/a")
    assert full.value.errno == errno.ENOTEMPTY
    volume.rmtree("/a")
    assert not volume.exists("/a")
    # Bytes that are no UTF-8 come back as they went in.
    odd = os.fsdecode(b"/\xff\xfe")
    volume.write_bytes(odd, b"odd")
    assert b"\xff\xfe" in volume.listdir(b"/") and volume.read_bytes(odd) == b"odd"


def test_attributes_of_users(volume: extol.Volume) -> None:
    volume.write_bytes("/a", b"")
    volume.setxattr("/a", "user.one", b"\0\1")
    assert volume.listxattr("/a") == ["user.one"] and volume.getxattr("/a", "user.one") == b"\0\1"
    with pytest.raises(FileExistsError):
        volume.setxattr("/a", "user.one", b"", os.XATTR_CREATE)
    volume.removexattr("/a", b"user.one")
    with pytest.raises(OSError) as none:
        volume.getxattr("/a", "user.one")
    assert none.value.errno == errno.ENODATA


def test_errors_are_those_of_os(volume: extol.Volume, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        volume.open("/none")
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, "/none")
    with pytest.raises(FileNotFoundError) as missing:
        volume.rename("/none", "/other")
    assert (missing.value.filename, missing.value.filename2) == ("/none", "/other")
    for wrong in (5, None, "text"):
        with pytest.raises(TypeError):
            volume.setxattr("/lost+found", "user.x", wrong)  # type: ignore[arg-type]
    assert not volume.exists("/" + "x" * 300)
    with pytest.raises(IsADirectoryError):
        volume.open("/lost+found")
    volume.symlink("self", "/self")
    assert [names for _, _, names in volume.walk("/")][0] == ["self"]
    assert volume.islink("/self") and not volume.exists("/self")
    with pytest.raises(NotADirectoryError):
        volume.write_bytes("/a", b"")
        volume.stat("/a/b")
    with pytest.raises(IsADirectoryError):
        volume.unlink("/lost+found")
    with pytest.raises(FileNotFoundError):
        extol.open(tmp_path / "none.img")
    with pytest.raises(OSError, match="frobnicate"):
        extol.open(tmp_path / "none.img", "frobnicate")
    (tmp_path / "zeros").write_bytes(bytes(1 << 20))
    with pytest.raises(OSError, match="zeros|ext"):
        extol.open(tmp_path / "zeros")
    with pytest.raises(OSError, match="no size"):
        extol.mkfs(tmp_path / "new.img")


def test_closed(image: pathlib.Path) -> None:
    volume = extol.open(image)
    file = volume.open("/a", "wb", buffering=0)
    file.write(b"x")
    volume.close()
    volume.close()
    assert volume.closed
    with pytest.raises(OSError, match="closed"):
        volume.listdir("/")
    with pytest.raises(OSError):
        file.write(b"y")
    file.close()
    fsck(image)
    # One that is forgotten is closed.
    volume = extol.open(image)
    volume.write_bytes("/b", b"x")
    del volume
    gc.collect()
    fsck(image)
    with extol.open(image, read_only=True) as volume:
        assert volume.read_only and volume.read_bytes("/b") == b"x"
        with pytest.raises(OSError) as refused:
            volume.write_bytes("/c", b"x")
        assert refused.value.errno == errno.EROFS


def test_on_a_file_of_python(image: pathlib.Path) -> None:
    memory = io.BytesIO(image.read_bytes())
    with extol.open(memory) as volume:
        volume.write_bytes("/in-memory", b"x" * 100_000)
    with extol.open(memory, read_only=True) as volume:
        assert volume.read_bytes("/in-memory") == b"x" * 100_000
    image.write_bytes(memory.getvalue())
    fsck(image)

    class Broken(io.BytesIO):
        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            raise RuntimeError("on purpose")

    with pytest.raises(OSError, match="on purpose"):
        extol.open(Broken(memory.getvalue()), read_only=True)
    with pytest.raises(OSError, match="truncated"):
        short = io.BytesIO(memory.getvalue()[: 1 << 20])
        with extol.open(short, read_only=True) as volume:
            volume.read_bytes("/in-memory")


def test_a_file_of_python_holds_one_volume(image: pathlib.Path) -> None:
    memory = io.BytesIO(image.read_bytes())
    with extol.open(memory) as volume:
        with pytest.raises(OSError) as refused:
            extol.open(memory)
        assert refused.value.errno == errno.EBUSY
        volume.write_bytes("/a", b"x")
    with extol.open(memory, read_only=True), extol.open(memory, read_only=True):
        pass
    with pytest.raises(FileNotFoundError):
        extol.build(image, "/no/such/directory")


def test_an_interrupt_in_a_file_of_python_is_raised_and_stops_nothing(image: pathlib.Path) -> None:
    class Interrupted(io.BytesIO):
        armed = 0

        def interrupt(self) -> None:
            # (As signals do, and not in threads of the library.)
            if self.armed and threading.current_thread() is threading.main_thread():
                self.armed -= 1
                raise KeyboardInterrupt

        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            self.interrupt()
            return super().read(size)

        def flush(self) -> None:
            self.interrupt()

    memory = Interrupted(image.read_bytes())
    with extol.open(memory) as volume:
        volume.write_bytes("/a", b"x" * 100_000)
        volume.write_bytes("/c", b"z" * 100_000)
    with extol.open(memory) as volume:
        memory.armed = 1
        with pytest.raises(KeyboardInterrupt):
            volume.read_bytes("/a")
        assert memory.armed == 0
        assert volume.read_bytes("/a") == b"x" * 100_000
        # They do not end.
        memory.armed = 1000
        with pytest.raises(KeyboardInterrupt):
            volume.read_bytes("/c")
        memory.armed = 0
        volume.write_bytes("/b", b"y")
    image.write_bytes(memory.getvalue())
    fsck(image)
    with extol.open(image) as volume:
        assert volume.read_bytes("/b") == b"y"


def test_dropped_while_an_exception_is_on_its_way(image: pathlib.Path) -> None:
    memory = io.BytesIO(image.read_bytes())

    def opened() -> extol.Volume:
        volume = extol.open(memory)
        volume.write_bytes("/a", b"x" * 5000)
        return volume

    with pytest.raises(ZeroDivisionError):
        [opened(), 1 / 0]
    gc.collect()
    with extol.open(memory, read_only=True) as volume:
        assert volume.read_bytes("/a") == b"x" * 5000


def test_a_volume_lives_as_long_as_its_files(image: pathlib.Path) -> None:
    def make() -> io.TextIOWrapper:
        volume = extol.open(image)
        file = volume.open("/a", "w")
        return file

    file = make()
    gc.collect()
    file.write("hello")
    file.close()
    del file
    gc.collect()
    fsck(image)
    # What is in a buffer is written when the volume is closed.
    with extol.open(image) as volume:
        assert volume.read_bytes("/a") == b"hello"
        file = volume.open("/b", "w")
        file.write("world")
    with extol.open(image) as volume:
        assert volume.read_bytes("/b") == b"world"
    with pytest.raises(OSError):
        file.write("more" * 100_000)
        file.flush()


PROGRAM = """
import extol, io, os, sys

class Memory(io.BytesIO):
    def flush(self):
        with os.fdopen(os.open(sys.argv[2], os.O_WRONLY), "wb") as file:
            file.write(self.getvalue())

image = sys.argv[1]
how = sys.argv[3]
with open(image, "rb") as file:
    volume = extol.open(Memory(file.read()) if how != "path" else sys.argv[2])
file = volume.open("/a", "w")
file.write("x" * 100_000)
if how == "closed":
    file.close()
if how == "path" and os.fork() == 0:
    try:
        volume.listdir("/")
    except OSError as error:
        assert "fork" in str(error), error
        sys.exit(0)
    sys.exit("the child used its parent's volume")
if how == "path":
    assert os.wait()[1] == 0
"""


@pytest.mark.parametrize("how", ["closed", "open", "path"])
def test_what_a_program_leaves_open_is_closed(
    image: pathlib.Path, tmp_path: pathlib.Path, how: str
) -> None:
    copy = tmp_path / "copy.img"
    copy.write_bytes(image.read_bytes())
    words = [sys.executable, "-c", PROGRAM, str(image), str(copy), how]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    fsck(copy)
    with extol.open(copy, read_only=True) as volume:
        assert volume.stat("/a").st_size == 100_000


def test_a_file_of_the_host_is_locked(image: pathlib.Path) -> None:
    with open(image, "r+b") as file, extol.open(file) as volume:
        volume.write_bytes("/a", b"x")
        with pytest.raises(OSError) as busy:
            extol.open(image)
        assert busy.value.errno == errno.EBUSY
    with open(image, "rb") as host, extol.open(host) as volume:
        assert volume.read_only and volume.read_bytes("/a") == b"x"


def test_many_threads(volume: extol.Volume) -> None:
    failed: list[BaseException] = []

    def work(nr: int) -> None:
        try:
            for n in range(50):
                volume.write_bytes(f"/{nr}-{n}", f"{nr} {n}".encode())
                with pytest.raises(FileNotFoundError):
                    volume.stat(f"/none-{nr}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(nr,)) for nr in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(volume.listdir("/")) == 201


def test_others_run_while_a_call_works(volume: extol.Volume) -> None:
    """The interpreter is free while the library works (PB-1)."""
    seen = 0
    state = ["begins"]
    data = bytes(20 << 20)

    def work() -> None:
        state[0] = "works"
        volume.write_bytes("/a", data)
        volume.sync()
        state[0] = "done"

    thread = threading.Thread(target=work)
    thread.start()
    while state[0] != "done":
        seen += state[0] == "works"
        time.sleep(0.0005)
    thread.join()
    # With the interpreter held, this thread would run at the borders of the calls only.
    assert seen > 10
