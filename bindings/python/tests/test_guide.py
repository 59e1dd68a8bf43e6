"""The programs of the guide's page about libraries, as they stand there."""

from __future__ import annotations

import pathlib
import re

import extol
import pytest
from conftest import fsck

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "libraries.md"


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_all_of_them_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, addresses = programs()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some" / "directory").mkdir(parents=True)
    (tmp_path / "some" / "directory" / "notes").write_text("hello")
    exec(compile(files, str(PAGE), "exec"), {})
    said = capsys.readouterr().out
    assert "answer = 42" in said and "/etc ['app'] []" in said, said
    for image in ["disk.img", "new.img"]:
        fsck(tmp_path / image)

    with extol.open("disk.img") as volume:
        volume.makedirs("/data")
        with volume.open("/data/table.csv", "w") as file:
            file.write("a,b\n1,2\n")
    space: dict[str, object] = {}
    exec(compile(addresses, str(PAGE), "exec"), space)
    assert (tmp_path / "here" / "table.csv").read_text() == "a,b\n1,2\n"
    getattr(space["fs"], "close")()
