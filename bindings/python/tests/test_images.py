"""Building, checking, recovering."""

from __future__ import annotations

import pathlib
import tarfile

import extol
import pytest
from conftest import fsck


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_bytes(b"x" * 100_000)
    (tree / "link").symlink_to("sub/file")
    return tree


def test_from_a_directory_and_an_archive(tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told: list[tuple[int, int]] = []
    one, other = tmp_path / "one.img", tmp_path / "other.img"
    assert extol.build(one, tree, label="built", progress=lambda *at: told.append(at)) == []
    assert told and all(done <= total for done, total in told)
    fsck(one)
    with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
        archive.add(tree, ".")
    extol.build(other, tmp_path / "tree.tar.gz", free=8 << 20)
    fsck(other)
    assert one.stat().st_size + (7 << 20) < other.stat().st_size
    for image in (one, other):
        with extol.open(image, read_only=True) as volume:
            assert volume.read_bytes("/link") == b"x" * 100_000
    again = tmp_path / "again.img"
    extol.build(again, tree, label="built")
    assert again.read_bytes() == one.read_bytes()
    extol.build(again, tree, 32 << 20)
    assert again.stat().st_size == 32 << 20


def test_stopped(tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        extol.build(tmp_path / "new.img", tree, progress=stop)
    assert not (tmp_path / "new.img").exists()
    with pytest.raises(OSError, match="volume needs"):
        extol.build(tmp_path / "new.img", tree, 64 << 10)
    with pytest.raises(OSError):
        extol.build(tmp_path / "new.img", tmp_path / "none")
    assert not (tmp_path / "new.img").exists()


def test_damage_is_found(image: pathlib.Path) -> None:
    with extol.open(image) as volume:
        volume.write_bytes("/a", b"x")
    report = extol.check(image)
    assert report.clean and report == extol.Report(True, report.findings)
    data = bytearray(image.read_bytes())
    # The bitmap of blocks of the first group, by its descriptor.
    block = 1024 << int.from_bytes(data[1024 + 24 : 1024 + 28], "little")
    descriptors = 2048 if block == 1024 else block
    bitmap = int.from_bytes(data[descriptors : descriptors + 4], "little") * block
    data[bitmap] ^= 1
    image.write_bytes(data)
    report = extol.check(image)
    assert not report.clean and any(found.is_error and found.what for found in report.findings)
