//! The loop around a service.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use extol_sync::atomic::{AtomicU32, Ordering};
use extol_sync::{Condvar, Mutex as StepMutex, thread};
use extol_task::{Progress, Runner, Service, Wakeup};

use crate::explore::{below, explore};

/// Does all work that has been asked for, one piece per step.
struct Worker {
    asked: Arc<AtomicU32>,
    done: Arc<(StepMutex<u32>, Condvar)>,
    timed: bool,
}

impl Service for Worker {
    fn step(&mut self) -> Progress {
        let asked = self.asked.load(Ordering::SeqCst);
        let mut done = self.done.0.lock();
        if *done < asked {
            *done += 1;
            self.done.1.notify_all();
            return Progress::More;
        }
        Progress::Idle(self.timed.then_some(Duration::from_secs(1)))
    }
}

/// A request that then wakes the service is served, however the service was busy at that moment.
#[test]
fn no_wakeup_is_lost() {
    explore("no_wakeup_is_lost", 20000, || {
        let wakeup = Wakeup::new();
        let (asked, done) =
            (Arc::new(AtomicU32::new(0)), Arc::new((StepMutex::new(0), Condvar::new())));
        let worker = Worker { asked: asked.clone(), done: done.clone(), timed: below(2) == 0 };
        let runner = Runner::start("worker", &wakeup, worker).unwrap();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (wakeup, asked, done) = (wakeup.clone(), asked.clone(), done.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let mine = asked.fetch_add(1, Ordering::SeqCst) + 1;
                        wakeup.wake();
                        let mut n = done.0.lock();
                        while *n < mine {
                            done.1.wait(&mut n);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        runner.stop();
    });
}

/// Steps for ever, until it is told to stop.
struct Busy(Arc<Mutex<u32>>);

impl Service for Busy {
    fn step(&mut self) -> Progress {
        *self.0.lock().unwrap() += 1;
        // Under PCT the others get their turn only if it gives way.
        thread::yield_now();
        Progress::More
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = u32::MAX;
    }
}

/// A stop ends idle and busy services, also one that is being woken or has not begun; afterwards
/// its thread is gone.
#[test]
fn stop_always_ends() {
    explore("stop_always_ends", 20000, || {
        let wakeup = Wakeup::new();
        let steps = Arc::new(Mutex::new(0));
        let busy = below(2) == 0;
        let runner = if busy {
            Runner::start("busy", &wakeup, Busy(steps.clone())).unwrap()
        } else {
            let worker = Worker {
                asked: Arc::default(),
                done: Arc::new((StepMutex::new(0), Condvar::new())),
                timed: false,
            };
            Runner::start("idle", &wakeup, worker).unwrap()
        };
        let waker = {
            let wakeup = wakeup.clone();
            thread::spawn(move || wakeup.wake())
        };
        if below(2) == 0 {
            runner.stop();
        } else {
            drop(runner);
        }
        assert!(!busy || *steps.lock().unwrap() == u32::MAX, "the thread outlived the stop");
        waker.join().unwrap();
    });
}
