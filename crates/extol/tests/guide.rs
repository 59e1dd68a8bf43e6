//! The programs in Rust of the guide's page about libraries: the page has the lines that are here.

use std::error::Error;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/guide/libraries.md");

/// The first one, which works on `disk.img` in the present directory.
fn write_and_walk() -> Result<(), Box<dyn Error>> {
    use std::io::Write;

    use extol::{Ext4, MountOptions};

    let fs = Ext4::open_path("disk.img", &MountOptions::default())?;
    fs.create_dir_all("/etc/app")?;
    let mut file = fs.create_file("/etc/app/config")?;
    file.write_all(b"answer = 42\n")?;
    file.sync_all()?;
    for entry in fs.walk("/")? {
        println!("{}", entry?.path().display());
    }
    fs.unmount()?;
    Ok(())
}

/// The second one. It is only compiled here: tests do not mount on `/mnt`. `mount_in_process.rs`
/// makes the same calls.
#[cfg(feature = "fuse")]
#[allow(dead_code)]
fn mount() -> Result<(), Box<dyn Error>> {
    use extol::{Ext4, MountOptions};

    use extol::fuse::{self, MountConfig};

    let fs = Ext4::open_path("disk.img", &MountOptions::default())?;
    let mut mounted = fuse::mount(&fs, "/mnt", &MountConfig::default())?;
    std::fs::write("/mnt/hello", "from the kernel's side")?;
    mounted.unmount()?;
    fs.unmount()?;
    Ok(())
}

/// A line without what is behind it for readers.
fn code(line: &str) -> &str {
    line.split(" // ").next().unwrap_or(line).trim()
}

/// All lines of the programs on the page are here, in that order and with none between them.
#[test]
fn the_page_has_these_programs() {
    let lines_of = |text: &'static str| {
        text.lines().map(code).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    let own = lines_of(include_str!("guide.rs"));
    let blocks: Vec<_> = PAGE.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let block = block.split("```").next().expect("its end");
        let lines = lines_of(block);
        assert!(lines.len() >= 5, "{block}");
        let is_here = own.windows(lines.len()).any(|here| here == lines);
        assert!(is_here, "not in tests/guide.rs:\n{block}");
    }
}

#[test]
fn the_first_program_works() {
    let scratch = tempfile::tempdir().expect("a directory");
    let image = scratch.path().join("disk.img");
    let options = extol::mkfs::MkfsOptions { size: Some(16 << 20), ..Default::default() };
    extol::image::mkfs_file(&image, &options, &mut |_| {}).expect("mkfs");
    std::env::set_current_dir(scratch.path()).expect("chdir");
    write_and_walk().expect("the program");
    let options = extol::MountOptions::default().read_only();
    let fs = extol::Ext4::open_path(Path::new("disk.img"), &options).expect("open");
    assert_eq!(fs.read_file("/etc/app/config").expect("read"), b"answer = 42\n");
}
