#!/usr/bin/env bash
# What `make test` runs: rules of writing, formatting, lints, licences of crates, documentation, and
# all tests. One profile, so nothing is compiled twice but by clippy.
#
#   scripts/test.sh
#   EXTOL_NO_SKIP=1   a test whose needs the machine does not meet fails instead of being skipped
#   EXTOL_LONG=1      the long variants (hours); see scripts/long-tests.sh
#
# Needs what scripts/install-deps.sh installs, and root for tests of mounts. Exit code: 0, or that
# of the first step that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# As root, for the time of the tests: mounts have their requests over io_uring where the kernel
# offers it (its switch is off by default), and all users may open /dev/fuse (as udev has it, where
# there is udev).
switch=/sys/module/fuse/parameters/enable_uring
undo=()
put_back() { for command in "${undo[@]}"; do eval "$command"; done; }
trap put_back EXIT
if [ "$(id -u)" -eq 0 ]; then
    modprobe fuse 2>/dev/null || true
    if [ -w "$switch" ]; then
        undo+=("echo $(cat "$switch") >$switch")
        echo Y >"$switch"
    fi
    if [ -c /dev/fuse ]; then
        undo+=("chmod $(stat -c %a /dev/fuse) /dev/fuse")
        chmod 666 /dev/fuse
    fi
fi

step() { printf '\n== %s\n' "$*"; }

step "writing"
scripts/lint.py
scripts/check-docs.sh

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings
# A build of its own: every lock is the model checker's.
cargo clippy --workspace --features extol-jbd2/model --test model --quiet -- -D warnings

step "crates of others"
# (Those of the fuzz targets, too: a test looks whether any was withdrawn.)
cargo fetch --locked --quiet --manifest-path fuzz/Cargo.toml
# Without a network, as the steps before have fetched everything that it looks at.
cargo deny --locked check --hide-inclusion-graph licenses bans sources

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "tests, the model, the examples, and fuzzing"
# Not stopped by the first failure: the closing lines say what ran, what failed, and how long each
# took.
scripts/run-tests.sh "scripts/fuzz.sh --ci" "scripts/device.sh"
