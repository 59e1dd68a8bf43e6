//! The checker against e2fsck: the same result on clean volumes of many kinds, and on damaged
//! ones.

mod cases;
mod checker;
mod compare;
mod deep;
mod editor;
mod encryption;
mod fields;
mod images;
mod mutate;
mod quota_tree;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use compare::Tally;
use extol_testkit::{Need, Scratch, e2fsck, require};
use images::{VARIANTS, empty, fill_by_extol, fill_by_linux, in_memory};

/// Seed of the trees that are damaged: odd ones are made by Linux, even ones by Extol.
fn image_seed() -> u64 {
    number("EXTOL_IMAGE_SEED").unwrap_or(5)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn able() -> bool {
    require(&[
        Need::Root,
        Need::Loop,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
    ])
}

#[test]
fn volumes_of_linux_are_clean() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let mut filled = 0;
    for variant in VARIANTS {
        let image = empty(scratch.path(), *variant);
        checker::must_be_clean(&image, &format!("{} empty", variant.0));
        if fill_by_linux(&scratch, &image, *variant, 5) {
            filled += 1;
            e2fsck(&image).assert_clean(variant.0);
            checker::must_be_clean(&image, &format!("{} filled by Linux", variant.0));
        }
        image.remove();
    }
    assert!(filled >= 25, "Linux mounted only {filled} of {} kinds", VARIANTS.len());
}

#[test]
fn volumes_of_extol_are_clean() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::in_memory();
    let mut filled = 0;
    for variant in VARIANTS {
        let image = empty(scratch.path(), *variant);
        let device = in_memory(&image);
        if image.journal.is_none() && fill_by_extol(&device, 77) {
            filled += 1;
            let mut bytes = vec![0; device.size() as usize];
            device.read_at(&mut bytes, 0).expect("read");
            std::fs::write(&image.path, &bytes).expect("write");
            e2fsck(&image).assert_clean(variant.0);
            checker::must_be_clean(&image, &format!("{} filled by Extol", variant.0));
        }
        image.remove();
    }
    assert!(filled >= 15, "Extol mounted only {filled} of {} kinds", VARIANTS.len());
}

/// `EXTOL_AGREE=kind:seed` repeats one comparison; `EXTOL_LONG=1` makes thousands, and
/// `EXTOL_KINDS=a,b` only those of these kinds.
#[test]
fn damaged_volumes_get_the_same_result() {
    if !able() || !require(&[Need::NewE2fsck]) {
        return;
    }
    if let Ok(which) = std::env::var("EXTOL_AGREE") {
        let (name, seed) = which.split_once(':').expect("kind:seed");
        let scratch = Scratch::in_memory();
        let mut tally = Tally::default();
        let mut v = compare::volume(&scratch, images::variant(name), image_seed());
        compare::compare(&mut v, name, seed.parse().expect("seed"), &mut tally);
        panic!("{}", tally.failures.first().map_or("the outcomes agree", |f| f));
    }
    let long = std::env::var("EXTOL_LONG").is_ok_and(|v| v == "1");
    let rounds: u64 = number("EXTOL_ROUNDS").unwrap_or(if long { 700 } else { 25 });
    let from: u64 = number("EXTOL_FROM").unwrap_or(0);
    let kinds = std::env::var("EXTOL_KINDS").ok();
    let is_wanted =
        |name: &str| kinds.as_ref().is_none_or(|kinds| kinds.split(',').any(|kind| kind == name));
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let scratch = Scratch::in_memory();
                while let Some(variant) = VARIANTS.get(next.fetch_add(1, Relaxed)) {
                    if !is_wanted(variant.0) {
                        continue;
                    }
                    let mut tally = Tally::default();
                    let mut v = compare::volume(&scratch, *variant, image_seed());
                    for seed in from..from + rounds {
                        compare::compare(&mut v, variant.0, seed, &mut tally);
                    }
                    let _ = std::fs::remove_file(&v.image.path);
                    total.lock().unwrap().add(tally);
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    println!(
        "{} damaged volumes: {} bad for both, {} clean for both, {} only here (accepted kinds), \
         {} for one e2fsck only, {} not compared, {} disagreements",
        total.tried,
        total.both_bad,
        total.both_clean,
        total.stricter,
        total.apart,
        total.not_compared,
        total.failures.len()
    );
    assert!(total.both_bad > total.tried / 3 && total.both_clean > total.tried / 20);
    assert!(
        total.failures.is_empty(),
        "{} disagreements:\n{}",
        total.failures.len(),
        total.failures.join("\n")
    );
}
