#!/usr/bin/env bash
# `make bench-guard`: the loads in which a regression shows first, beside fuse2fs, in three minutes.
#
#   scripts/bench-guard.sh [AGAINST] [ARGUMENTS]
#
# AGAINST is another build of the extol command, or a commit, which is built in target/against
# (some minutes, once). Rows that reach less than 0.8 of it are named in the last line. ARGUMENTS
# are those of `extol-bench guard`. It needs root, and a machine on which nothing else runs.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
target=${CARGO_TARGET_DIR:-target}

against=${1-}
shift || true
before=()
if [ -n "$against" ] && [ -f "$against" ] && [ -x "$against" ]; then
    before=(--against "$against")
elif [ -n "$against" ]; then
    commit=$(git rev-parse --verify --quiet "$against^{commit}") || {
        echo "bench-guard: '$against' is no program and no commit" >&2
        exit 2
    }
    tree=$PWD/target/against/tree
    built=$PWD/target/against/$commit
    if [ ! -x "$built" ]; then
        mkdir -p target/against
        git worktree prune
        [ -d "$tree" ] || git worktree add --quiet --detach "$tree" "$commit"
        git -C "$tree" checkout --quiet --detach "$commit"
        CARGO_TARGET_DIR=$PWD/target/against/target \
            cargo build --release --locked -p extol-cli --manifest-path "$tree/Cargo.toml"
        cp target/against/target/release/extol "$built"
    fi
    before=(--against "$built")
fi

cargo build --release --locked -p extol-cli -p extol-bench
exec "$target/release/extol-bench" guard "${before[@]}" "$@"
