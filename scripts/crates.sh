#!/usr/bin/env bash
# The crates as crates.io gets them: features, the number of crates of others, packages, interfaces.
#
#   scripts/crates.sh               the library without features and with the default ones, how
#                                   many crates it needs then, and all packages, not built
#   scripts/crates.sh --full        each feature alone and all together, the tests of what is left
#                                   out, and packages that are built from what is in them
#   scripts/crates.sh --semver REV  compares interfaces with those at a revision. Installs
#                                   cargo-semver-checks into target/tools first if it is missing,
#                                   which takes minutes.
#
# Needs no network but for that, once the workspace was built. Exit code: 0, or that of the first
# step that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# The library without features needs fewer crates of others than this.
most=25
semver_checks=0.51.0

lint() {
    echo "extol: ${*:-default features}"
    cargo clippy --quiet --locked -p extol "$@" -- -D warnings
}

# The names of the crates that are published.
published() {
    cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] is None:
        print(package["name"])'
}

# The features of the library that are for use.
features() {
    sed -n '/^\[features\]/,/^\[dependencies\]/s/^\([a-z-]*\) = .*/\1/p' crates/extol/Cargo.toml |
        grep -vxE 'default|planted-bugs'
}

count() {
    local names number
    names=$(cargo tree --locked -p extol --no-default-features -e normal --prefix none |
        awk '{ print $1 }' | grep -v '^extol' | sort -u)
    number=$(wc -l <<<"$names")
    echo "extol without features: $number crates of others"
    if [ "$number" -ge "$most" ]; then
        printf '%s\n' "fewer than $most are wanted:" "$names" >&2
        return 1
    fi
}

# Makes the packages of all crates. $@: options for cargo package.
packages() {
    local names name options=()
    names=$(published)
    for name in $names; do options+=(-p "$name"); done
    # (Tests outside of a crate's directory are left out, with a warning for each.)
    cargo package --locked --offline --allow-dirty "$@" "${options[@]}" 2>&1 |
        { grep -vE '^warning: ignoring test |^ *(Packaging|Packaged|Updating|Unpacking) ' || true; }
}

case ${1:-} in
    '')
        lint --no-default-features
        lint
        count
        packages --quiet --no-verify
        ;;
    --full)
        lint --no-default-features
        lint
        all=$(features)
        for feature in $all; do lint --no-default-features --features "$feature"; done
        lint --features "${all//$'\n'/,}"
        count
        cargo test --locked -p extol --no-default-features --test without_features
        packages
        ;;
    --semver)
        revision=${2:?the revision to compare with}
        tool=target/tools/bin/cargo-semver-checks
        if ! "$tool" --version 2>/dev/null | grep -qF "$semver_checks"; then
            # (Not optimised: it runs for seconds, and compiling it takes longer.)
            CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_TARGET_DIR=target/tools/build \
                cargo install --locked --debug --quiet --root target/tools \
                --version "$semver_checks" cargo-semver-checks
        fi
        options=()
        for name in $(published); do options+=(-p "$name"); done
        "$tool" semver-checks --baseline-rev "$revision" "${options[@]}"
        ;;
    *)
        sed -n '2,/^set/{ /^set/d; s/^# \{0,1\}//p }' "$0" >&2
        exit 2
        ;;
esac
