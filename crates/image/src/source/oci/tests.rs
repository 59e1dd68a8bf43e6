//! Tests of container images. What umoci unpacks is the oracle.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use extol_testkit::{Need, Scratch, require, run_ok};
use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{OciOptions, OciSource, Platform};
use crate::error::Result;
use crate::source::compare::{Listing, assert_same, list, list_dir, listing};
use crate::source::maker::Maker;
use crate::source::{Source, SourceOptions, TarSource, open};
use crate::tree::{Limits, TreeBuilder};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A layout that is made by hand.
struct Layout(PathBuf);

impl Layout {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(dir.join("blobs/sha256")).expect("mkdir");
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("write");
        Self(dir)
    }

    fn blob(&self, bytes: &[u8]) -> String {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(self.0.join("blobs/sha256").join(&hex), bytes).expect("write");
        format!("sha256:{hex}")
    }

    /// A manifest with these layers.
    fn image(&self, layers: &[Vec<u8>], architecture: &str) -> serde_json::Value {
        self.image_of(layers, &json!({"os": "linux", "architecture": architecture}))
    }

    fn image_of(&self, layers: &[Vec<u8>], config: &serde_json::Value) -> serde_json::Value {
        let config = config.to_string();
        let layers: Vec<_> = layers
            .iter()
            .map(|bytes| {
                json!({"mediaType": LAYER, "digest": self.blob(bytes), "size": bytes.len()})
            })
            .collect();
        let config = json!({
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": self.blob(config.as_bytes()), "size": config.len(),
        });
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string();
        let digest = self.blob(manifest.as_bytes());
        json!({"mediaType": MANIFEST, "digest": digest, "size": manifest.len()})
    }

    fn index(&self, manifests: &[serde_json::Value]) {
        let index = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
        fs::write(self.0.join("index.json"), index).expect("write");
    }
}

fn scan(mut source: impl Source) -> Result<Listing> {
    let mut builder = TreeBuilder::new(Limits::default());
    source.scan(&mut builder)?;
    Ok(listing(&source, &builder.finish()))
}

fn scan_layout(dir: &Path, options: OciOptions) -> Result<Listing> {
    scan(OciSource::open(dir, Path::new("/tmp"), options)?)
}

/// The paths of an image with these layers.
fn paths_of(layers: &[Vec<u8>]) -> Vec<String> {
    let scratch = Scratch::new();
    let layout = Layout::new(scratch.join("layout"));
    layout.index(&[layout.image(layers, "amd64")]);
    let listing = scan_layout(&layout.0, OciOptions::default()).expect("scan");
    listing.into_keys().filter(|path| path != ".").collect()
}

fn file(name: &str) -> Maker {
    Maker::default().entry(name, b'0', b"x")
}

/// What comes out of a layer is what the configuration says, not only what the manifest says.
#[test]
fn layers_are_those_of_the_configuration() {
    let (one, other) = (file("a").end(), file("b").end());
    let id = |bytes: &[u8]| {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    };
    let with = |ids: &[String]| {
        let scratch = Scratch::new();
        let layout = Layout::new(scratch.join("layout"));
        let config = json!({"rootfs": {"type": "layers", "diff_ids": ids}});
        layout.index(&[layout.image_of(&[one.clone(), other.clone()], &config)]);
        scan_layout(&layout.0, OciOptions::default()).map_err(|error| error.to_string())
    };
    assert_eq!(with(&[id(&one), id(&other)]).map(|listing| listing.len()), Ok(3));
    let error = with(&[id(&one), id(&one)]).expect_err("another layer");
    assert!(error.contains("layer 2") && error.contains("do not have the digest"), "{error}");
    let error = with(&[id(&one)]).expect_err("too few");
    assert!(error.contains("layers are not those of its configuration"), "{error}");
    let error = with(&[id(&one), "x".into()]).expect_err("no digest");
    assert!(error.contains("no digest"), "{error}");
}

