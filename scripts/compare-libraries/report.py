"""Makes a table of what compare-libraries.sh measured.

Reads lines `contender job microseconds user system KiB`. Prints medians in seconds (elapsed, and of
the processor), how many times the processor time of extol in the same language that is, and the
most memory of any job. (Processor time says more on a machine that does other things. That of the
kernel for a mount is not in it.)
"""

import statistics
import sys

JOBS = ("list", "hash", "extract")
# What extol's contender is, to which the ones behind it are compared.
GROUPS = {
    "extol.rs": ("ext4-view", "rust-fs-ext4", "fuse2fs", "linux"),
    "extol.py": ("dissect", "pytsk3"),
    "extol.c": ("ext2fs",),
    "extol.command": ("debugfs",),
}

elapsed, processor, memory = {}, {}, {}
for line in sys.stdin:
    name, job, microseconds, user, system, kib = line.split()
    elapsed.setdefault((name, job), []).append(int(microseconds) / 1e6)
    processor.setdefault((name, job), []).append(float(user) + float(system))
    memory[name] = max(memory.get(name, 0), int(kib))


def medians(of):
    """The median of each contender and job."""
    return {key: statistics.median(values) for key, values in of.items()}


elapsed, processor = medians(elapsed), medians(processor)
print("| | list | hash | extract | processor: list | hash | extract | / extol: list | hash "
      "| extract | MiB |")
print("|---|" + 10 * "---:|")
for own, others in GROUPS.items():
    for name in (own, *others):
        if name not in memory:
            continue
        cells = [name]
        for of in (elapsed, processor):
            cells += [f"{of[name, job]:.2f}" if (name, job) in of else "" for job in JOBS]
        for job in JOBS:
            both = name != own and {(name, job), (own, job)} <= processor.keys()
            of_own = max(processor.get((own, job), 0), 0.01)
            cells.append(f"{processor[name, job] / of_own:.1f}" if both else "")
        cells.append(f"{memory[name] / 1024:.0f}")
        print("| " + " | ".join(cells) + " |")
