#!/usr/bin/env bash
# A long campaign of crash states: every load on every kind of volume, with new seeds until the time
# is over. Prints a progress bar while it runs and a table for docs/reliability.md at the end.
#
#   scripts/crash.sh [ARGUMENT...]      arguments of extol-crashkit; default: an hour
#   EXTOL_CRASH_MINUTES=n               that many minutes instead
#
# Needs e2fsprogs; as root with loop devices, Linux recovers some states, too. Exit code: 0, or 1 if
# a state is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-deps.sh
linux=0
if [ "$(id -u)" = 0 ] && [ -e /dev/loop-control ]; then
    linux=300
else
    echo "not root, or no loop devices: Linux is not asked" >&2
fi
cargo build --quiet --profile profiling -p extol-crashkit
exec "${CARGO_TARGET_DIR:-target}/profiling/extol-crashkit" \
    --effort long --minutes "${EXTOL_CRASH_MINUTES:-60}" \
    --max-states 6000 --again 150 --e2fsck 100 --linux "$linux" "$@"