#[test]
fn whiteouts_take_lower_names_away_and_no_others() {
    let lower = || file("a").entry("d/x", b'0', b"").entry("d/e/y", b'0', b"").link("h", b'1', "a");
    let none = |upper: Maker| paths_of(&[lower().end(), upper.end()]);
    assert_eq!(none(file(".wh.a")), ["/d", "/d/e", "/d/e/y", "/d/x", "/h"]);
    assert_eq!(none(file(".wh.d")), ["/a", "/h"]);
    assert_eq!(none(file("d/.wh.e")), ["/a", "/d", "/d/x", "/h"]);
    assert_eq!(none(file("d/.wh..wh..opq")), ["/a", "/d", "/h"]);
    assert_eq!(none(file(".wh..wh..opq")), Vec::<String>::new());
    assert_eq!(none(file(".wh.gone").entry("no/such/.wh.x", b'0', b"")).len(), 6);
    assert_eq!(none(file(".wh..wh.plnk/1.2").entry(".wh..wh.aufs", b'0', b"")).len(), 6);
    // What the same layer puts there stays, before the whiteout and behind it.
    let with_new = ["/a", "/d", "/d/new", "/h"];
    assert_eq!(none(file("d/.wh..wh..opq").entry("d/new", b'0', b"")), with_new);
    assert_eq!(none(file("d/new").entry("d/.wh..wh..opq", b'0', b"")), with_new);
    assert_eq!(none(file("d/new").entry(".wh.d", b'0', b"")), with_new);
    assert_eq!(none(file(".wh.d").entry("d/new", b'0', b"")), with_new);
    assert_eq!(none(file("a").entry(".wh.a", b'0', b"")).len(), 6);
    // Links lead to files of lower layers.
    assert_eq!(none(file(".wh.x").link("d/l", b'1', "h"))[4], "/d/l");
    // A file in the place of a directory, and the other way round.
    assert_eq!(none(file("d")), ["/a", "/d", "/h"]);
    let directory = Maker::default().entry("a", b'5', b"").entry("a/b", b'0', b"");
    assert_eq!(none(directory)[..2], ["/a", "/a/b"]);
}

/// A layer may put a file in the place of a directory below it: that is no slip that needs a note,
/// as it is within one layer.
#[test]
fn a_file_over_a_directory_is_noted_within_a_layer_only() {
    let notes_of = |layers: &[Vec<u8>]| -> Vec<String> {
        let scratch = Scratch::new();
        let layout = Layout::new(scratch.join("layout"));
        layout.index(&[layout.image(layers, "amd64")]);
        let mut source =
            OciSource::open(&layout.0, Path::new("/tmp"), OciOptions::default()).expect("opens");
        let mut builder = TreeBuilder::new(Limits::default());
        source.scan(&mut builder).expect("scan");
        let tree = builder.finish();
        tree.notes().0.iter().map(|note| note.entry.clone()).collect()
    };
    let notes =
        |layers: &[Maker]| notes_of(&layers.iter().cloned().map(Maker::end).collect::<Vec<_>>());
    let directory = || Maker::default().entry("d/x", b'0', b"");
    assert_eq!(notes(&[directory(), file("d")]), Vec::<String>::new());
    assert_eq!(notes(&[directory().entry("d", b'0', b"x")]), ["d"]);
    // umoci writes the root as `/`, and no blocks of zeros at the end; the digest was compared.
    let of_umoci = |name: &str| Maker::default().entry(name, b'5', b"").entry("y", b'0', b"");
    for name in ["/", "./", "/."] {
        assert_eq!(notes_of(&[of_umoci(name).unended()]), Vec::<String>::new(), "{name}");
    }
    assert_eq!(notes(&[of_umoci("/x/")]), ["/x/"]);
    assert_eq!(notes(&[file("a"), directory().entry("d", b'0', b"x")]), ["d"]);
}

