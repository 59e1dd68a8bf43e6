"""Volumes for the tests."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import extol
import pytest

E2FSCK = shutil.which("e2fsck") or shutil.which("e2fsck", path="/usr/sbin:/sbin")


def fsck(image: pathlib.Path) -> None:
    """The volume is clean for e2fsck."""
    assert E2FSCK, "e2fsck is missing"
    done = subprocess.run([E2FSCK, "-fn", str(image)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def image(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty volume."""
    path = tmp_path / "disk.img"
    extol.mkfs(path, 32 << 20, label="tested", features="fast_commit")
    return path


@pytest.fixture
def volume(image: pathlib.Path) -> Iterator[extol.Volume]:
    """An open volume, which is clean in the end."""
    with extol.open(image) as volume:
        yield volume
    fsck(image)
