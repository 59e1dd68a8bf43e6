#!/usr/bin/env bash
# Builds the Debian package with cargo-deb, target/debian/*.deb: what scripts/install.sh installs,
# and what stands in crates/cli/Cargo.toml. Prints the package's path in the last line.
#
#   scripts/package.sh [PROFILE]            release by default
#   scripts/package.sh --no-build PROFILE   packs what cargo has built before
#
# Needs what scripts/install-deps.sh package installs. Exit code: 0, or that of the first step that
# fails.
set -euo pipefail
cd "$(dirname "$0")/.."

build=1
if [ "${1:-}" = --no-build ]; then
    build=
    shift
fi
profile=${1:-release}
target=${CARGO_TARGET_DIR:-target}
built=$target/$profile/extol
[ "$profile" != dev ] || built=$target/debug/extol

[ -z "$build" ] || cargo build --profile "$profile" -p extol-cli

# The tree that crates/cli/Cargo.toml names.
tree=target/package
rm -rf "$tree"
mkdir -p "$tree"
EXTOL=$built DESTDIR=$tree PREFIX=/usr SBINDIR=/usr/sbin ZSHDIR=/usr/share/zsh/vendor-completions \
    scripts/install.sh install
# The pages as they lie in the repository, so that their links lead somewhere. (Programs among them
# have another mode: crates/cli/Cargo.toml names them.)
doc=$tree/usr/share/doc/extol
mkdir -p "$doc"
cp -r README.md CHANGELOG.md CONTRIBUTING.md docs "$doc"
rm "$doc"/docs/examples/*.sh
# Debian's form of a changelog: the version, and where to read on.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
maintainer=$(sed -n 's/^maintainer = "\(.*\)"/\1/p' crates/cli/Cargo.toml)
{
    printf 'extol (%s-1) unstable; urgency=medium\n\n' "$version"
    printf '  * See CHANGELOG.md in this directory.\n\n'
    printf ' -- %s  %s\n' "$maintainer" "$(git log -1 --format=%cD 2>/dev/null || date -R)"
} >"$tree/changelog"

fast=()
[ "$profile" = release ] || fast=(--fast)
package=$(cargo deb --quiet --no-build "${fast[@]}" --profile "$profile" -p extol-cli)
echo "$package"
