"""Answers each name (a line in hexadecimal) with what libext2fs folds it to, and whether it calls
it valid: `FORM VALID`. FORM is `-` if it is not folded, VALID is 0 or 1.

The library has tables and a loop of its own for e2fsck and debugfs. What is called here is not in
its header files, so the layout of the table of functions is checked first.
"""

import ctypes
import sys

LONGEST = 1 << 16


class Ops(ctypes.Structure):
    pass


class Table(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("ops", ctypes.POINTER(Ops))]


TABLE = ctypes.POINTER(Table)
BYTES, SIZE = ctypes.c_char_p, ctypes.c_size_t
POSITION = ctypes.POINTER(ctypes.c_void_p)
Ops._fields_ = [
    ("casefold", ctypes.CFUNCTYPE(ctypes.c_int, TABLE, BYTES, SIZE, BYTES, SIZE)),
    ("validate", ctypes.CFUNCTYPE(ctypes.c_int, TABLE, BYTES, SIZE, POSITION)),
]

library = ctypes.CDLL("libext2fs.so.2")
library.ext2fs_load_nls_table.restype = TABLE
table = library.ext2fs_load_nls_table(1)
ops = table.contents.ops.contents
buffer = ctypes.create_string_buffer(LONGEST)


def fold(name):
    # The library gives back the name itself if its first byte continues a character.
    if name and 0x80 <= name[0] < 0xC0:
        return None
    length = ops.casefold(table, name, len(name), buffer, LONGEST)
    return buffer.raw[:length] if length >= 0 else None


def is_valid(name):
    return ops.validate(table, name, len(name), ctypes.byref(ctypes.c_void_p())) == 0


assert table.contents.version == 0xC0100, "not the table of Unicode 12.1"
assert fold("ÄẞK".encode()) == "a\u0308ssk".encode() and fold(b"\xff") is None
assert is_valid(b"a") and not is_valid(b"a\xff")
for line in sys.stdin:
    name = bytes.fromhex(line)
    form = fold(name)
    print("-" if form is None else form.hex(), int(is_valid(name)))
