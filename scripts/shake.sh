#!/usr/bin/env bash
# Runs the tests with many threads while threads are held up before and behind locks
# (crates/sync/src/shake.rs): each seed slows down other places. What fails is a mistake between
# threads that a busy machine would show once in thousands of runs.
#
#   scripts/shake.sh [MINUTES] [SEED]     default: 30 minutes from seed 1; a seed takes about two
#                                         minutes
#
# Root and FUSE add a mount; without them that part is skipped. Exit code: 0, or 1 with the output
# and the command of what failed.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-30}
first=${2:-1}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Debug builds: a release build cannot be shaken.
cargo test --quiet -p extol --test faults --test random --test closing --test maintenance --no-run
cargo test --quiet -p extol-jbd2 --test runtime --no-run
cargo test --quiet -p extol-cli --test stress --no-run
cargo build --quiet -p extol-crashkit
crashkit=${CARGO_TARGET_DIR:-target}/debug/extol-crashkit

shaken() {
    if ! EXTOL_SHAKE=$seed timeout 600 "$@" >"$log" 2>&1; then
        cat "$log"
        printf '\nfailed: EXTOL_SHAKE=%s %s\n' "$seed" "$*" >&2
        exit 1
    fi
}

began=$SECONDS
seed=$first
while [ "$seed" = "$first" ] || [ $((SECONDS - began)) -lt $((minutes * 60)) ]; do
    shaken cargo test --quiet -p extol --test faults -- many_threads
    shaken cargo test --quiet -p extol --test random -- threads
    shaken cargo test --quiet -p extol --test closing --test maintenance
    shaken cargo test --quiet -p extol-jbd2 --test runtime -- stress scenarios
    shaken "$crashkit" --workload threads,closure-threads,one-file \
        --variant v3-1k,fc,external,data-journal --seed "$seed" --max-states 150
    # A mount, and e2fsck and Linux on the volume afterwards (root, FUSE; skipped without).
    shaken cargo test --quiet -p extol-cli --test stress
    printf 'seed %d: nothing found, %d s\n' "$seed" $((SECONDS - began))
    seed=$((seed + 1))
done
