#!/usr/bin/env bash
# The suites of mounts with their requests through /dev/fuse, which is how they come where the
# kernel does not offer io_uring. (Where it does, `make test` runs all suites over that.)
#
#   scripts/device.sh [TEST...]     test programs of testing/e2e, instead of those that ask
#                                   most of a mount
#
# Needs root and FUSE; what is missing skips a test (EXTOL_NO_SKIP=1: fails it). Exit code: that of
# cargo test.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- posix crash loads stress
# (With --workspace nothing is compiled anew; the names are those of testing/e2e alone.)
EXTOL_TEST_TRANSPORT=device cargo test --workspace --no-fail-fast "${@/#/--test=}"
