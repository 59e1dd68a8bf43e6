#!/usr/bin/env bash
# What `make test` runs: formatting, lints, documentation, and all tests. One profile, so nothing is compiled twice
# but by clippy.
#
#   EXTOL_NO_SKIP=1   a test whose needs the machine does not meet fails instead of being skipped
#   EXTOL_LONG=1      the long variants (hours); see scripts/long-tests.sh
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "model"
# A build of its own: every lock is the model checker's.
cargo clippy -p extol-journal --features model --test model --quiet -- -D warnings
cargo test -p extol-journal --features model --test model

step "fuzzing"
scripts/fuzz.sh --ci

step "tests"
# The examples are compiled with the tests and run here, as a reader of the documentation would run them.
cargo test --workspace --quiet --no-run
for example in crates/ext4/examples/*.rs; do
    [ -e "$example" ] || continue
    name=$(basename "$example" .rs)
    echo "example $name"
    cargo run --quiet -p extol --example "$name" >/dev/null
done

# Not --quiet and not stopped by the first failure: the closing lines say what ran and what failed.
cargo test --workspace --no-fail-fast
