#!/usr/bin/env bash
# Builds the Debian package and uses it: installed in a fresh minimal Debian with a systemd of its
# own, where scripts/package/use.sh mounts by hand, from fstab and as a service, and removes the
# package again. Then the same tree by `make install PREFIX=/usr/local`.
#
#   scripts/package-test.sh [PROFILE]            quick by default
#   scripts/package-test.sh --no-build PROFILE   with what cargo has built before
#
# Needs root, FUSE, a hierarchy of control groups (version 2), and what
# scripts/install-deps.sh package installs. A minimal Debian of this machine's version comes from
# where this machine's apt has its packages; it is kept in target/ for the next run. What is missing
# skips the test, or fails it (EXTOL_NO_SKIP=1). Exit code: 0, or 1.
set -euo pipefail
cd "$(dirname "$0")/.."

missing() {
    echo "$*, so the package is not tested" >&2
    [ -z "${EXTOL_NO_SKIP:-}" ] || exit 1
    exit 0
}
[ "$(id -u)" -eq 0 ] || missing "not root"
[ -c /dev/fuse ] || missing "no /dev/fuse"
command -v mmdebstrap >/dev/null || missing "no mmdebstrap"
cargo deb --version >/dev/null 2>&1 || missing "no cargo-deb"
groups=$(findmnt -nt cgroup2 -o TARGET | head -1)
[ -w "${groups:-/none}/cgroup.procs" ] || missing "no control groups of version 2"

[ $# -gt 0 ] || set -- quick
echo "building the package"
package=$(scripts/package.sh "$@" | tail -1)

# The tests look at what is left after the end, so they need a name that nothing else has.
group=$groups/extol-package-$$
work=$(mktemp -d -p /var/tmp extol-package-XXXXXX)
end() {
    if [ -d "$group" ]; then
        echo 1 >"$group/cgroup.kill"
        for _ in $(seq 50); do
            grep -q "populated 0" "$group/cgroup.events" && break
            sleep 0.1
        done
        find "$group" -depth -type d -exec rmdir {} +
    fi
    losetup -nO NAME,BACK-FILE | grep -F "$work/" | cut -d ' ' -f 1 |
        xargs -r -n 1 losetup -d || true
    rm -rf "$work"
}
trap end EXIT

# A minimal Debian, with what the package recommends and what the test looks with.
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
kept=${CARGO_TARGET_DIR:-target}/package-root-$suite.tar
if [ ! -e "$kept" ]; then
    echo "making a minimal Debian $suite"
    mapfile -t sources < <(grep -lsE "(^|[ :])$suite( |$)" /etc/apt/sources.list \
        /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources)
    [ ${#sources[@]} -gt 0 ] || missing "apt has no sources of $suite"
    apt-config dump | grep '^Acquire::' >"$work/apt.conf"
    mmdebstrap --quiet --variant=minbase --include=bash-completion,fuse3,man-db,systemd \
        --aptopt="$work/apt.conf" "$suite" "$work/new.tar" "${sources[@]}"
    mv "$work/new.tar" "$kept"
fi
root=$work/root
mkdir "$root"
tar -xf "$kept" -C "$root"
cp "$package" "$root/extol.deb"
cp scripts/package/use.sh docs/guide/fstab-and-systemd.md "$root"

# Starts systemd as the first process of all namespaces but the network's. What systemd would set
# for the whole machine (/proc/sys, /sys) is read-only.
mkdir "$group"
(
    echo 0 >"$group/cgroup.procs"
    exec unshare --mount --pid --cgroup --ipc --uts --fork --kill-child --propagation private \
        scripts/package/boot.sh "$root"
) >"$work/systemd.log" 2>&1 &
disown
first=
for _ in $(seq 100); do
    first=$(head -n 1 "$group/init.scope/cgroup.procs" 2>/dev/null || true)
    [ -z "$first" ] || [ "$first" = 0 ] || break
    sleep 0.1
done
if [ -z "$first" ]; then
    cat "$work/systemd.log" >&2
    missing "systemd does not start here"
fi
inside() { nsenter -t "$first" -m -p -C -i -u -r -w "$@"; }

inside /bin/bash /use.sh package /extol.deb

echo "make install PREFIX=/usr/local"
installed() { make -s "$1" DESTDIR="$root" PREFIX=/usr/local PROFILE="${!#}"; }
files() { find "$root" -xdev ! -type d ! -path "$root/var/*" ! -path "$root/run/*" | sort; }
files >"$work/before"
installed install "$@"
inside /bin/bash /use.sh installed
installed uninstall "$@"
files | diff "$work/before" - || { echo "make uninstall left something" >&2; exit 1; }
