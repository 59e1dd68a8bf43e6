"""Building, checking, recovering."""

from __future__ import annotations

import errno
import pathlib
import tarfile
from typing import Any

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
    with pytest.raises(FileExistsError):
        extol.build(again, tree, 32 << 20)
    assert again.read_bytes() == one.read_bytes()
    extol.build(again, tree, 32 << 20, force=True)
    assert again.stat().st_size == 32 << 20


def test_what_is_there_is_not_overwritten_without_a_word(
    image: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with extol.open(image) as volume:
        volume.write_bytes("/a", b"x")
        # While it is open nothing helps.
        for force in (False, True):
            with pytest.raises(OSError) as refused:
                extol.mkfs(image, force=force)
            assert refused.value.errno == errno.EBUSY
            assert refused.value.filename == str(image)
    was = image.read_bytes()
    with pytest.raises(FileExistsError, match="an ext4 file system labelled 'tested'") as there:
        extol.mkfs(image, 64 << 20)
    assert there.value.filename == str(image) and str(there.value).count(str(image)) == 1
    assert image.read_bytes() == was
    # Nor what is no file system, but is known.
    other = tmp_path / "other"
    other.write_bytes(b"QFI\xfb" + bytes(4 << 20))
    with pytest.raises(FileExistsError, match="a qcow2 image"):
        extol.mkfs(other)
    # What holds nothing that is known is made a volume of as before.
    (tmp_path / "zeros").write_bytes(bytes(8 << 20))
    extol.mkfs(tmp_path / "zeros")
    extol.mkfs(image, 64 << 20, label="new", force=True)
    fsck(image)
    assert image.stat().st_size == 64 << 20
    with extol.open(image, read_only=True) as volume:
        assert not volume.exists("/a")


def test_files_are_changed_on_their_way(tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    image = tmp_path / "new.img"
    how: dict[str, Any] = {"owner": "1000:100", "root_owner": "7", "exclude": ["link", b"none"]}
    extol.build(image, tree, mtime=1_234_567_890, **how)
    with extol.open(image, read_only=True) as volume:
        found = volume.stat("/sub/file")
        assert (found.st_uid, found.st_gid, found.st_mtime) == (1000, 100, 1_234_567_890)
        assert volume.stat("/").st_uid == 7 and not volume.exists("/link")
    extol.build(image, tree, mtime="2024-02-29", force=True)
    with extol.open(image, read_only=True) as volume:
        assert volume.stat("/sub").st_mtime == 1_709_164_800 and volume.islink("/link")
    for wrong in ({"owner": "root"}, {"mtime": "today"}, {"exclude": ["/"]}):
        with pytest.raises(OSError) as refused:
            extol.build(tmp_path / "other.img", tree, **wrong)
        assert refused.value.errno == errno.EINVAL


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
