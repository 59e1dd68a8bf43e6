# An empty CARGO_HOME for scripts that source this file.
#
#   fresh_cargo_home    makes it, and exports CARGO_HOME and PATH; the caller removes the directory
#
# Its `bin` takes the place of the machine's in PATH. It has the programs of rustup, by links, and
# what `cargo install` puts there, which cargo and the shell find; what was installed into the
# machine's own is out of sight. Cargo's configuration is that of the machine: where registries are,
# and how they are reached.

fresh_cargo_home() {
    local old=${CARGO_HOME:-$HOME/.cargo} new name
    new=$(mktemp -d -t extol-cargo-home-XXXXXX)
    mkdir "$new/bin"
    for name in cargo cargo-clippy cargo-fmt clippy-driver rustc rustdoc rustfmt rustup; do
        [ ! -x "$old/bin/$name" ] || ln -s "$old/bin/$name" "$new/bin/$name"
    done
    for name in config.toml config; do
        [ ! -e "$old/$name" ] || ln -s "$(realpath "$old/$name")" "$new/$name"
    done
    PATH=$new/bin:$(tr : '\n' <<<"$PATH" | grep -vxF -e "$old/bin" | paste -sd :)
    CARGO_HOME=$new
    export CARGO_HOME PATH
}
