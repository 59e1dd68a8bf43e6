//! mount.extol(8), the page of the mount helper: `-f` and `-s` mean something else there than for
//! `extol mount`.

use clap_mangen::roff::{Roff, bold, italic, roman};

/// Options, and what they do.
const OPTIONS: [(&str, &str); 8] = [
    ("-o OPTIONS", "mount options; the list is in extol-mount(1)"),
    ("-f", "do everything but mount (fake): check options and paths, and end without mounting"),
    ("-s", "let unknown options pass (sloppy)"),
    ("-v", "print each step"),
    ("-r", "the same as -o ro"),
    ("-w", "mount read-write or not at all"),
    ("-n, -t TYPE", "no effect"),
    ("-h, --help", "print the usage"),
];

/// The page.
pub(super) fn page() -> String {
    let version = concat!("extol ", env!("CARGO_PKG_VERSION"));
    let mut roff = Roff::new();
    roff.control("TH", ["mount.extol", "8", "", version, "Extol"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("mount.extol, mount.fuse.extol - mount helpers of Extol")]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([
        bold("mount.extol"),
        roman(" "),
        italic("SOURCE DIR"),
        roman(" [-fnrsvw] [-t TYPE] [-o OPTIONS]"),
    ]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "mount(8) calls these links to extol for mounts of type extol and fuse.extol, from \
         /etc/fstab too. They mount as extol mount does, in the background.",
    )]);
    roff.control("PP", []);
    roff.text([roman(
        "The options are those of every mount helper. Two of them mean something else for extol \
         mount: there -f stays in the foreground, and -s serves requests in one thread.",
    )]);
    roff.control("PP", []);
    roff.text([roman(
        "mount(8) keeps options that begin with x- to itself; of these the helper reads \
         x-extol.metrics= from the line of DIR in /etc/fstab.",
    )]);
    roff.control("SH", ["OPTIONS"]);
    for (names, text) in OPTIONS {
        roff.control("TP", []).text([bold(names)]).text([roman(text)]);
    }
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    roff.text([roman("  mount -t extol -o noatime /dev/sdb1 /mnt")]);
    roff.text([roman("  /dev/sdb1  /mnt  fuse.extol  defaults,noatime  0  2")]);
    roff.control("fi", []);
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman("As of extol-mount(1).")]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("extol-mount(1), extol-umount(1), fstab(5), mount(8)")]);
    roff.to_roff()
}
