#!/usr/bin/env bash
# Fetches a newer e2fsck than the system's: the static one of Debian's unstable suite, unpacked into
# target/e2fsprogs and never installed. The comparison of `extol check` with e2fsck uses it beside
# the system's. Does nothing if it is there.
#
#   scripts/newest-e2fsprogs.sh
#
# What it leaves:
#
#   e2fsck    the program
#   version   the version of the package
#
# The version is the one below, whose package has the checksum below. Where the suite has it no
# more, the suite's present one is taken, which apt checks by the signature of the suite; a line
# says so. EXTOL_E2FSCK=PROGRAM makes the tests use another program than this one.
#
# Needs apt-get with Debian's lists and keys, and the network; root only if the lists are missing.
# Exit code: 0, or 1 if the package cannot be had.
set -euo pipefail
version=1.47.4-1+b2
sha256_amd64=29e414d2fa56bfd624e6d861d9c4a0205b7a0e72f1aeb2fccb93df9ddd78a90a

cd "$(dirname "$0")/.."
to=${CARGO_TARGET_DIR:-target}/e2fsprogs
mkdir -p "$to"
to=$(realpath "$to")
exec 9>"$to/lock"
flock 9
[ ! -e "$to/version" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "a newer e2fsck needs apt-get: it is Debian's package e2fsck-static" >&2
    exit 1
fi
rm -rf "$to"/new.*
work=$(mktemp -d "$to/new.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/all"

# The archive of the system, with lists of their own: its suite and its lists stay as they are.
targets=(apt-get indextargets 'Created-By: Packages' 'Origin: Debian' 'Label: Debian')
mirror=$("${targets[@]}" --format '$(REPO_URI)' | head -n 1)
if [ -z "$mirror" ]; then
    # The package lists are missing.
    sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq || true
    mirror=$("${targets[@]}" --format '$(REPO_URI)' | head -n 1)
fi
if [ -z "$mirror" ]; then
    echo "a newer e2fsck is a package of Debian's: apt-get knows no archive of Debian" >&2
    exit 1
fi
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $mirror sid main" >"$work/sources"
own=(-o "Dir::Etc::sourcelist=$work/sources" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
    -o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
fetch() { (cd "$work" && apt-get "${own[@]}" download -qq "$1" 2>"$work/said"); }
echo "fetching a newer e2fsck"
if ! apt-get "${own[@]}" update -qq 2>"$work/said" ||
    ! { fetch "e2fsck-static=$version" || fetch e2fsck-static; }; then
    cat "$work/said" >&2
    echo "there is no newer e2fsck: apt-get finds no package e2fsck-static" >&2
    exit 1
fi

deb=$(echo "$work"/*.deb)
found=$(dpkg-deb --field "$deb" Version)
if [ "$found" != "$version" ]; then
    echo "the suite has e2fsprogs $found, not $version" >&2
elif [ "$(dpkg-deb --field "$deb" Architecture)" = amd64 ] &&
    ! echo "$sha256_amd64  $deb" | sha256sum --check --quiet; then
    echo "the package $(basename "$deb") is not the one that was known" >&2
    exit 1
fi
dpkg-deb --fsys-tarfile "$deb" | tar -C "$work/all" -x --wildcards '*/sbin/e2fsck.static'
mv "$(find "$work/all" -name e2fsck.static)" "$to/e2fsck"
echo "$found" >"$to/version"
echo "the newer e2fsck is $found"
