"""Paths: those of pathlib."""

from __future__ import annotations

import pathlib

import extol
import pytest


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
