//! The kit finds what it is made to find: bugs in the order of writes, one at a time.

use extol_crashkit::campaign::{Campaign, replay_case};
use extol_crashkit::cuts::Fate;
use extol_crashkit::record::Plant;
use extol_crashkit::variant::Variant;
use extol_crashkit::workloads;
use extol_testkit::{Need, require};

/// The first failure among at most `most` states, and the number of states until then.
fn hunt(
    load: &str,
    variant: &str,
    plant: Option<Plant>,
    most: u64,
    (e2fsck_every, linux_every): (u64, u64),
) -> (u64, Option<extol_crashkit::report::Failure>) {
    let load = workloads::by_name(load).expect("a load");
    let variant = Variant::by_name(variant).expect("a kind of volume");
    let mut campaign = Campaign::quick(&*load, variant, 1);
    campaign.plant = plant;
    campaign.max_states = most;
    campaign.max_failures = 1;
    campaign.e2fsck_every = e2fsck_every;
    campaign.linux_every = linux_every;
    let row = campaign.run(&mut |_, _, _| {}).expect("a run");
    (row.verified, row.failures.into_iter().next())
}

/// Finds the bug with one of these loads, and its failure again by its replay.
fn must_find(plant: Plant, loads: &[(&str, &str)]) {
    search(plant, loads, 2500, (0, 0));
}

/// A bug that only e2fsck suffers from: it looks at one of so many states.
fn e2fsck_must_find(plant: Plant, loads: &[(&str, &str)], every: u64) {
    if require(&[Need::Tool("e2fsck")]) {
        search(plant, loads, 700, (every, 0));
    }
}

/// A bug that only Linux suffers from: it looks at one of so many states.
fn linux_must_find(plant: Plant, loads: &[(&str, &str)], every: u64) {
    if require(&[Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("e2fsck")]) {
        search(plant, loads, 700, (0, every));
    }
}

fn search(plant: Plant, loads: &[(&str, &str)], most: u64, outside: (u64, u64)) {
    for (load, variant) in loads {
        let (states, failure) = hunt(load, variant, Some(plant), most, outside);
        let failure =
            failure.unwrap_or_else(|| panic!("{load} on {variant} does not find {}", plant.name()));
        println!(
            "{}: {load} on {variant} finds it within {states} states: {}",
            plant.name(),
            failure.what
        );
        println!("replay: {}", failure.replay);
        if let Some((_, case)) = failure.replay.split_once("--case ") {
            let found = replay_case(case.as_ref(), &mut |_| {});
            assert!(found.is_err(), "the saved state has nothing: {}", failure.replay);
            continue;
        }
        assert!(failure.replay.contains("--plant"), "{}", failure.replay);
        let workload = workloads::by_name(load).expect("a load");
        let mut again =
            Campaign::quick(&*workload, Variant::by_name(variant).expect("a kind of volume"), 1);
        (again.plant, again.linux_every) = (Some(plant), outside.1);
        let fate: Fate = failure.state.parse().expect("a state");
        let found = again.replay(failure.cut, fate, None, &mut |_| {});
        assert!(found.is_err(), "the replay finds nothing: {}", failure.replay);
    }
    // Without the bug the same states are fine.
    let (load, variant) = loads[0];
    let (states, failure) = hunt(load, variant, None, most.min(600), outside);
    assert!(failure.is_none() && states > 100, "{failure:?}");
}

#[test]
fn missing_flush_before_the_commit_record() {
    must_find(
        Plant::CommitWithoutFlush,
        &[("mix", "v3-1k"), ("log-append", "none"), ("maildir", "external")],
    );
}

#[test]
fn tail_moved_before_the_home_writes_are_durable() {
    must_find(
        Plant::TailTooEarly,
        &[
            ("fill", "v3-1k"),
            ("sync-mix", "none"),
            ("sync-mix", "checkpoint"),
            ("mix", "external-checkpoint"),
        ],
    );
}

#[test]
fn freed_block_used_before_the_commit() {
    must_find(Plant::ReuseBeforeCommit, &[("mix", "v3-1k"), ("atomic-rename", "ext3")]);
}

#[test]
fn moved_blocks_mapped_before_they_are_copied() {
    must_find(
        Plant::MapBeforeCopy,
        &[("shrink-data", "v3-1k"), ("shrink-data", "fc"), ("shrink-data", "ext3")],
    );
}

#[test]
fn moved_blocks_mapped_before_their_copy_is_flushed() {
    must_find(Plant::CopyNotFlushed, &[("shrink-data", "external"), ("shrink-data", "async")]);
}

#[test]
fn blocks_left_by_a_move_used_before_the_commit() {
    must_find(Plant::ReuseBeforeCommit, &[("shrink-data", "v3-1k"), ("shrink-data", "none")]);
}

#[test]
fn groups_added_before_they_are_flushed() {
    must_find(Plant::GroupsNotFlushed, &[("grow", "grow-external")]);
}

#[test]
fn larger_superblock_home_before_its_descriptors() {
    e2fsck_must_find(Plant::SuperblockHomeFirst, &[("grow", "grow"), ("grow", "grow-fc")], 2);
}

#[test]
fn smaller_superblock_home_beside_what_it_does_not_count() {
    linux_must_find(Plant::CutHomeLate, &[("shrink", "shrink")], 2);
}

