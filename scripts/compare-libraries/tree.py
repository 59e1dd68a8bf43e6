"""Makes the files that the image holds: tree.py DIRECTORY.

30,000 files with 2 GB, 100 in each directory: many small ones, few large ones (sizes by a power
law, the largest eight times the mean). The same bytes each time.
"""

import os
import random
import sys

FILES, BYTES, LARGEST = 30_000, 2_000_000_000, 8

top = sys.argv[1]
rng = random.Random(34)
# (mke2fs makes it in any case.)
os.makedirs(os.path.join(top, "lost+found"))
for n in range(FILES):
    directory = os.path.join(top, f"dir{n // 100}")
    if n % 100 == 0:
        os.mkdir(directory)
    size = int(BYTES / FILES * LARGEST * rng.random() ** (LARGEST - 1))
    with open(os.path.join(directory, f"file{n}"), "wb") as file:
        file.write(rng.randbytes(size))
