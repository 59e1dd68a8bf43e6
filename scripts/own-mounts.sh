#!/usr/bin/env bash
# Runs a program in a mount namespace of its own: no other process can hold its mounts, nor it those
# of others. (A process that starts with a copy of all mounts keeps each of them mounted for as long
# as it runs; and two daemons, each with the other's mount in a copy, wait for each other for ever.)
#
#   scripts/own-mounts.sh PROGRAM [ARGUMENT...]
#
# scripts/run-tests.sh runs all tests by it, and cargo its test programs (.cargo/config.toml). What
# `cargo run` starts is no test, and its mounts are for all to see. Without the right to have a
# namespace (not root) the program runs as it is. Exit code: that of the program.
set -euo pipefail
if [[ ! $1 =~ /(debug|quick|release|profiling)/[^/]*$ ]] &&
    unshare --mount --propagation private true 2>/dev/null; then
    exec unshare --mount --propagation private -- "$@"
fi
exec "$@"
