//! Which of the images that are stored together is meant, and its layers.

use extol_vfs::plain;

use super::OciOptions;
use super::digest::Digest;
use super::files::{Blob, Files};
use super::json::{self, Config, Descriptor, Index, Manifest, Saved};
use super::platform::Platform;
use crate::error::{BuildError, Result};
use crate::source::pieces::Pieces;

/// A layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub blob: Blob,
    /// Its name, for messages.
    pub name: String,
    /// What the blob must be.
    pub digest: Option<Digest>,
    /// What must come out of it.
    pub expanded: Option<Digest>,
}

/// The most layers of an image, and images of an index.
const MOST: usize = 512;
/// How many indexes lead to an index.
const DEPTH: u32 = 4;
/// The annotation with the name of an image.
const NAME: &str = "org.opencontainers.image.ref.name";

/// A search under way.
pub(super) struct Select<'s> {
    pub name: &'s [u8],
    pub files: &'s Files,
    pub pieces: &'s mut Pieces,
    pub options: &'s OciOptions,
}

/// An image that may be meant.
struct Found {
    digest: Digest,
    platform: Option<Platform>,
    name: Option<String>,
}

impl Select<'_> {
    fn refuse<T>(&self, why: impl std::fmt::Display) -> Result<T> {
        Err(BuildError::entry(self.name, why))
    }

    /// The layers of the image, the lowest first. `None` if no image is stored there.
    pub fn layers(&mut self) -> Result<Option<Vec<Layer>>> {
        if self.files.find("oci-layout", self.pieces)?.is_some()
            && let Some(index) = self.files.document("index.json", self.pieces)?
        {
            return self.of_layout(&index).map(Some);
        }
        let Some(list) = self.files.document("manifest.json", self.pieces)? else {
            return Ok(None);
        };
        // A file of that name may be anything.
        match json::parse::<Vec<Saved>>(&list) {
            Ok(saved) if !saved.is_empty() => self.of_saved(saved).map(Some),
            _ => Ok(None),
        }
    }

    fn of_layout(&mut self, index: &[u8]) -> Result<Vec<Layer>> {
        let index: Index = self.parsed("index.json", index)?;
        let mut found = Vec::new();
        self.collect(index, None, DEPTH, &mut found)?;
        let chosen = self.choose(found)?;
        let manifest: Manifest = self.blob_document(&chosen)?;
        if manifest.layers.len() > MOST {
            return self.refuse(format!("has an image of more than {MOST} layers"));
        }
        let ids = self.diff_ids(&manifest)?;
        let layers = manifest.layers.iter().enumerate();
        layers.map(|(nr, layer)| self.layer(nr, layer, ids.get(nr))).collect()
    }

    /// What must come out of each layer, if the configuration says so.
    fn diff_ids(&mut self, manifest: &Manifest) -> Result<Vec<Digest>> {
        let Some(config) = &manifest.config else { return Ok(Vec::new()) };
        let digest = self.digest(config)?;
        let config: Config = self.blob_document(&digest)?;
        let ids = config.rootfs.diff_ids;
        // What is no image of a container has layers only.
        if !ids.is_empty() && ids.len() != manifest.layers.len() {
            return self.refuse("has an image whose layers are not those of its configuration");
        }
        let parsed: Option<Vec<_>> = ids.iter().map(|id| Digest::parse(id)).collect();
        match parsed {
            Some(parsed) => Ok(parsed),
            None => self.refuse("has a configuration with a diff_id that is no digest"),
        }
    }

    /// All images of an index.
    fn collect(
        &mut self,
        index: Index,
        name: Option<&str>,
        depth: u32,
        found: &mut Vec<Found>,
    ) -> Result<()> {
        for entry in index.manifests {
            let digest = self.digest(&entry)?;
            let own = entry.annotations.get(NAME).map(String::as_str).or(name);
            if entry.media_type.contains("index") || entry.media_type.contains("manifest.list") {
                if depth == 0 {
                    return self.refuse("has indexes in indexes that do not end");
                }
                let index: Index = self.blob_document(&digest)?;
                self.collect(index, own, depth - 1, found)?;
                continue;
            }
            let platform = entry.platform.as_ref().map(Platform::from);
            if platform.as_ref().is_some_and(Platform::is_unknown) {
                continue;
            }
            if found.len() == MOST {
                return self.refuse(format!("has more than {MOST} images"));
            }
            found.push(Found { digest, platform, name: own.map(str::to_owned) });
        }
        Ok(())
    }

    /// The one that is meant.
    fn choose(&mut self, mut found: Vec<Found>) -> Result<Digest> {
        if found.is_empty() {
            return self.refuse("has no image");
        }
        if let Some(wanted) = &self.options.image {
            let names = listed(found.iter().filter_map(|one| one.name.as_deref()));
            found.retain(|one| one.name.as_deref().is_some_and(|name| is_named(name, wanted)));
            if found.is_empty() {
                return self.refuse(format!("has no image '{}': it has {names}", plain(wanted)));
            }
        }
        let wanted = match &self.options.platform {
            Some(platform) => Some(platform.clone()),
            None if found.len() > 1 => Some(Platform::host()),
            None => None,
        };
        if let Some(wanted) = wanted {
            let mut platforms = Vec::new();
            for one in &mut found {
                if one.platform.is_none() {
                    one.platform = self.platform_of(&one.digest)?;
                }
                platforms.extend(one.platform.as_ref().map(Platform::to_string));
            }
            found.retain(|one| one.platform.as_ref().is_none_or(|own| wanted.takes(own)));
            if found.is_empty() {
                let platforms = listed(platforms.iter().map(String::as_str));
                return self.refuse(format!(
                    "has no image for {wanted}: choose one with --platform, of {platforms}"
                ));
            }
        }
        // Two names may stand for one image.
        let first = &found[0];
        let is_other = |one: &Found| {
            // Variants of one platform are one image.
            let is_variant = one.name == first.name && one.platform != first.platform;
            one.digest != first.digest && !is_variant
        };
        if found.iter().any(is_other) {
            let names = listed(found.iter().filter_map(|one| one.name.as_deref()));
            return self.refuse(format!("has several images: choose one with --image, of {names}"));
        }
        Ok(first.digest.clone())
    }

    /// The platform that the configuration of an image states.
    fn platform_of(&mut self, manifest: &Digest) -> Result<Option<Platform>> {
        let manifest: Manifest = self.blob_document(manifest)?;
        let Some(config) = manifest.config else { return Ok(None) };
        let digest = self.digest(&config)?;
        let config: Config = self.blob_document(&digest)?;
        Ok((!config.architecture.is_empty()).then(|| Platform::from(&config)))
    }

    fn layer(&mut self, nr: usize, layer: &Descriptor, expanded: Option<&Digest>) -> Result<Layer> {
        let digest = self.digest(layer)?;
        let name = format!("layer {} ({digest})", nr + 1);
        let kind = &layer.media_type;
        let suffix = kind.rsplit_once("tar").map(|(_, suffix)| suffix);
        let known = kind.starts_with("application/vnd.oci.image.layer.")
            || kind.starts_with("application/vnd.docker.image.rootfs.");
        if !known || !matches!(suffix, Some("" | "+gzip" | "+zstd" | ".gzip")) {
            let kind = plain(kind).into_owned();
            return self.refuse(format!("{name}: is of the type '{kind}', which is not supported"));
        }
        let Some(blob) = self.files.find(&digest.path(), self.pieces)? else {
            return self
                .refuse(format!("{name}: is not there: store the image with all its layers"));
        };
        if layer.size.is_some_and(|size| size != blob.len) {
            return self.refuse(format!("{name}: has another size than the manifest states"));
        }
        Ok(Layer { blob, name, digest: Some(digest), expanded: expanded.cloned() })
    }

    /// The image of docker's list.
    fn of_saved(&mut self, saved: Vec<Saved>) -> Result<Vec<Layer>> {
        let tags: Vec<_> = saved.iter().flat_map(|one| one.repo_tags.iter().flatten()).collect();
        let tags = listed(tags.into_iter().map(String::as_str));
        let wanted = self.options.image.as_deref();
        let is_meant = |one: &Saved| match wanted {
            Some(wanted) => one.repo_tags.iter().flatten().any(|tag| is_named(tag, wanted)),
            None => true,
        };
        let mut meant: Vec<_> = saved.into_iter().filter(is_meant).collect();
        let image = match (meant.pop(), meant.is_empty()) {
            (Some(image), true) => image,
            (Some(_), false) => {
                return self
                    .refuse(format!("has several images: choose one with --image, of {tags}"));
            }
            (None, _) => {
                let wanted = plain(wanted.unwrap_or_default()).into_owned();
                return self.refuse(format!("has no image '{wanted}': it has {tags}"));
            }
        };
        let Some(bytes) = self.files.document(&image.config, self.pieces)? else {
            return self.refuse("has no configuration of its image");
        };
        let config: Config = self.parsed(&image.config, &bytes)?;
        let own = Platform::from(&config);
        if let Some(wanted) = &self.options.platform
            && !wanted.takes(&own)
        {
            return self.refuse(format!("has no image for {wanted}: it has one for {own}"));
        }
        let ids = config.rootfs.diff_ids;
        if image.layers.len() > MOST || image.layers.len() != ids.len() {
            return self.refuse("has an image whose layers are not those of its configuration");
        }
        let layers = image.layers.iter().zip(&ids).enumerate();
        layers.map(|(nr, (name, id))| self.saved_layer(nr, name, id)).collect()
    }

    fn saved_layer(&mut self, nr: usize, file: &str, id: &str) -> Result<Layer> {
        let Some(expanded) = Digest::parse(id) else {
            let id = plain(id).into_owned();
            return self.refuse(format!("layer {}: '{id}' is no digest", nr + 1));
        };
        let name = format!("layer {} ({expanded})", nr + 1);
        let Some(blob) = self.files.find(file, self.pieces)? else {
            return self
                .refuse(format!("{name}: is not there: store the image with all its layers"));
        };
        Ok(Layer { blob, name, digest: None, expanded: Some(expanded) })
    }

    fn digest(&self, descriptor: &Descriptor) -> Result<Digest> {
        match Digest::parse(&descriptor.digest) {
            Some(digest) => Ok(digest),
            None => {
                let text: String = descriptor.digest.chars().take(100).collect();
                self.refuse(format!("'{}' is no digest of sha256 or sha512", plain(&text)))
            }
        }
    }

    /// A document that is known by its digest.
    fn blob_document<T: serde::de::DeserializeOwned>(&mut self, digest: &Digest) -> Result<T> {
        let Some(bytes) = self.files.document(&digest.path(), self.pieces)? else {
            return self.refuse(format!("{digest}: is not there: store the image as a whole"));
        };
        if !digest.is_of(&bytes) {
            return self.refuse(format!(
                "{digest}: its contents do not have that digest: the image is damaged"
            ));
        }
        self.parsed(&digest.to_string(), &bytes)
    }

    fn parsed<T: serde::de::DeserializeOwned>(&self, name: &str, bytes: &[u8]) -> Result<T> {
        json::parse(bytes).or_else(|why| {
            let name: String = name.chars().take(100).collect();
            self.refuse(format!("{}: {}", plain(&name), plain(&why)))
        })
    }
}

/// `debian:12` is `docker.io/library/debian:12`, and `12` is its last part.
fn is_named(name: &str, wanted: &str) -> bool {
    name == wanted
        || name.strip_suffix(wanted).is_some_and(|rest| rest.ends_with('/') || rest.ends_with(':'))
}

/// Names for a message: a few of them.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut all: Vec<_> = names.map(|name| name.chars().take(100).collect::<String>()).collect();
    all.sort();
    all.dedup();
    let more = if all.len() > 10 { ", ..." } else { "" };
    all.truncate(10);
    match all.is_empty() {
        true => "images without names".into(),
        false => format!("{}{more}", plain(&all.join(", "))),
    }
}
