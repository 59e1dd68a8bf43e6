#!/usr/bin/env bash
# The long variants of the tests, for a night: full-size trees in every cell of the matrix, a hundred times more
# random operations, minutes of each load, thousands of damaged volumes, a million known inodes.
#
#   scripts/long-tests.sh [TEST...]     default: interop posix random loads bad_input bounds pjdfstest
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-deps.sh
export EXTOL_LONG=1 EXTOL_NO_SKIP=1
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(interop posix random loads bad_input bounds pjdfstest)
failed=()
for test in "${tests[@]}"; do
    printf '\n== %s\n' "$test"
    cargo test --release -p extol-cli --test "$test" --no-fail-fast || failed+=("$test")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
