#!/usr/bin/env bash
# Builds the Python package as a wheel that other machines can install: for any Python from 3.9 on
# (abi3) on x86-64 or the like of this machine, and for C libraries from glibc 2.17 on
# (manylinux2014), which zig links against. Installs it into an environment of its own, and opens a
# volume with it.
#
#   scripts/python-wheel.sh [PROFILE]     cargo's profile (release); the wheel is in target/wheels
#
# Needs python3 with venv and pip, and the network for maturin and zig (both from PyPI). Exit code:
# 0, or 1.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/python-wheel
export CARGO_TARGET_DIR=$target

[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
pip() { "$venv/bin/pip" "$1" --quiet --disable-pip-version-check "${@:2}"; }
pip install 'maturin[zig]>=1.9,<2'
rm -f "$target"/wheels/extol-*manylinux*.whl
PATH=$venv/bin:$PATH "$venv/bin/maturin" build --profile "$profile" --locked --zig \
    --compatibility manylinux2014 --manifest-path bindings/python/Cargo.toml --out "$target/wheels"
wheel=("$target"/wheels/extol-*abi3-manylinux*.whl)
pip install --force-reinstall --no-deps "${wheel[0]}"
"$venv/bin/python" - <<'P'
import os, tempfile
import extol

with tempfile.TemporaryDirectory() as place:
    image = os.path.join(place, "image")
    extol.mkfs(image, 16 << 20)
    with extol.open(image) as volume:
        with volume.open("/name", "wb") as file:
            file.write(b"contents")
    with extol.open(image, read_only=True) as volume, volume.open("/name", "rb") as file:
        assert file.read() == b"contents"
P
echo "${wheel[0]}"
