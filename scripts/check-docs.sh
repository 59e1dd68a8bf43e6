#!/usr/bin/env bash
# Checks the documents: relative links and their anchors exist, pictures are shown somewhere, and
# the README and the performance page keep within their size. `scripts/lint.sh` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

exec python3 - <<'PYTHON'
import pathlib, re, subprocess, sys, unicodedata

LIMITS = {"README.md": 8192, "docs/performance.md": 15360}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*```.*?^\s*```", re.M | re.S)
errors = []


def anchors(page):
    """The anchors of a page's headings, as web pages of repositories make them."""
    names = set()
    for title in re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text()), re.M):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        kept = [c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN"]
        names.add("".join(kept).replace(" ", "-"))
    return names


listed = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    check=True, capture_output=True, text=True,
).stdout.split()
pages = [p for p in map(pathlib.Path, listed) if p.exists()]
linked = set()
for page in pages:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page.resolve()
        if not file.exists():
            errors.append(f"{page}: link to {target}: no such file")
            continue
        linked.add(file)
        if anchor and file.suffix == ".md" and anchor not in anchors(file):
            errors.append(f"{page}: link to {target}: no such heading")
for picture in sorted(pathlib.Path("docs/pictures").glob("*")):
    if picture.resolve() not in linked:
        errors.append(f"{picture}: no page shows it")
for page, limit in LIMITS.items():
    size = pathlib.Path(page).stat().st_size
    if size > limit:
        errors.append(f"{page}: {size} bytes, at most {limit}")
print("\n".join(errors), file=sys.stderr, end="\n" if errors else "")
sys.exit(bool(errors))
PYTHON
