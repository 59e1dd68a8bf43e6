//! Evidence that a power cut cannot hurt: records what a load makes Extol do to its devices, cuts
//! the power at every change in every way that real media allow, recovers, and verifies.
//!
//! # What is assumed of the media
//!
//! A device has a volatile cache. A write that returned may be in the cache only. A flush that
//! returned made everything durable that *that device* had completed before the flush began, and
//! nothing that was under way then; a FUA write that returned is durable itself. When the power
//! goes, of what is neither:
//!
//! - any subset may have reached the medium, in any order;
//! - of writes that overlap, any may be the last, but none of them covers a FUA write that came
//!   later;
//! - a write may be torn: each sector of 512 bytes is old or new, never a mixture, never anything
//!   else;
//! - a FUA write under way is treated as any other: there, not there, or torn.
//!
//! Loads with several actors run on devices that take their time ([`tape::Pace`]), or not, by seed,
//! so that requests and flushes of different threads do meet.
//!
//! A discarded range reads as zeros, or as before, until it is written again. Sectors that are not
//! written do not change. Reads give what was written last. What is *not* assumed to be safe beyond
//! that: nothing; in particular a write of one block is not atomic.
//!
//! One exception: the 1024 bytes of the file system's own superblock are written whole or not at
//! all. The format has one checksum over both of its sectors and no second copy that a mount would
//! look at; Linux writes it in place in the same way. Media with sectors of 4 KiB keep the promise.
//! (The log's superblock has all that changes in its first sector, and is torn like everything
//! else.)
//!
//! With an external journal there are two devices with two caches. They are cut at the same moment;
//! what each of them loses is independent of the other.
//!
//! # How a state is made and verified
//!
//! ```text
//!   Workload ─► Actor ──────────► Ext4 ─► Tape ─► changes ─► Cutter ─► crash state (Media)
//!                 └► History (the model)     └─ notes ─┐                     │ recover
//!                        └───── what is promised ──────┴──► verify ◄── View ─┤
//!                                                    extol-check, e2fsck ◄───┤
//!                                      Linux ◄──────────────────────────────┤
//!                            every change of the recovery is a cut again ◄───┘
//! ```
//!
//! | part | does |
//! |---|---|
//! | [`tape`] | records both devices and the load's notes in one order |
//! | [`cuts`] | names and builds the states of a cut |
//! | [`media`] | copy-on-write contents with a fingerprint, so that no state is verified twice |
//! | [`variant`] | kinds of volumes and journals, small, with garbage in their free blocks |
//! | [`workloads`] | loads: random mixes, classics, several threads |
//! | [`actor`], [`model`] | do the operations; know what must and what may be there afterwards |
//! | [`spelling`] | names by which an operation asks for others, or that are no text |
//! | [`recover`], [`view`], [`outside`] | Extol's recovery, what it shows, and the other oracles |
//! | [`windows`] | the few states that other oracles misread, and that no writer can avoid |
//! | [`campaign`], [`report`], [`case`] | all of it, over all cuts; counts; failed states that can be tried again |
//!
//! # Oracles
//!
//! 1. The model ([`model::verify`]): names are those after some prefix of the operations that holds
//!    everything that was promised; each byte is one that the file had there since its last sync.
//!    On volumes with fast commits an fsync may take what it needs, all of it and nothing else, out
//!    of that order.
//! 2. `extol-check`, the independent checker, on the closed volume after recovery (on every eighth
//!    state also on the state as it lies, with the log replayed in memory).
//! 3. `e2fsck -fn` on what Extol's recovery left, `e2fsck -fy` on the crashed state itself (it may
//!    only do what belongs to every crash), and then the same tree and contents as Extol's.
//! 4. Linux over a loop device: the same tree and contents, and clean afterwards.
//! 5. A second crash at every change of the recovery: the next recovery shows the same as the
//!    first.
//!
//! 3 to 5 are for a sample; [`campaign::Campaign`] says how large.
//!
//! Even seeds run on volumes with a past (used, crashed, recovered, emptied), so that the log holds
//! old transactions.
//!
//! # A new feature
//!
//! A new kind of journal or mount option is one line in [`variant::VARIANTS`]. A new load
//! implements [`workloads::Workload`]; it needs no knowledge of what is promised. An operation that
//! actors do not know yet becomes a method of [`actor::Actor`] that does it and tells
//! [`model::History`] what it did.
//!
//! # Planted bugs
//!
//! With the feature `planted-bugs`, [`record::Plant`] puts one of the bugs of
//! [`record::Plant::ALL`] into the file system while the load runs. The tests demand that each is
//! found.

pub mod actor;
pub mod campaign;
pub mod case;
pub mod cuts;
pub mod media;
pub mod model;
pub mod outside;
pub mod record;
pub mod recover;
pub mod report;
pub mod spelling;
pub mod tape;
pub mod variant;
pub mod view;
pub mod windows;
pub mod workloads;