#[test]
fn image_cut_before_its_volume() {
    must_find(Plant::DeviceCutEarly, &[("shrink", "shrink-image")]);
}

#[test]
fn moved_log_named_before_it_is_durable() {
    must_find(
        Plant::LogSwitchNotFlushed,
        &[("shrink", "shrink-image"), ("shrink", "shrink-meta-bg")],
    );
}

#[test]
fn map_blocks_of_the_journal_named_before_they_are_written() {
    must_find(Plant::JournalMapLate, &[("shrink", "shrink-pieces")]);
}

#[test]
fn map_blocks_of_the_journal_go_home_beside_its_inode() {
    must_find(Plant::JournalMapLogged, &[("shrink", "shrink-pieces")]);
}

#[test]
fn revoke_forgotten() {
    must_find(
        Plant::RevokeForgotten,
        &[("recycle", "v3-1k"), ("sync-mix", "ext3"), ("recycle", "checkpoint")],
    );
}

#[test]
fn data_mapped_before_it_is_written() {
    let loads =
        [("new-file", "v3-1k"), ("mix", "data-writeback"), ("bulk", "v3-1k"), ("bulk", "v3-4k")];
    must_find(Plant::MapBeforeWrite, &loads);
}

#[test]
fn volume_marked_too_late() {
    must_find(Plant::RecoveryFlagLate, &[("log-append", "v3-1k"), ("wal", "external")]);
}

#[test]
fn fast_commit_without_a_flush_of_file_data() {
    must_find(Plant::FastWithoutFlush, &[("small-files", "fc")]);
}

#[test]
fn a_first_fast_commit_that_is_not_empty() {
    e2fsck_must_find(Plant::FirstNotEmpty, &[("growing", "fc")], 2);
}

#[test]
fn fast_commits_of_a_durable_transaction_left_in_their_area() {
    e2fsck_must_find(Plant::AreaNotCleared, &[("closures", "fc-tiny")], 6);
}

#[test]
fn fast_commit_on_an_empty_log() {
    must_find(Plant::FastOnEmptyLog, &[("log-append", "fc")]);
}

#[test]
fn names_forgotten_by_a_closure() {
    must_find(Plant::NamesForgotten, &[("closures", "fc")]);
}

#[test]
fn names_that_a_fast_commit_leaves_behind() {
    must_find(Plant::UnlinkForgotten, &[("closures", "fc")]);
}

#[test]
fn data_left_behind_by_a_fast_commit() {
    must_find(Plant::DataLeftBehind, &[("small-files", "fc-4k")]);
}

#[test]
fn data_written_behind_the_record_of_a_full_commit() {
    must_find(
        Plant::DataBehindRecord,
        &[("new-file", "v3-1k"), ("small-files", "v3-4k"), ("bulk", "ext3")],
    );
}

#[test]
fn ordered_data_beside_the_records_of_a_fast_commit() {
    must_find(
        Plant::OrderedDataForgotten,
        &[("new-file", "fc-4k"), ("small-files", "fc"), ("growing", "fc")],
    );
}

#[test]
fn fua_writes_that_are_not_durable() {
    must_find(Plant::FuaNotDurable, &[("small-files", "fc-fua")]);
}

#[test]
fn blocks_that_e2fsck_writes_back_left_in_the_log() {
    e2fsck_must_find(Plant::PatchedNotHome, &[("closures", "fc")], 6);
}

#[test]
fn usage_posted_in_another_transaction() {
    must_find(
        Plant::UsageLate,
        &[("owners", "quota"), ("owners", "quota-bigalloc"), ("mix", "quota-journal")],
    );
}

#[test]
fn fast_commits_of_inodes_whose_usage_has_changed() {
    e2fsck_must_find(Plant::UsageInFastCommit, &[("owners", "fc-quota")], 2);
}

#[test]
fn fast_commits_of_two_spellings_of_a_name() {
    must_find(Plant::SpellingsInFastCommit, &[("spellings", "fc-casefold")]);
}

#[test]
fn fast_commits_of_encrypted_names() {
    must_find(Plant::SecretsInFastCommit, &[("closures", "fc-encrypt")]);
}

#[test]
fn moved_blocks_of_quota_files_mapped_before_they_are_copied() {
    must_find(Plant::QuotaBlockLate, &[("shrink-owners", "shrink-quota")]);
}

/// Threads decide it, so one run in some finds it: on devices that do a request at a time none
/// would.
#[test]
fn a_flush_that_is_believed_to_cover_what_it_does_not() {
    let load = workloads::by_name("one-file").expect("a load");
    let runs = |plant: Option<Plant>, seeds: std::ops::Range<u64>| {
        // (With every third seed nothing is under way when a flush begins.)
        seeds.filter(|seed| seed % 3 != 0).find_map(|seed| {
            let variant = Variant::by_name("fc-4k").expect("a kind of volume");
            let mut campaign = Campaign::quick(&*load, variant, seed);
            (campaign.plant, campaign.max_states, campaign.max_failures) = (plant, 500, 1);
            let row = campaign.run(&mut |_, _, _| {}).expect("a run");
            row.failures.into_iter().next().map(|failure| (seed, failure.what))
        })
    };
    let found = runs(Some(Plant::FlushCoversLater), 1..200);
    println!("found with {found:?}");
    assert!(found.is_some_and(|(_, what)| what.contains("since the last sync")));
    assert_eq!(runs(None, 1..8), None);
}