/// Entries of an upper layer, whose order must not count.
fn upper_entry() -> impl Strategy<Value = (String, u8)> {
    let dirs = "([ab]/){0,2}";
    let name = prop_oneof![
        Just(".wh..wh..opq".to_owned()),
        "[abf]".prop_map(|name| format!(".wh.{name}")),
        Just("f".to_owned()),
    ];
    (dirs, name).prop_map(|(dirs, name)| (format!("{dirs}{name}"), b'0'))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_order_within_a_layer_does_not_count(
        lower in prop::collection::vec("([ab]/){0,2}f", 1..8),
        upper in prop::collection::vec(upper_entry(), 1..6),
    ) {
        let layer = |entries: &mut dyn Iterator<Item = &(String, u8)>| {
            entries.fold(Maker::default(), |maker, (name, kind)| maker.entry(name, *kind, b"")).end()
        };
        let lower: Vec<_> = lower.into_iter().map(|name| (name, b'0')).collect();
        let lower = layer(&mut lower.iter());
        let forward = paths_of(&[lower.clone(), layer(&mut upper.iter())]);
        let backward = paths_of(&[lower, layer(&mut upper.iter().rev())]);
        prop_assert_eq!(forward, backward);
    }
}

#[test]
fn as_umoci_unpacks() {
    let tools = ["umoci", "skopeo", "tar", "gzip", "zstd"].map(Need::Tool);
    if !require(&[&[Need::Root][..], &tools].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let script = r#"
        set -e
        umoci init --layout img; umoci new --image img:t
        umoci unpack --image img:t b
        mkdir -p b/rootfs/d/e b/rootfs/usr/lib b/rootfs/gone/deep
        echo one > b/rootfs/d/f; echo keep > b/rootfs/k; ln b/rootfs/k b/rootfs/d/hard
        ln -s usr/lib b/rootfs/lib; echo so > b/rootfs/usr/lib/so; touch b/rootfs/gone/deep/x
        chown 7:8 b/rootfs/d/f; chmod 4755 b/rootfs/d/f
        setfattr -n user.x -v y b/rootfs/k
        touch -d '2001-02-03 04:05:06.789 UTC' b/rootfs/d/f
        umoci repack --image img:t b; rm -rf b; umoci unpack --image img:t b
        rm -rf b/rootfs/d; mkdir b/rootfs/d; echo two > b/rootfs/d/g; rm b/rootfs/k
        rm -rf b/rootfs/gone; echo file > b/rootfs/gone; rm b/rootfs/lib; mkdir b/rootfs/lib
        umoci repack --image img:t b; rm -rf b; umoci unpack --image img:t b
        ln b/rootfs/usr/lib/so b/rootfs/lib/again; truncate -s 100000 b/rootfs/usr/zeros
        umoci repack --image img:t b; rm -rf b; umoci unpack --image img:t b
        skopeo copy oci:img:t docker-archive:saved.tar:x:t
        skopeo copy oci:img:t oci-archive:layout.tar:t
        gzip -c saved.tar > saved.tar.gz; zstd -q layout.tar
    "#;
    run_ok(Command::new("bash").arg("-c").arg(script).current_dir(scratch.path()));
    let wanted = list_dir(&scratch.join("b/rootfs"));
    assert!(wanted.contains_key("/lib/again") && !wanted.contains_key("/k"), "{wanted:?}");
    let options = SourceOptions { spool: scratch.path().into(), ..SourceOptions::default() };
    for name in ["img", "layout.tar", "layout.tar.zst", "saved.tar", "saved.tar.gz"] {
        let mut source = open(&scratch.join(name), &options).expect("opens");
        assert_same(&list(&mut *source), &wanted, name);
    }
}

#[test]
fn the_image_for_a_platform() {
    let scratch = Scratch::new();
    let layout = Layout::new(scratch.join("layout"));
    let one = |architecture: &str, variant: Option<&str>, name: Option<&str>| {
        let file = format!("for-{architecture}{}", variant.unwrap_or_default());
        let mut image = layout.image(&[self::file(&file).end()], architecture);
        image["platform"] =
            json!({"os": "linux", "architecture": architecture, "variant": variant});
        if let Some(name) = name {
            image["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        }
        image
    };
    let pick = |platform: Option<&str>, image: Option<&str>| {
        let platform = platform.map(|text| Platform::parse(text).expect("a platform"));
        let image = image.map(str::to_owned);
        let found = scan_layout(&layout.0, OciOptions { platform, image });
        found
            .map(|list| list.into_keys().nth(1).expect("a file"))
            .map_err(|error| error.to_string().split("layout: ").nth(1).expect("why").to_owned())
    };
    let mut attestation = one("amd64", None, None);
    attestation["platform"] = json!({"os": "unknown", "architecture": "unknown"});
    let all = [one("sparc", None, None), one("arm", Some("v7"), None), attestation.clone()];
    layout.index(&all);
    assert_eq!(pick(Some("linux/sparc"), None).expect("found"), "/for-sparc");
    assert_eq!(pick(Some("linux/arm"), None).expect("found"), "/for-armv7");
    assert_eq!(
        pick(Some("linux/arm/v6"), None).expect_err("none"),
        "has no image for linux/arm/v6: choose one with --platform, of linux/arm/v7, linux/sparc"
    );
    assert!(
        pick(None, None).expect_err("not for this host").starts_with("has no image for linux/")
    );
    // One image is taken, whatever it is for, unless another one is asked for.
    layout.index(&[layout.image(&[file("only").end()], "sparc")]);
    assert_eq!(pick(None, None).expect("found"), "/only");
    assert_eq!(
        pick(Some("linux/arm"), None).expect_err("none"),
        "has no image for linux/arm: choose one with --platform, of linux/sparc"
    );
    // Names, and an index in an index.
    let host = Platform::host().to_string();
    let host = host.strip_prefix("linux/").expect("Linux");
    let nested =
        json!({"manifests": [one(host, None, None), one("sparc", None, None)]}).to_string();
    let nested = json!({
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "digest": layout.blob(nested.as_bytes()),
        "annotations": {"org.opencontainers.image.ref.name": "docker.io/library/x:1"},
    });
    let other = layout.image(&[file("other").end()], host);
    let mut other = other;
    other["annotations"] = json!({"org.opencontainers.image.ref.name": "two"});
    layout.index(&[nested, other]);
    assert_eq!(pick(None, Some("x:1")).expect("found"), format!("/for-{host}"));
    assert_eq!(pick(None, Some("two")).expect("found"), "/other");
    assert_eq!(
        pick(None, None).expect_err("two images"),
        "has several images: choose one with --image, of docker.io/library/x:1, two"
    );
    assert!(
        pick(None, Some("three")).expect_err("none").starts_with("has no image 'three': it has")
    );
    layout.index(&[]);
    assert_eq!(pick(None, None).expect_err("none"), "has no image");
}

/// Why a layout is refused.
fn refusal(layout: &Layout) -> String {
    let error = scan_layout(&layout.0, OciOptions::default()).expect_err("refused").to_string();
    assert!(!error.contains('\n') && error.len() < 600, "{error}");
    error
}

#[test]
fn hostile_layouts() {
    let scratch = Scratch::new();
    let layout = Layout::new(scratch.join("layout"));
    let image = layout.image(&[file("a").end()], "amd64");
    let with = |key: &str, value: serde_json::Value| {
        let mut changed = image.clone();
        changed[key] = value;
        layout.index(&[changed]);
        refusal(&layout)
    };
    let zeros = format!("sha256:{}", "0".repeat(64));
    assert!(with("digest", json!("sha256:../../../../etc/passwd")).contains("is no digest"));
    assert!(with("digest", json!("md5:0")).contains("is no digest of sha256 or sha512"));
    assert!(with("digest", json!(zeros)).contains("is not there: store the image as a whole"));
    assert!(with("digest", json!(5)).contains("is no such JSON document"));
    fs::write(layout.0.join("index.json"), "{\"manifests\": [").expect("write");
    assert!(refusal(&layout).contains("is no such JSON document"));
    fs::write(layout.0.join("index.json"), vec![b' '; 5 << 20]).expect("write");
    assert!(refusal(&layout).contains("is longer than a document may be"));
    // An index that leads to itself cannot be: but many that lead to each other can.
    let mut digest = layout.blob(b"{}");
    for _ in 0..9 {
        let kind = "application/vnd.oci.image.index.v1+json";
        let doc = json!({"manifests": [{"mediaType": kind, "digest": digest}]}).to_string();
        digest = layout.blob(doc.as_bytes());
    }
    let kind = "application/vnd.oci.image.index.v1+json";
    layout.index(&[json!({"mediaType": kind, "digest": digest})]);
    assert!(refusal(&layout).contains("indexes in indexes"));

    // Contents that are not those of their digest; a link in the place of a blob.
    let bytes = file("a").end();
    layout.index(&[layout.image(std::slice::from_ref(&bytes), "amd64")]);
    let blob = layout.blob(&bytes);
    let path = layout.0.join("blobs/sha256").join(&blob[7..]);
    let mut damaged = bytes.clone();
    damaged[600] ^= 1;
    fs::write(&path, &damaged).expect("write");
    assert!(refusal(&layout).contains("do not have the digest"));
    fs::write(&path, &bytes[..bytes.len() - 512]).expect("write");
    assert!(refusal(&layout).contains("has another size than the manifest states"));
    fs::remove_file(&path).expect("unlink");
    std::os::unix::fs::symlink("/etc/passwd", &path).expect("symlink");
    assert!(refusal(&layout).contains("layer 1 (sha256:"));
    fs::remove_file(&path).expect("unlink");
    run_ok(Command::new("mkfifo").arg(&path));
    assert!(refusal(&layout).contains("is not a regular file"));

    // Layers of another kind, or that are no archives.
    let odd = |bytes: &[u8], kind: &str| {
        let layer = json!({"mediaType": kind, "digest": layout.blob(bytes)});
        let manifest = json!({"layers": [layer]}).to_string();
        let digest = layout.blob(manifest.as_bytes());
        layout.index(&[json!({"mediaType": MANIFEST, "digest": digest})]);
        refusal(&layout)
    };
    let kind = format!("{LAYER}+encrypted");
    assert!(odd(b"x", &kind).contains("which is not supported"));
    assert!(odd(b"hello", LAYER).contains(
        "layer 1 (sha256:2cf24dba5fb0): is no tar archive, or cut off within its first header"
    ));
    assert!(odd(&file(".wh.").end(), LAYER).contains(".wh.: is a whiteout of no name"));
}

#[test]
fn trees_that_only_look_like_images() {
    let scratch = Scratch::new();
    let path = scratch.join("x.tar");
    let list = |archive: Maker, options: OciOptions| {
        fs::write(&path, archive.end()).expect("write");
        let source = TarSource::open(&path, scratch.path()).expect("opens").with_image(options);
        scan(source)
    };
    for text in ["", "[]", "{}", "[{\"Config\": 5}]", "nonsense"] {
        let archive = file("a").entry("manifest.json", b'0', text.as_bytes());
        let listing = list(archive, OciOptions::default()).expect("a tree");
        assert_eq!(listing.len(), 3, "{text}");
    }
    let options = OciOptions { image: Some("x".into()), platform: None };
    let error = list(file("a"), options).expect_err("no image").to_string();
    assert!(error.ends_with("x.tar: holds no container image"), "{error}");
    let text = r#"[{"Config": "c", "Layers": ["l"]}]"#;
    let archive = file("a").entry("manifest.json", b'0', text.as_bytes());
    let error = list(archive, OciOptions::default()).expect_err("no configuration").to_string();
    assert!(error.ends_with("has no configuration of its image"), "{error}");
}

#[test]
fn many_whiteouts_take_no_longer() {
    let scratch = Scratch::new();
    let layout = Layout::new(scratch.join("layout"));
    let mut layers = Vec::new();
    for _ in 0..3 {
        let mut upper = Maker::default();
        for nr in 0..6000 {
            upper = upper.entry(&format!("d/{nr}"), b'0', b"");
        }
        for _ in 0..6000 {
            upper = upper.entry(".wh.d", b'0', b"").entry("d/.wh..wh..opq", b'0', b"");
        }
        layers.push(upper.end());
    }
    layout.index(&[layout.image(&layers, "amd64")]);
    let start = std::time::Instant::now();
    let tree = scan_layout(&layout.0, OciOptions::default()).expect("scan");
    assert_eq!(tree.len(), 6002);
    assert!(start.elapsed().as_secs() < 30);
}
