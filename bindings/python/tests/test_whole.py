"""Volumes that are not open, and archives of those that are."""

from __future__ import annotations

import errno
import io
import pathlib
import tarfile

import extol
import pytest
from conftest import fsck


def test_what_it_is(image: pathlib.Path) -> None:
    found = extol.info(image)
    assert (found.label, found.state, found.needs_recovery) == ("tested", "clean", False)
    assert found.blocks * found.block_size == 32 << 20 and "fast_commit" in found.features
    assert len(found.uuid) == 36 and found.created > 1_700_000_000
    with extol.open(image):
        assert extol.info(image).uuid == found.uuid
    with pytest.raises(FileNotFoundError) as missing:
        extol.info("none.img")
    assert missing.value.filename == "none.img"


def test_larger_and_smaller(image: pathlib.Path) -> None:
    with extol.open(image) as volume:
        volume.write_bytes("/a", b"x" * 100_000)
        with pytest.raises(OSError) as busy:
            extol.resize(image, 64 << 20)
        assert busy.value.errno == errno.EBUSY and busy.value.filename == str(image)
    assert extol.resize(image, 64 << 20) == 64 << 20 == image.stat().st_size
    fsck(image)
    told: list[tuple[int, int]] = []
    least = extol.resize(image, minimum=True, progress=lambda *at: told.append(at))
    assert least == image.stat().st_size < 32 << 20
    with pytest.raises(OSError) as small:
        extol.resize(image, 4096)
    assert small.value.errno == errno.ENOSPC
    with extol.open(image, read_only=True) as volume:
        assert volume.read_bytes("/a") == b"x" * 100_000
    fsck(image)


def test_a_damaged_one_stays_as_it_is(image: pathlib.Path) -> None:
    data = bytearray(image.read_bytes())
    block = 1024 << int.from_bytes(data[1024 + 24 : 1024 + 28], "little")
    descriptors = 2048 if block == 1024 else block
    bitmap = int.from_bytes(data[descriptors : descriptors + 4], "little") * block
    data[bitmap] ^= 1
    image.write_bytes(data)
    with pytest.raises(OSError, match="damaged"):
        extol.resize(image, 64 << 20)
    with pytest.raises(OSError, match="damaged"):
        extol.tune(image, features="^resize_inode")
    assert image.read_bytes() == data


def test_properties(image: pathlib.Path) -> None:
    changes, notes = extol.tune(image, label="a label that is too long", uuid="clear")
    found = extol.info(image)
    assert found.label == "a label that is "
    assert found.uuid == "0" * 8 + "-0000" * 3 + "-" + "0" * 12
    assert any("cut" in note for note in notes)
    assert found.label in [change.after for change in changes]
    extol.tune(image, features="^fast_commit", journal=None)
    assert "fast_commit" not in extol.info(image).features
    fsck(image)
    for wrong in ({"features": "no_such"}, {"uuid": "x"}, {"extended": "frob"}):
        with pytest.raises(OSError) as refused:
            extol.tune(image, **wrong)  # type: ignore[arg-type]
        assert refused.value.errno == errno.EINVAL


def test_archives(volume: extol.Volume) -> None:
    volume.makedirs("/dir/sub")
    volume.write_bytes("/dir/file", b"x" * 5000)
    volume.write_bytes("/dir/file.o", b"left out")
    volume.symlink("file", "/dir/link")
    volume.chown("/dir/file", 1000, 100)
    out = io.BytesIO()
    assert volume.tar(out, volume.path("/dir"), exclude=["*.o"]) == []
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        assert sorted(archive.getnames()) == [".", "./file", "./link", "./sub"]
        member = archive.getmember("./file")
        assert (member.uid, member.gid, member.size) == (1000, 100, 5000)
    # One file, by its own name.
    out = io.BytesIO()
    volume.tar(out, "/dir/file")
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        assert archive.getnames() == ["file"]

    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError) as full:
        volume.tar(Full())
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(FileNotFoundError) as missing:
        volume.tar(io.BytesIO(), "/none")
    assert missing.value.filename == "/none"
    with pytest.raises(OSError, match="exclude"):
        volume.tar(io.BytesIO(), exclude=["/"])
