//! Container images as a source: an OCI layout, or what `docker save` and `podman save` write.
//!
//! An image is a list of layers, each an archive that is put over those below it. It is stored in
//! a directory, or in an archive, which is listed like any other and then found to hold an image.
//!
//! ```text
//!   index.json ─► index ─► manifest ─► layers      by digest: blobs/sha256/...
//!   manifest.json ───────► config ───► layers      by name, digests in the configuration
//!                                        │
//!                blob ─ digest ─ expand ─ digest ─► entries ─► tree
//! ```
//!
//! - OC-1: every byte of an image that is used has the digest that the image states for it.
//! - OC-2: digests and names of an image reach the host as names only if they are names below the
//!   directory that holds the image, and through no link.
//! - OC-3: a whiteout takes away what lower layers have put there, wherever it stands in its layer.

mod digest;
mod files;
mod json;
mod platform;
mod select;
#[cfg(test)]
mod tests;

use std::io::{BufReader, Read};
use std::path::Path;

use extol_proc::bytes_of;
pub use platform::Platform;

use self::digest::Checked;
use self::files::Files;
use self::select::{Layer, Select};
use super::expand::{Compression, decoder};
use super::pieces::{HolderNr, Pieces};
use super::spool::Spool;
use super::tar::{Archive, Entry, Input};
use super::{FileData, Source};
use crate::error::{BuildError, Result};
use crate::tree::{DataRef, Kind, NodeId, TreeBuilder};

/// How much of a layer is read at once.
const BUFFER: usize = 128 << 10;

/// Which image is meant, if several are stored together.
#[derive(Clone, Debug, Default)]
pub struct OciOptions {
    /// The platform that it is for; this machine's, if there are several.
    pub platform: Option<Platform>,
    /// Its name, or the end of it.
    pub image: Option<String>,
}

/// An OCI layout in a directory.
#[derive(Debug)]
pub struct OciSource {
    name: Vec<u8>,
    files: Files,
    options: OciOptions,
    store: Store,
}

/// Where the contents of files are.
#[derive(Debug)]
pub(super) struct Store {
    pub pieces: Pieces,
    pub spool: Spool,
    /// The spool, if something is in it.
    pub spooled: Option<HolderNr>,
}

impl Store {
    pub fn new(spool: &Path) -> Self {
        Self { pieces: Pieces::default(), spool: Spool::new(spool), spooled: None }
    }

    /// The spool as a holder.
    pub fn spooled(&mut self) -> Result<HolderNr> {
        if let Some(holder) = self.spooled {
            return Ok(holder);
        }
        let holder = self.pieces.holder(self.spool.file()?, b"spool", false)?;
        Ok(*self.spooled.insert(holder))
    }
}

impl OciSource {
    /// Opens a directory. Layers that are compressed are spooled in the directory `spool`.
    ///
    /// # Errors
    /// If it is not there, or may not be read.
    pub fn open(path: &Path, spool: &Path, options: OciOptions) -> Result<Self> {
        let (files, store) = (Files::dir(path)?, Store::new(spool));
        Ok(Self { name: bytes_of(path).to_vec(), files, options, store })
    }

    /// True if a directory holds an image.
    #[must_use]
    pub fn is_layout(path: &Path) -> bool {
        let is_file =
            |name: &str| path.join(name).symlink_metadata().is_ok_and(|meta| meta.is_file());
        is_file("oci-layout") && is_file("index.json")
    }
}

impl Source for OciSource {
    fn scan(&mut self, into: &mut TreeBuilder) -> Result<()> {
        let Self { name, files, options, store } = self;
        match unpack(name, files, options, store, into)? {
            true => Ok(()),
            false => Err(BuildError::entry(name, "holds no container image")),
        }
    }

    fn reader(&self, data: DataRef) -> Result<Box<dyn FileData + '_>> {
        self.store.pieces.reader(data)
    }
}

/// Puts the layers of an image into a tree that was empty. False if no image is stored there.
fn unpack(
    name: &[u8],
    files: &Files,
    options: &OciOptions,
    store: &mut Store,
    into: &mut TreeBuilder,
) -> Result<bool> {
    let layers = Select { name, files, pieces: &mut store.pieces, options }.layers()?;
    let Some(layers) = layers else { return Ok(false) };
    for layer in layers {
        into.next_layer();
        let name = [name, b": ", layer.name.as_bytes()].concat();
        apply(&name, layer, store, into)?;
    }
    Ok(true)
}

