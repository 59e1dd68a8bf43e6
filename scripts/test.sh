#!/usr/bin/env bash
# What `make test` runs: rules of writing, formatting, lints, licences of crates, documentation, and
# all tests. One profile, so nothing is compiled twice but by clippy.
#
#   scripts/test.sh
#   EXTOL_NO_SKIP=1   a test whose needs the machine does not meet fails instead of being skipped
#   EXTOL_LONG=1      the long variants (hours); see scripts/long-tests.sh
#
# Installs what is missing first (scripts/install-deps.sh), and needs root for tests of mounts. Says
# every half a minute what it is doing. Exit code: 0, or that of the first step that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/heartbeat.sh

# As root, for the time of the tests: mounts have their requests over io_uring where the kernel
# offers it (its switch is off by default), and all users may open /dev/fuse (as udev has it, where
# there is udev).
switch=/sys/module/fuse/parameters/enable_uring
undo=()
finish() {
    local rc=$?
    end_heartbeat
    for command in "${undo[@]}"; do eval "$command"; done
    [ "$rc" -eq 0 ] || printf '\n== failed: %s\n' "$step"
}
step='the beginning'
trap finish EXIT
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

step() {
    step=$*
    printf '\n== %s\n' "$step"
    heartbeat "$step"
}

step "what is missing"
scripts/install-deps.sh

step "writing"
scripts/lint.py
scripts/check-docs.sh

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings
# (Without the images of virtual machines.)
cargo clippy -p extol-cli --no-default-features --quiet -- -D warnings
# A build of its own: every lock is the model checker's.
cargo clippy --workspace --features extol-jbd2/model --test model --quiet -- -D warnings

step "crates of others"
# (Those of the fuzz targets, too: a test looks whether any was withdrawn.)
cargo fetch --locked --quiet --manifest-path fuzz/Cargo.toml
# Without a network, as the steps before have fetched everything that it looks at.
cargo deny --locked check --hide-inclusion-graph licenses bans sources

step "crates as they are published"
scripts/crates.sh

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "cargo install"
# What is compiled here is what the tests need, too.
cargo install --debug --locked --quiet --path crates/cli --target-dir target \
    --root target/installed
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
[ "$(target/installed/bin/extol --version)" = "extol $version" ]

step "tests, the model, the examples, fuzzing, the package, other languages and systems"
end_heartbeat # run-tests.sh has its own.
# Not stopped by the first failure: the closing lines say what ran, what failed, and how long each
# took.
scripts/run-tests.sh "scripts/fuzz.sh --ci" "scripts/device.sh" \
    "scripts/package-test.sh --no-build dev" "PROFILE=dev scripts/libextol.sh --from-tests --test" \
    "scripts/python-test.sh --from-tests" "scripts/targets.sh --check"
printf '\n== passed, in %s\n' "$(minutes "$SECONDS")"
