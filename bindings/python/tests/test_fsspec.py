"""The file system of fsspec, by itself and by fsspec's own tests."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import extol
import fsspec
import fsspec.tests.abstract as abstract
import pytest
from conftest import fsck
from extol.fsspec import ExtolFileSystem


def test_addresses(image: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with fsspec.open(f"ext4://dir/notes.txt::{image}", "w") as file:
        file.write("hello")
    fs = fsspec.filesystem("extol", fo=str(image))
    assert isinstance(fs, ExtolFileSystem)
    assert fs.cat("dir/notes.txt") == b"hello" and fs.isfile("/dir/notes.txt")
    assert fs.ls("", detail=False) == ["dir", "lost+found"]
    assert fs.find("/dir") == ["dir/notes.txt"] and fs.glob("*/*.txt") == ["dir/notes.txt"]
    assert fs.modified("dir/notes.txt").year >= 2026
    # What was written is durable when its file is closed, and a volume is open once.
    copy = tmp_path / "copy.img"
    with fs.open("dir/more.txt", "wb") as file:
        file.write(b"more")
    copy.write_bytes(image.read_bytes())
    with extol.open(copy, read_only=True) as volume:
        assert volume.read_bytes("/dir/more.txt") == b"more"
    other = fsspec.filesystem("ext4", fo=str(image), read_only=True)
    assert fs.volume is other.volume
    with pytest.raises(OSError, match="[Rr]ead-only"):
        other.pipe("x", b"x")
    other.close()
    # It is opened again when it is used.
    assert fs.cat("dir/more.txt") == b"more" and not fs.volume.closed
    fs.volume.symlink("notes.txt", "/dir/link")
    assert fs.info("dir/link")["islink"] and fs.info("dir/link")["size"] == 5
    fs.volume.symlink("self", "/self")
    assert fs.ls("", detail=True)[-1]["type"] == "link" and "self" in fs.glob("*")
    with pytest.raises(shutil.SameFileError):
        fs.copy("dir/notes.txt", "dir/notes.txt")
    assert fs.cat("dir/link") == b"hello"
    with pytest.raises(NotImplementedError), fs.transaction, fs.open("x", "wb"):
        pass
    fs.rm("dir/mo?e.txt")
    fs.rm("/self")
    assert fs.find("") == ["dir/link", "dir/notes.txt"]
    fs.close()
    fs.close()
    fsck(image)
    # The caller's volume stays open.
    with extol.open(image) as volume:
        ExtolFileSystem(volume).close()
        assert not volume.closed


def test_an_image_of_another_file_system(image: pathlib.Path) -> None:
    with extol.open(image) as volume:
        volume.write_bytes("/a", b"hello")
    memory = fsspec.filesystem("memory")
    memory.pipe("/disk.img", image.read_bytes())
    with fsspec.open("ext4://a::memory://disk.img", "rb", ext4={"read_only": True}) as file:
        assert file.read() == b"hello"


def test_arguments() -> None:
    with pytest.raises(ValueError, match="which volume"):
        ExtolFileSystem()


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, tmp_path: pathlib.Path) -> Iterator[ExtolFileSystem]:
        image = tmp_path / "fs.img"
        extol.mkfs(image, 32 << 20)
        fs = ExtolFileSystem(str(image), skip_instance_cache=True)
        yield fs
        fs.close()
        fsck(image)

    @pytest.fixture
    def fs_path(self) -> str:
        return "work"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *args: "/".join(args)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class HostFixtures(Fixtures):
    @pytest.fixture
    def local_fs(self) -> Any:
        return fsspec.filesystem("file", auto_mkdir=True)

    @pytest.fixture
    def local_path(self, tmp_path: pathlib.Path) -> str:
        return str(tmp_path / "local")

    @pytest.fixture
    def local_join(self) -> Any:
        return lambda *args: "/".join(args)


class TestGet(abstract.AbstractGetTests, HostFixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, HostFixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass
