#!/usr/bin/env bash
# Runs the tests over and over, to find those that fail now and then. Stops at the first failure and
# prints what failed and why.
#
#   scripts/repeat.sh [--busy] [ROUNDS] [REGEX]
#
#   ROUNDS   how often (20)
#   REGEX    only the test programs whose names match, such as ^testing/e2e/start; else all that
#            `make test` runs
#   --busy   beside other work: eight processes for each processor that only count, and one that
#            writes to a disk and waits for it. They end with this script, whatever ends it.
#
# The output of each round is in target/repeat. Exit code: 0, 1 if a round failed, 2 for wrong
# arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/heartbeat.sh
. scripts/machine.sh

usage() { sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \?//' >&2; exit 2; }
busy=
if [ "${1:-}" = --busy ]; then
    busy=1
    shift
fi
rounds=${1:-20} only=${2:-}
[[ $# -le 2 && $rounds =~ ^[1-9][0-9]*$ ]] || usage
tests=(--all)
[ -z "$only" ] || tests=(--only "$only")

logs=${CARGO_TARGET_DIR:-target}/repeat
rm -rf "$logs"
mkdir -p "$logs"
work=$(mktemp -d)
load=()
finish() {
    [ ${#load[@]} -eq 0 ] || kill -KILL "${load[@]}" 2>/dev/null || true
    machine_as_before
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

# (The kernel ends them, should this script be killed.)
beside() {
    setpriv --pdeathsig KILL bash -c "$1" "$work" </dev/null >/dev/null 2>&1 &
    load+=($!)
    disown $!
}
if [ -n "$busy" ]; then
    for _ in $(seq $((8 * $(nproc)))); do beside 'while :; do :; done'; done
    beside 'while :; do
        dd if=/dev/zero of="$0/written" bs=64K count=1000 oflag=dsync conv=notrunc
    done'
fi
machine_for_tests

for round in $(seq "$rounds"); do
    began=$SECONDS
    log=$logs/$round.log
    if scripts/run-tests.sh "${tests[@]}" >"$log" 2>&1; then
        echo "round $round of $rounds: passed ($(minutes $((SECONDS - began))))"
    else
        echo "round $round of $rounds: FAILED ($(minutes $((SECONDS - began)))); all of it: $log"
        sed -n '/^failed:$/,$p' "$log" | grep . || tail -n 20 "$log"
        exit 1
    fi
done
