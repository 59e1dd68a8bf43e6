"""Files: those of io."""

from __future__ import annotations

import array
import io
import pathlib
import random
import threading

import extol
import pytest


def test_modes(volume: extol.Volume) -> None:
    with volume.open("/a", "w") as file:
        assert isinstance(file, io.TextIOWrapper)
        file.write("one\ntwo\n")
    with volume.open("/a") as file:
        assert file.mode == "r" and list(file) == ["one\n", "two\n"]
    with volume.open("/a", "a") as file:
        file.write("three\n")
    with volume.open("/a", "+rb") as file:
        assert isinstance(file, io.BufferedRandom)
        file.seek(4)
        file.write(b"TWO")
        assert file.read() == b"\nthree\n"
    with volume.open("/a", "rb", buffering=0) as file:
        assert isinstance(file, io.RawIOBase)
        assert file.readall() == b"one\nTWO\nthree\n"
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with pytest.raises(FileExistsError):
        volume.open("/a", "x")
    with volume.open("/new", "x+", permissions=0o600) as file:
        file.write("x")
    assert volume.stat("/new").st_mode & 0o7777 == 0o600
    with volume.open("/a", "wb"):
        pass
    assert volume.stat("/a").st_size == 0
    for mode in ("", "b", "rw", "rbt", "z", "r++x", "r++", "rbb"):
        with pytest.raises(ValueError, match="mode"):
            volume.open("/a", mode)
    with pytest.raises(ValueError, match="encoding"):
        volume.open("/a", "rb", encoding="utf-8")
    with pytest.raises(ValueError, match="unbuffered"):
        volume.open("/a", "r", buffering=0)
    with volume.open("/a", "w", newline="\r\n", encoding="utf-16-le") as file:
        file.write("ä\n")
    assert volume.read_bytes("/a") == "ä\r\n".encode("utf-16-le")


def test_types_are_those_of_the_builtin(volume: extol.Volume) -> None:
    """Statically as well: mypy compares the declared types with what `open` is said to give."""
    path = volume.path("/a")
    text: io.TextIOWrapper = volume.open("/a", "w")
    text.close()
    reader: io.BufferedReader = volume.open("/a", "rb")
    writer: io.BufferedWriter = path.open("ab")
    both: io.BufferedRandom = path.open("r+b")
    raw: extol.File = volume.open("/a", "rb", buffering=0)
    other: extol.File = path.open("rb", 0)
    raw.fsync()
    again: io.TextIOWrapper = path.open()
    kinds = [
        (text, io.TextIOWrapper),
        (reader, io.BufferedReader),
        (writer, io.BufferedWriter),
        (both, io.BufferedRandom),
        (raw, extol.File),
        (other, extol.File),
        (again, io.TextIOWrapper),
    ]
    for file, kind in kinds:
        assert type(file) is kind
        file.close()


def test_appends_do_not_overwrite_each_other(volume: extol.Volume) -> None:
    def work(nr: int) -> None:
        with volume.open("/log", "ab", buffering=0) as file:
            for at in range(200):
                assert file.write(b"%d %03d\n" % (nr, at)) == 6

    threads = [threading.Thread(target=work, args=(nr,)) for nr in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = volume.read_bytes("/log").splitlines()
    assert sorted(lines) == [b"%d %03d" % (nr, at) for nr in range(4) for at in range(200)]


def test_raw(volume: extol.Volume) -> None:
    with volume.open("/a", "w+b", buffering=0) as file:
        assert file.write(array.array("i", [1, 2])) == 8
        assert file.write(memoryview(b"0123456789")[::1]) == 10
        assert (file.tell(), file.seek(-2, io.SEEK_END), file.read(100)) == (18, 16, b"89")
        assert file.read(1) == b"" and file.readall() == b""
        buffer = bytearray(4)
        assert (file.seek(8), file.readinto(buffer), bytes(buffer)) == (8, 4, b"0123")
        assert file.pread(2, 10) == b"23" and file.tell() == 12
        assert file.pwrite(b"xy", 100) == 2
        assert (file.truncate(50), file.seek(0, io.SEEK_END)) == (50, 50)
        assert file.pread(1 << 40, 18) == bytes(32)
        for wrong in (-1, 1 << 70):
            with pytest.raises(OSError):
                file.seek(wrong)
            with pytest.raises(OSError):
                file.truncate(wrong)
        with pytest.raises(TypeError):
            file.pwrite(5, 0)  # type: ignore[arg-type]  # not five zeros
        with pytest.raises(ValueError, match="whence"):
            file.seek(0, 9)
        file.fsync()
        file.fdatasync()
        assert file.mode == "wb+" and "'/a'" in repr(file)
    assert file.closed
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_threads_share_a_position(volume: extol.Volume) -> None:
    with volume.open("/a", "wb", buffering=0) as file:
        threads = [
            threading.Thread(target=lambda: [file.write(b"line\n") for _ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert volume.read_bytes("/a") == b"line\n" * 800


def test_random_work(volume: extol.Volume, tmp_path: pathlib.Path) -> None:
    """Beside a file of the host."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    host = tmp_path / "host"
    with open(host, "w+b") as one, volume.open("/a", "w+b") as other:
        for _ in range(400):
            what = rng.randrange(4)
            at, size = rng.randrange(200_000), rng.randrange(20_000)
            if what == 0:
                data = rng.randbytes(size)
                assert one.seek(at) == other.seek(at)
                assert one.write(data) == other.write(data)
            elif what == 1:
                assert one.seek(at) == other.seek(at)
                assert one.read(size) == other.read(size), seed
            elif what == 2:
                one.flush()
                other.flush()
                assert one.truncate(at) == other.truncate(at)
            else:
                assert one.tell() == other.tell(), seed
    assert host.read_bytes() == volume.read_bytes("/a"), seed


def test_synced_is_there_after_a_crash(image: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "copy.img"
    with extol.open(image) as volume:
        with volume.open("/synced", "wb", buffering=0) as file:
            file.write(b"x" * 5000)
            file.fsync()
        copy.write_bytes(image.read_bytes())
    with extol.open(copy, read_only=True) as volume:
        assert volume.read_bytes("/synced") == b"x" * 5000
    assert extol.check(copy).clean
    assert extol.replay(copy) is True and extol.replay(copy) is False
    with extol.open(copy) as volume:
        assert volume.read_bytes("/synced") == b"x" * 5000
