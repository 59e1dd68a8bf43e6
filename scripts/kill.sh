#!/usr/bin/env bash
# Kills mounts with SIGKILL under a parallel load, again and again, in all modes of the journal and
# of the page cache; some of them while they unmount, and some recoveries as well. After every kill
# all that fsync has promised must be there: recovered by Extol each time, and every fourth time a
# copy by Linux and by e2fsck.
#
#   scripts/kill.sh [ROUNDS]      default 500, divided by the variants
#
# Needs root, loop devices, FUSE and e2fsprogs. Exit code: 0, or that of the tests, whose output is
# printed then.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-500}
variants=11
each=$(((rounds + variants - 1) / variants))
list=$(mktemp)
log=$(mktemp)
trap 'rm -f "$list" "$log"' EXIT
cargo test --quiet -p extol-cli --test crash --no-run
began=$SECONDS

EXTOL_NO_SKIP=1 EXTOL_LIVES=$each EXTOL_ROUNDS=$list \
    cargo test --quiet -p extol-cli --test crash -- --test-threads=2 >"$log" 2>&1 &
tests=$!
line() {
    printf '%s%d of %d rounds, %d s%s' \
        "$1" "$(wc -l <"$list")" $((each * variants)) $((SECONDS - began)) "$2"
}
while kill -0 "$tests" 2>/dev/null; do
    # A line that moves on a terminal; now and then a line elsewhere.
    if [ -t 1 ]; then line $'\r' ''; sleep 1; else line '' $'\n'; sleep 20; fi
done
result=0
wait "$tests" || result=$?
line $'\n' $'\n'
awk '{ n++; p += $2; r += $3; u += $4; l += $5; f += $6 }
     END { printf "%d rounds of SIGKILL under load, %d of them during the unmount; ", n, u
           printf "%d more killed during a recovery\n", r
           printf "%d promises of fsync; recovered by Extol %d times, by Linux %d, ", p, n, l
           printf "by e2fsck %d\n", f }' "$list"
[ "$result" = 0 ] || { cat "$log"; echo "failed" >&2; }
exit "$result"
