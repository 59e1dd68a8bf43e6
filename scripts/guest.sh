#!/usr/bin/env bash
# Fetches the kernel of the guest (testing/guest): Debian's linux-image-amd64, unpacked into
# target/guest/linux and never installed. Does nothing if it is there; remove target/guest for a
# newer one.
#
#   scripts/guest.sh
#
# What it leaves:
#
#   vmlinux   the kernel as an ELF file: QEMU starts it without the decompression, which takes most
#             of the time that software emulation needs from the start to the first program
#   modules   the tree of modules, without most drivers of hardware
#   version   the version of the package
#
# Needs apt-get with Debian's lists, and xz; root only if the lists are missing. Exit code: 0, or 1
# if the package cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${CARGO_TARGET_DIR:-target}/guest
mkdir -p "$to"
to=$(realpath "$to")
exec 9>"$to/lock"
flock 9
[ ! -e "$to/linux/version" ] || exit 0

rm -rf "$to"/new.*
work=$(mktemp -d "$to/new.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/package" "$work/all" "$work/linux"

# The metapackage depends on the package of the present version.
image() {
    apt-cache show --no-all-versions linux-image-amd64 2>/dev/null |
        sed -n 's/^Depends: \(linux-image-[^ ,]*\).*/\1/p'
}
fetch() {
    local name
    name=$(image)
    [ -n "$name" ] && (cd "$work/package" && apt-get download -qq "$name" 2>"$work/said")
}
if ! command -v apt-get >/dev/null; then
    echo "the guest needs apt-get: its kernel is Debian's package linux-image-amd64" >&2
    exit 1
fi
echo "fetching the kernel of the guest"
if ! fetch; then
    # The package lists are old or missing.
    sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq || true
    if ! fetch; then
        cat "$work/said" >&2 2>/dev/null || true
        echo "the guest has no kernel: apt-get finds no package linux-image-amd64" >&2
        exit 1
    fi
fi

deb=$(echo "$work"/package/*.deb)
# Drivers of hardware that QEMU's guest has not are most of the package.
without=(accel ata bluetooth bus clk comedi crypto edac firewire gpio gpu hid hwmon i2c iio
    infiniband input isdn leds media mfd misc mmc mtd net/can net/ethernet net/phy net/usb net/wan
    net/wireless net/wwan nvme pci pcmcia perf phy platform power regulator rtc soundwire spi
    staging thermal thunderbolt usb video watchdog)
skip=()
for name in "${without[@]}"; do skip+=(--exclude="./lib/modules/*/kernel/drivers/$name"); done
dpkg-deb --fsys-tarfile "$deb" | tar -C "$work/all" -x --exclude='./lib/modules/*/kernel/sound' \
    "${skip[@]}" ./boot ./lib/modules

# A bzImage is a loader with the ELF file behind it, packed by xz, and more behind that.
packed=$(echo "$work"/all/boot/vmlinuz-*)
begin=$(LC_ALL=C grep -aboP '\xfd7zXZ\x00' "$packed" | head -n 1 | cut -d : -f 1)
tail -c "+$((begin + 1))" "$packed" |
    xz --decompress --single-stream --stdout 2>"$work/said" >"$work/linux/vmlinux" ||
    [ "${PIPESTATUS[1]}" -eq 0 ] || echo "xz ended with an error" >>"$work/said"
if [ -s "$work/said" ] || [ "$(head -c 4 "$work/linux/vmlinux" | tail -c 3)" != ELF ]; then
    echo "no kernel in $(basename "$deb"): $(cat "$work/said")" >&2
    exit 1
fi
mv "$work"/all/lib/modules/* "$work/linux/modules"
dpkg-deb --field "$deb" Version >"$work/linux/version"
rm -rf "$to/linux"
mv "$work/linux" "$to/linux"
echo "the guest has Linux $(cat "$to/linux/version")"
