#!/usr/bin/env bash
# The long variants of the tests, for a night: full-size trees in every cell of the matrix, a
# hundred times more random operations, minutes of each load, faults at every request, tens of
# thousands of damaged volumes, a million known inodes, fifty times the schedules of the model,
# names of all planes by the hundred thousand, servers and hosts that are killed a hundred times.
#
#   scripts/long-tests.sh [TEST...]     default: all of the list below; a TEST is PACKAGE:NAME, or a
#                                       NAME of extol-cli
#
# Needs root and all that the tests need: nothing is skipped. Exit code: 0, or 1 with the names of
# what failed.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-deps.sh
export EXTOL_LONG=1 EXTOL_NO_SKIP=1
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(interop conformance posix random loads bad_input bounds pjdfstest
    casefold export nbd_failover resize extol:faults extol:random extol-check:agree
    extol-hostile:storm extol-jbd2:model)
failed=()
for test in "${tests[@]}"; do
    printf '\n== %s\n' "$test"
    package=extol-cli name=$test
    case $test in *:*) package=${test%%:*} name=${test#*:} ;; esac
    features=()
    [ "$name" != model ] || features=(--features model)
    cargo test --profile profiling -p "$package" "${features[@]}" --test "$name" --no-fail-fast ||
        failed+=("$test")
done
# As a program installs them: compiled by themselves.
if [ $# -eq 0 ]; then
    for script in "libextol.sh --test" python-test.sh; do
        printf '\n== %s\n' "$script"
        read -ra words <<<"$script"
        "scripts/${words[0]}" "${words[@]:1}" || failed+=("$script")
    done
fi
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