/// An archive that was listed into a tree: if it holds an image, the tree becomes that image's.
pub(super) fn unpack_archive(
    name: &[u8],
    options: &OciOptions,
    store: &mut Store,
    into: &mut TreeBuilder,
) -> Result<()> {
    let no_image = || Err(BuildError::entry(name, "holds no container image"));
    if !holds_image(&store.pieces, into) {
        let is_wanted = options.platform.is_some() || options.image.is_some();
        return if is_wanted { no_image() } else { Ok(()) };
    }
    let limits = *into.limits();
    let files = Files::Archive(std::mem::replace(into, TreeBuilder::new(limits)).finish());
    if unpack(name, &files, options, store, into)? { Ok(()) } else { no_image() }
}

/// True for the two lists that an image begins with. A file of docker's name may be anything.
fn holds_image(pieces: &Pieces, tree: &TreeBuilder) -> bool {
    let child = |name: &[u8]| tree.child(NodeId::ROOT, name);
    if child(b"oci-layout").is_some() && child(b"index.json").is_some() {
        return true;
    }
    let Some(Kind::File { size, data }) = child(b"manifest.json").map(|node| tree.node(node).kind)
    else {
        return false;
    };
    if size > json::LONGEST {
        return false;
    }
    let mut bytes = vec![0; size as usize];
    let read = pieces.reader(data).map(|mut reader| reader.read_at(0, &mut bytes));
    matches!(read, Ok(Ok(_)))
        && json::parse::<Vec<json::Saved>>(&bytes).is_ok_and(|list| !list.is_empty())
}

/// One layer.
fn apply(name: &[u8], layer: Layer, store: &mut Store, into: &mut TreeBuilder) -> Result<()> {
    let failed = |error: std::io::Error| match error.downcast::<BuildError>() {
        Ok(error) => error,
        Err(error) => BuildError::entry(name, error),
    };
    let Layer { blob, digest, expanded, .. } = layer;
    let mut first = [0; Compression::PREFIX];
    let len = blob.reader(&store.pieces).read(&mut first).map_err(failed)?;
    let compression = Compression::of(&first[..len]);
    let raw = Checked::new(blob.reader(&store.pieces), digest);
    let input = if compression == Compression::None {
        // Contents stay where they are; so the digest is compared first.
        let mut checked = Checked::new(raw, expanded);
        std::io::copy(&mut checked, &mut std::io::sink()).map_err(failed)?;
        Input::file(&store.pieces, blob.holder, blob.at..blob.at + blob.len, name)
    } else {
        let raw = BufReader::with_capacity(BUFFER, raw);
        let stream = decoder(compression, raw, into.limits())
            .map_err(|error| BuildError::entry(name, error))?;
        let holder = store.spooled()?;
        let stream = Box::new(Checked::new(stream, expanded));
        Input::stream(stream, &mut store.spool, holder, name)
    };
    let mut archive = Archive::new(input, &mut store.pieces).of_digest();
    while let Some(entry) = archive.next(into)? {
        add(entry, into)?;
    }
    drop(archive);
    store.spool.finish()
}

/// An entry of a layer: a file, or what it takes away.
fn add(entry: Entry, into: &mut TreeBuilder) -> Result<()> {
    const WHITEOUT: &[u8] = b".wh.";
    const OPAQUE: &[u8] = b".wh..wh..opq";
    const OF_AUFS: &[u8] = b".wh..wh.";
    let path = &entry.path;
    let slashes = path.iter().rev().take_while(|&&byte| byte == b'/').count();
    let path = &path[..path.len() - slashes];
    let end = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (above, last) = path.split_at(end);
    if last == OPAQUE {
        return into.hide_lower(above);
    }
    // What aufs keeps for itself.
    if path.split(|&byte| byte == b'/').any(|part| part.starts_with(OF_AUFS)) {
        return Ok(());
    }
    match last.strip_prefix(WHITEOUT) {
        Some(b"" | b"." | b"..") => {
            let why = "is a whiteout of no name";
            Err(BuildError::entry(path, why))
        }
        Some(name) => into.white_out(&[above, name].concat()),
        None => entry.add(into),
    }
}
