//! How the requests of mounts under test come to Extol.

/// The option that was asked for with `EXTOL_TEST_TRANSPORT`: `io_uring`, or `device` for
/// `/dev/fuse`. `None`: what Extol does by itself on this machine.
///
/// # Panics
/// If it is something else.
#[must_use]
pub fn transport_option() -> Option<&'static str> {
    match std::env::var("EXTOL_TEST_TRANSPORT").ok()?.as_str() {
        "io_uring" => Some("io_uring"),
        "device" => Some("noio_uring"),
        other => panic!("EXTOL_TEST_TRANSPORT is {other:?}, neither io_uring nor device"),
    }
}

/// True if the mounts of this run have their requests over io_uring.
#[must_use]
pub fn over_io_uring() -> bool {
    transport_option().map_or_else(offers_io_uring, |option| option == "io_uring")
}

/// True if this machine's kernel offers mounts io_uring.
#[must_use]
pub fn offers_io_uring() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
        .is_ok_and(|text| text == "Y\n")
}
