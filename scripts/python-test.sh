#!/usr/bin/env bash
# The Python package: installs it into a virtual environment of its own, as `pip install .` does,
# and runs its tests, those of fsspec, the examples in its documentation, and mypy.
#
#   scripts/python-test.sh [PROFILE]      cargo's profile (quick)
#   scripts/python-test.sh --from-tests   puts the package together from its files and the library
#                                         that the build of all tests has made on its way: nothing
#                                         is compiled for it
#
# Needs python3 with venv and pip, and the network for the packages that the tests use. Exit code:
# 0, or 1.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-quick}
# (Also when cargo's directory is the one beside Cargo.toml.)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/python
export CARGO_TARGET_DIR=$target PATH="$PATH:/usr/sbin:/sbin"

[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
pip() { "$venv/bin/pip" "$1" --quiet --disable-pip-version-check "${@:2}"; }
pip install 'pytest>=8' 'fsspec>=2024.2' 'mypy>=1.8'
# (Of a package that was put together, pip does not know what to remove.)
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
rm -rf "$site/extol" "$site"/extol-*.dist-info
if [ "$profile" = --from-tests ]; then
    cp -r bindings/python/python/extol "$site/extol"
    cp "$(scripts/built-by-tests.sh lib_extol .so)" "$site/extol/_extol.abi3.so"
    info=$site/extol-0.dist-info
    mkdir "$info"
    printf 'Metadata-Version: 2.1\nName: extol\nVersion: 0\n' >"$info/METADATA"
    # The names of the file system for fsspec, as pyproject.toml has them.
    { echo '[fsspec.specs]'
        sed -n '/fsspec\.specs"\]/,/^$/s/^\([a-z0-9]*\) = "\(.*\)"/\1 = \2/p' \
            bindings/python/pyproject.toml; } >"$info/entry_points.txt"
else
    # What builds it is not fetched into a place of its own each time.
    pip install 'maturin>=1.9,<2'
    PATH=$venv/bin:$PATH pip install --no-deps --no-build-isolation --force-reinstall \
        -C build-args="--profile $profile --locked" bindings/python
fi
cd bindings/python
export PYTHONDONTWRITEBYTECODE=1
package=$("$venv/bin/python" -c 'import extol, os; print(os.path.dirname(extol.__file__))')
"$venv/bin/python" -m pytest -q -p no:cacheprovider --doctest-modules tests "$package"
"$venv/bin/python" -m mypy --cache-dir "$target/mypy"
