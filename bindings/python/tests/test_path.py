"""Paths: those of pathlib."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from typing import Any, Callable

import extol
import fsspec
import pytest
from extol.fsspec import ExtolFileSystem


def test_like_pathlib(volume: extol.Volume, tmp_path: pathlib.Path) -> None:
    host = tmp_path / "root"
    host.mkdir()

    def work(root: object) -> list[object]:
        seen: list[object] = []
        note = seen.append
        (root / "a" / "b").mkdir(parents=True)  # type: ignore[operator]
        (root / "a" / "b").mkdir(parents=True, exist_ok=True)  # type: ignore[operator]
        file = root / "a" / "x.tar.gz"  # type: ignore[operator]
        note(file.write_text("hello ä"))
        note((file.read_text(), file.read_bytes(), file.stat().st_size))
        note((file.name, file.suffix, file.suffixes, file.stem, file.parent.name))
        note((file.is_file(), file.is_dir(), file.exists(), file.is_symlink()))
        (root / "link").symlink_to("a")  # type: ignore[operator]
        (root / "hard").hardlink_to(file)  # type: ignore[operator]
        note(str((root / "link").readlink()))  # type: ignore[operator]
        note((root / "hard").samefile(file))  # type: ignore[operator]
        (root / "new").touch()  # type: ignore[operator]
        (root / "new").touch()  # type: ignore[operator]
        with pytest.raises(FileExistsError):
            (root / "new").touch(exist_ok=False)  # type: ignore[operator]
        note(sorted(p.name for p in root.iterdir()))  # type: ignore[attr-defined]
        for pattern in ("*", "a/*", "**/*.gz", "*/b", "**/b", "n?w", "none", "a/x.tar.gz"):
            found = root.glob(pattern)  # type: ignore[attr-defined]
            note((pattern, sorted(str(p.relative_to(root)) for p in found)))
        found = root.rglob("b")  # type: ignore[attr-defined]
        note(sorted(str(p.relative_to(root)) for p in found))
        note((root / "new").rename(root / "newer").name)  # type: ignore[operator]
        (root / "newer").unlink()  # type: ignore[operator]
        (root / "newer").unlink(missing_ok=True)  # type: ignore[operator]
        with pytest.raises(FileNotFoundError):
            (root / "newer").unlink()  # type: ignore[operator]
        (root / "a" / "b").rmdir()  # type: ignore[operator]
        note(file.with_suffix(".zip").name)
        note(file.with_name("y").name)
        note([str(file.parents[nr].relative_to(root)) for nr in (0, 1)])
        file.chmod(0o640)
        note(file.stat().st_mode & 0o777)
        return seen

    there = volume.path("/root")
    there.mkdir()
    assert work(there) == work(host)


def test_of_one_volume(volume: extol.Volume) -> None:
    a = volume.path("/a")
    assert a == volume.path("a") and hash(a) == hash(volume.path("/a")) and a != "/a"
    assert repr(a / "b") == "extol.Path('/a/b')" and sorted([a / "b", a]) == [a, a / "b"]
    with pytest.raises(ValueError, match="pattern"):
        list(a.glob("/x"))


def test_functions_of_the_host_refuse_it(volume: extol.Volume, tmp_path: pathlib.Path) -> None:
    """What has that name on the host is not touched."""
    host = tmp_path / "tree"
    host.mkdir()
    (host / "file").write_text("of the host")
    volume.makedirs(str(host))
    volume.write_bytes(str(host / "file"), b"of the volume")
    tree = volume.path(str(host))
    (entry,) = volume.scandir(str(host))
    volume.mkdir("/dirs")
    volume.mkdir("/dirs/one")
    (directory,) = volume.scandir("/dirs")
    calls: list[tuple[Callable[..., Any], list[Any]]] = [
        (open, [tree / "file"]),
        (open, [entry]),
        (os.remove, [tree / "file"]),
        (os.remove, [entry]),
        (os.listdir, [tree]),
        (os.stat, [entry]),
        (os.walk, [tree]),
        (shutil.rmtree, [tree]),
        (shutil.rmtree, [directory]),
        (shutil.copy, [tree / "file", tmp_path / "copy"]),
        (shutil.move, [tree, tmp_path / "moved"]),
        (pathlib.Path, [tree]),
        (pathlib.Path, [entry]),
        (subprocess.run, [["ls", tree]]),
        (extol.open, [tree / "file"]),
        (extol.mkfs, [tree / "file", 16 << 20]),
        (extol.build, [tmp_path / "new.img", tree]),
        (extol.check, [entry]),
        (extol.replay, [entry]),
    ]
    for function, arguments in calls:
        with pytest.raises(TypeError):
            found = function(*arguments)
            list(found)
    fs = ExtolFileSystem(volume)
    for path in (tree / "file", entry):
        with pytest.raises(TypeError):
            fs.cat(path)
        with pytest.raises(TypeError):
            fs.rm(path)
    for named in (tree, entry):
        assert not isinstance(named, os.PathLike)
    with pytest.raises((TypeError, AttributeError)):
        fsspec.open(tree / "file").open()
    assert (host / "file").read_text() == "of the host" and volume.exists(tree / "file")


def test_functions_of_its_volume_take_it(volume: extol.Volume, tmp_path: pathlib.Path) -> None:
    tree = volume.path("/tree")
    volume.mkdir(tree)
    with volume.open(tree / "file", "w") as file:
        file.write("hello")
    (entry,) = volume.scandir(tree)
    assert volume.stat(entry).st_size == 5 and volume.read_bytes(entry) == b"hello"
    assert volume.listdir(tree) == ["file"]
    assert [top for top, _, _ in volume.walk(tree)] == ["/tree"]
    (raw,) = volume.scandir(b"/tree")
    assert volume.stat(raw).st_size == 5
    volume.symlink(entry, tree / "link")
    assert volume.readlink(tree / "link") == "/tree/file" and (tree / "link").samefile(entry)
    assert volume.path("/other", tree / "file") == tree / "file"
    assert volume.path("/x") / (tree / "file") == tree / "file"
    assert (tree / "file").relative_to(tree) == pathlib.PurePosixPath("file")
    (tree / "file").rename(tree / "renamed")
    volume.rename(tree / "renamed", "/renamed")
    volume.rmtree(tree)
    assert not tree.exists()
    # A path of another volume is another file.
    other = tmp_path / "other.img"
    extol.mkfs(other, 16 << 20)
    with extol.open(other) as wrong:
        (stray,) = wrong.scandir("/")
        for call in (volume.rmtree, volume.stat, volume.listdir, volume.path("/").joinpath):
            for path in (wrong.path("/renamed"), stray):
                with pytest.raises(ValueError, match="another volume"):
                    call(path)
    assert volume.exists("/renamed")
