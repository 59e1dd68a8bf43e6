#!/usr/bin/env bash
# Runs the tests of the journal, the tasks, the devices and the file system with many threads under
# ThreadSanitizer. The model (`--features model`) tries schedules on sequentially consistent memory;
# this looks for accesses that are not ordered at all, on real threads.
#
# It needs a nightly toolchain with the component rust-src, because the standard library must be
# built with the sanitizer too; without that, its own locks would look like races. Where that is
# missing this says so and skips.
#
#   scripts/tsan.sh                    default: the tests below
#   scripts/tsan.sh -p PACKAGE ...     other arguments for cargo test
#
# Exit code: 0, 1 if a test fails or a race is found, 2 if it was skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "tsan: skipped: $*" >&2
    exit 2
}

command -v rustup >/dev/null || skip "no rustup, so no second toolchain"
root=$(rustc +nightly --print sysroot 2>/dev/null) ||
    skip "no nightly toolchain (rustup toolchain install nightly)"
[ -d "$root/lib/rustlib/src/rust/library/std" ] ||
    skip "nightly has no rust-src (rustup component add rust-src --toolchain nightly)"
target=$(rustc +nightly -vV | sed -n 's/^host: //p')
case $target in
x86_64-unknown-linux-gnu | aarch64-unknown-linux-gnu) ;;
*) skip "ThreadSanitizer does not know $target" ;;
esac

export RUSTFLAGS="-Zsanitizer=thread"
export TSAN_OPTIONS="halt_on_error=0 exitcode=66 ${TSAN_OPTIONS:-}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/tsan" CARGO_INCREMENTAL=0
cargo_test() {
    echo "== cargo test $*"
    cargo +nightly test -Zbuild-std --target "$target" "$@"
}

if [ $# -gt 0 ]; then
    cargo_test "$@"
    exit
fi
failed=0
cargo_test -p extol-sync -p extol-task -p extol-jbd2 --lib || failed=1
cargo_test -p extol-block --lib -- coalesce latch range_lock memory || failed=1
cargo_test -p extol-devices --test latch || failed=1
cargo_test -p extol-jbd2 --test runtime -- stress scenarios || failed=1
cargo_test -p extol --test closing || failed=1
cargo_test -p extol --test random -- threads || failed=1
exit $failed
