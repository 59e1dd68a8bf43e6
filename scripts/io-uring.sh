#!/usr/bin/env bash
# The tests of mounts over io_uring (`-o io_uring`): those of the FUSE layer, then the mount's own suites with every mount of theirs
# over it. Needs root, and Linux 6.14 or newer, whose switch for it is off by default: this turns it on and, at the end, back.
#
#   scripts/io-uring.sh [TEST...]     test programs of crates/cli, instead of all that mount
set -euo pipefail
cd "$(dirname "$0")/.."
switch=/sys/module/fuse/parameters/enable_uring

[ "$(id -u)" -eq 0 ] || { echo "io-uring.sh: needs root" >&2; exit 2; }
modprobe fuse 2>/dev/null || true
[ -w "$switch" ] || { echo "io-uring.sh: this kernel has no FUSE over io_uring (no $switch)" >&2; exit 2; }
before=$(cat "$switch")
trap 'echo "$before" >"$switch"' EXIT
echo Y >"$switch"

[ $# -gt 0 ] || set -- posix crash interop loads random stress
export EXTOL_NO_SKIP=1
cargo test -p extol-fuse --test over_io_uring
EXTOL_TEST_TRANSPORT=io_uring cargo test -p extol-cli --no-fail-fast "${@/#/--test=}"
