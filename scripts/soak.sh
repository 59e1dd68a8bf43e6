#!/usr/bin/env bash
# The stress of testing/e2e/stress.rs for an hour, or as many seconds as are given, with an
# optimised build. Prints every ten seconds what was done and what the daemon uses, and fails if
# its memory, threads or open files pass their bounds.
#
#   scripts/soak.sh [SECONDS]
#
# Needs root and FUSE. Exit code: 0, that of cargo test, or 2 for wrong arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3600}
case $seconds in
'' | *[!0-9]*)
    echo "usage: scripts/soak.sh [SECONDS]" >&2
    exit 2
    ;;
esac
EXTOL_SOAK=$seconds EXTOL_NO_SKIP=1 \
    cargo test --profile profiling -p extol-cli --test stress -- --nocapture
