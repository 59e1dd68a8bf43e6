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
. scripts/machine.sh

finish() {
    local rc=$?
    end_heartbeat
    machine_as_before
    [ "$rc" -eq 0 ] || printf '\n== failed: %s\n' "$step"
}
step='the beginning'
trap finish EXIT
machine_for_tests

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
# For all systems, and for the fuzz targets, too: what comes now is not downloaded beside the tests.
cargo fetch --locked --quiet
cargo fetch --locked --quiet --manifest-path fuzz/Cargo.toml
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
# Not stopped by the first failure: the closing lines say what ran, how long each took, and what
# failed and why.
scripts/run-tests.sh --all
printf '\n== passed, in %s\n' "$(minutes "$SECONDS")"
