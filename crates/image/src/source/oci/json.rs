//! The documents of an image: index, manifest, configuration, and docker's list.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The longest document.
pub(super) const LONGEST: u64 = 4 << 20;

/// `index.json`, and indexes in it.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub manifests: Vec<Descriptor>,
}

/// What a document says of another one.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    pub size: Option<u64>,
    pub platform: Option<PlatformDoc>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A platform in an index.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PlatformDoc {
    pub os: String,
    pub architecture: String,
    pub variant: Option<String>,
}

/// A manifest.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub config: Option<Descriptor>,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
}

/// A configuration.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    pub variant: Option<String>,
    #[serde(default)]
    pub rootfs: RootFs,
}

/// The digests of the layers when they are expanded.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RootFs {
    #[serde(default)]
    pub diff_ids: Vec<String>,
}

/// An image of `manifest.json`, as `docker save` writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Saved {
    pub config: String,
    pub repo_tags: Option<Vec<String>>,
    pub layers: Vec<String>,
}

/// Reads a document. An error is for a message.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("is no such JSON document: {error}"))
}
