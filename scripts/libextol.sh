#!/usr/bin/env bash
# libextol for C: builds the shared and the static library and puts them, the header and the file of
# pkg-config where programs find them.
#
#   scripts/libextol.sh             into target/libextol
#   scripts/libextol.sh install     into PREFIX (/usr/local), below DESTDIR
#   scripts/libextol.sh --test      builds, and runs bindings/c/tests/library.c against it: plainly,
#                                   with sanitisers, under valgrind; and the examples
#   scripts/libextol.sh --from-tests --test   the same with the archive that the build of all tests
#                                   has made on its way: nothing is compiled for it (PROFILE=dev)
#   PROFILE=quick                   cargo's profile
#
# Needs a C compiler; for the tests what scripts/install-deps.sh brings. Exit code: 0, or 1.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${PROFILE:-quick}
target=${CARGO_TARGET_DIR:-target}
out=$target/libextol
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
major=${version%%.*}
cc=${CC:-cc}
from_tests=
if [ "${1:-}" = --from-tests ]; then
    from_tests=1
    shift
fi

# The archive of the library, built first.
archive() {
    local dir=$profile
    [ "$profile" != dev ] || dir=debug
    if [ -n "$from_tests" ]; then
        scripts/built-by-tests.sh libextol_c .a
        return
    fi
    cargo build --quiet --profile "$profile" -p extol-c --lib
    echo "$target/$dir/libextol_c.a"
}
build() {
    rm -rf "$out"
    mkdir -p "$out/lib/pkgconfig" "$out/include"
    local archive private
    archive=$(archive)
    # What the system has to give a program that links the archive, the compiler says of any.
    rustc --edition 2024 --crate-type staticlib --print "native-static-libs=$out/private" \
        -o "$out/empty.a" - </dev/null 2>/dev/null
    rm "$out/empty.a"
    private=$(tr '\n' ' ' <"$out/private")
    private=${private% }
    cp "$archive" "$out/lib/libextol.a"
    # The shared library is linked here: cargo has no versions for symbols.
    read -ra system <<<"$private"
    "$cc" -shared -o "$out/lib/libextol.so.$version" -Wl,-soname,"libextol.so.$major" \
        -Wl,--version-script=bindings/c/libextol.map -Wl,--gc-sections -Wl,-z,relro,-z,now \
        -Wl,-u,extol_version -Wl,--whole-archive "$out/lib/libextol.a" -Wl,--no-whole-archive \
        "${system[@]}"
    ln -s "libextol.so.$version" "$out/lib/libextol.so.$major"
    ln -s "libextol.so.$major" "$out/lib/libextol.so"
    strip --strip-debug "$out/lib/libextol.so.$version" "$out/lib/libextol.a"
    cp bindings/c/include/extol.h "$out/include/"
    write_pc "$(realpath "$out")" >"$out/lib/pkgconfig/extol.pc"
}
write_pc() {
    local private
    # (The compiler knows its own library, which has another name in a static program.)
    private=$(tr '\n' ' ' <"$out/private" | sed 's/-lgcc_s //')
    sed "s|@PREFIX@|$1|; s|@VERSION@|$version|; s|@PRIVATE@|${private% }|" bindings/c/extol.pc.in
}

install_to() {
    local prefix=${PREFIX:-/usr/local}
    local root=${DESTDIR:-}$prefix
    install -d "$root/lib/pkgconfig" "$root/include"
    install -m 644 "$out/include/extol.h" "$root/include/"
    install -m 644 "$out/lib/libextol.a" "$root/lib/"
    install -m 755 "$out/lib/libextol.so.$version" "$root/lib/"
    ln -sf "libextol.so.$version" "$root/lib/libextol.so.$major"
    ln -sf "libextol.so.$major" "$root/lib/libextol.so"
    write_pc "$prefix" >"$root/lib/pkgconfig/extol.pc"
}

run_tests() {
    local flags private
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    export PKG_CONFIG_PATH=$out/lib/pkgconfig LD_LIBRARY_PATH=$(realpath "$out/lib")
    read -ra flags <<<"$(pkg-config --cflags --libs extol)"
    read -ra private <<<"$(cat "$out/private")"
    local warnings=(-std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror)

    echo "symbols"
    # Nothing else is seen, and all have their version.
    nm -D --defined-only "$out/lib/libextol.so" | awk '$2 != "A" { print $3 }' >"$work/symbols"
    if grep -v '^extol_[a-z_0-9]*@@LIBEXTOL_0\.1$' "$work/symbols"; then
        echo "these symbols are not of the interface" >&2
        return 1
    fi
    local name
    for name in $(grep -oE '\bextol_[a-z_0-9]+\(' "$out/include/extol.h" | tr -d '(' | sort -u); do
        grep -q "^$name@@" "$work/symbols" || { echo "$name is not there" >&2; return 1; }
    done

    test_program() {
        local name=$1 runner=("${@:2}")
        echo "$name"
        mkdir "$work/$name.d"
        "${runner[@]}" "$work/$name" "$work/$name.d/one.img" "$work/$name.d/two.img" \
            bindings/c/tests
        e2fsck -fn "$work/$name.d/one.img" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
    }
    "$cc" "${warnings[@]}" bindings/c/tests/library.c -o "$work/shared" "${flags[@]}"
    test_program shared
    "$cc" "${warnings[@]}" -Ibindings/c/include bindings/c/tests/library.c -o "$work/static" \
        "$out/lib/libextol.a" "${private[@]}"
    test_program static
    "$cc" "${warnings[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all \
        bindings/c/tests/library.c -o "$work/sanitised" "${flags[@]}"
    test_program sanitised
    cp "$work/shared" "$work/valgrind"
    # (It does not see what the kernel writes through io_uring, so all that was read is undefined.)
    test_program valgrind valgrind --quiet --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite --show-leak-kinds=definite --fair-sched=yes \
        --undef-value-errors=no

    echo "examples"
    "$cc" "${warnings[@]}" bindings/c/examples/list.c -o "$work/list" "${flags[@]}"
    "$cc" "${warnings[@]}" bindings/c/examples/build.c -o "$work/build" "${flags[@]}"
    "$work/build" "$work/new.img" bindings/c 2>/dev/null
    e2fsck -fn "$work/new.img" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
    "$work/list" "$work/new.img" | grep -q ' /include/extol\.h$'
    "$work/list" "$work/new.img" /include/extol.h | cmp - bindings/c/include/extol.h
    # The program of the guide, as it stands there.
    sed -n '/^```c$/,/^```$/{/^```/!p}' docs/guide/libraries.md >"$work/program.c"
    "$cc" "${warnings[@]}" "$work/program.c" -o "$work/program" "${flags[@]}"
    mkdir -p "$work/tree/etc"
    echo hello >"$work/tree/etc/motd"
    "$work/build" "$work/disk.img" "$work/tree" 2>/dev/null
    [ "$(cd "$work" && ./program)" = "6 bytes" ]
    # The header is C++, too.
    echo '#include <extol.h>
int main() { return extol_version() == nullptr; }' >"$work/plus.cc"
    c++ -Wall -Wextra -Werror "$work/plus.cc" -o "$work/plus" "${flags[@]}"
    "$work/plus"
}

case ${1:-} in
    '') build; echo "libextol $version is in $out" ;;
    install) build; install_to ;;
    --test) build; run_tests; echo "libextol: all passed" ;;
    *) sed -n '2,12p' "$0" | sed 's/^# \?//' >&2; exit 2 ;;
esac
