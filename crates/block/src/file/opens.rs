//! Opens of a disk image by other processes, as inotify(7) tells them.
//!
//! Nothing keeps a loop device from being attached to an image that is in use here, and the kernel
//! from mounting that. But it begins with an open of the image. So the layer above asks before a
//! change and after a flush ([`Opens::any`]), which costs one read(2) of the queue of events, and
//! looks at the volume while another process may have the image open.
//!
//! *Odd cases.* The kernel merges two events of one kind that follow each other unread, so the
//! number of opens that are not closed is a bound for the usual order, and no proof. A queue that
//! has run over counts as an open for good. Where there is no inotify instance to be had, or no
//! `/proc`, nothing is told. A block device is claimed exclusively instead.
//!
//! *Locking.* One lock, a leaf.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// The opens of one image.
#[derive(Debug, Default)]
pub(super) struct Opens(Option<Mutex<Queue>>);

/// The queue of events of an image, and the opens that it has told of.
#[derive(Debug)]
struct Queue {
    inotify: OwnedFd,
    /// Opens that are not closed.
    open: u64,
}

impl Opens {
    /// Those from now on.
    pub(super) fn of(file: &File) -> Self {
        let watch = || {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            let events = WatchFlags::OPEN | WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            inotify::add_watch(&inotify, path, events).ok()?;
            Some(Mutex::new(Queue { inotify, open: 0 }))
        };
        Self(watch())
    }

    /// True if another process has opened it since the last call, or has it open.
    pub(super) fn any(&self) -> bool {
        let Some(queue) = &self.0 else { return false };
        queue.lock().unwrap_or_else(PoisonError::into_inner).any()
    }
}

impl Queue {
    fn any(&mut self) -> bool {
        let mut some = false;
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut events = Reader::new(&self.inotify, &mut room);
        while let Ok(event) = events.next() {
            let kind = event.events();
            some = true;
            if kind.intersects(ReadFlags::OPEN | ReadFlags::QUEUE_OVERFLOW) {
                self.open += 1;
            } else if kind.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE) {
                self.open = self.open.saturating_sub(1);
            }
        }
        some || self.open > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_are_told_until_they_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let file = File::create(&path).unwrap();
        let opens = Opens::of(&file);
        assert!(!opens.any());
        let other = File::open(&path).unwrap();
        assert!(opens.any() && opens.any());
        let third = File::options().append(true).open(&path).unwrap();
        assert!(opens.any());
        drop(other);
        assert!(opens.any() && opens.any());
        drop(third);
        assert!(opens.any() && !opens.any());
        // Both events came since the last call.
        drop(File::open(&path).unwrap());
        assert!(opens.any() && !opens.any());
        drop(file);
        assert!(!Opens::default().any());
    }
}
