#!/usr/bin/env bash
# Prints the path of a library that the build of all tests makes on its way, with the features that
# the tests have. (cargo gives it a name without a hash only where it is built for itself, which is
# with other features, and so compiles everything once more.)
#
#   scripts/built-by-tests.sh NAME SUFFIX     such as libextol_c .a
#
# Builds the tests if they are not built. Exit code: 0, or 1 if there is no such library.
set -euo pipefail
cd "$(dirname "$0")/.."
path=$(cargo test --workspace --no-run --quiet --message-format=json-render-diagnostics |
    sed -nE 's|.*"filenames":\[([^]]*)\].*|\1|p' | tr , '\n' | tr -d '"' |
    grep -E "/$1(-[0-9a-f]+)?\\$2\$" | tail -n 1)
[ -n "$path" ] || { echo "no $1$2 is built with the tests" >&2; exit 1; }
echo "$path"
