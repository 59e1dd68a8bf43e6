//! The journal, the flush coalescer, the failure latch and the service loop under a model checker:
//! every lock, condition variable, atomic and thread is the checker's, which runs each scenario
//! under thousands of interleavings. Random ones find what is likely; PCT ones (few changes of
//! priority at the right moment) find what needs one thread to be very late.
//!
//! | file | asks |
//! | --- | --- |
//! | `explore` | runs a scenario under many schedules; a failure says what repeats it |
//! | `medium` | a device whose every operation is several steps, with crashes and failures |
//! | `lab` | a journal on it with the smallest log, and what a crash at any moment must leave |
//! | `commits` | is what was acknowledged durable, whole, and never lost? |
//! | `fast` | are fast commits durable, on what they count on, beside everything else that happens? |
//! | `batch` | does a batch keep every commit from starting, and is all of it durable or nothing? |
//! | `batch_wait` | does a leader that waits for others always go on, with all requests that joined? |
//! | `freeze` | does a freeze keep all handles out, with an empty log, and do all come back? |
//! | `failure` | after an abort: does every waiter get an error, and none success for what is lost? |
//! | `checkpoint` | may blocks go home at any moment, also while the log is frozen or given up? |
//! | `space` | do handles get their room on a log that is always too small? |
//! | `revoke` | can a freed block come back with bytes of its former life? |
//! | `cache` | do readers see whole blocks, and do they survive a failing device? |
//! | `flush` | does a flush cover what was written before it, and does one failure stop all that follows? |
//! | `merge` | are merged requests answered by work that began after them, whenever its thread stops? |
//! | `runner` | does a service miss no wake-up, and does it stop? |
//!
//! On every schedule no thread may wait for ever: the checker sees that all threads end.
//!
//! ```sh
//! cargo test -p extol-jbd2 --features model --test model   # EXTOL_LONG=1: 50 times the schedules
//! ```

mod batch;
mod batch_wait;
mod cache;
mod checkpoint;
mod commits;
mod deferred;
mod explore;
mod failure;
mod fast;
mod flush;
mod freeze;
mod lab;
mod medium;
mod merge;
mod revoke;
mod runner;
mod space;
