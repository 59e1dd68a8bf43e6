//! What a device that stands before another need not say itself.

/// Inside `impl BlockDevice` of a device that stands before `self.inner`: passes a group of methods
/// on to it.
///
/// - `shape`: what it is;
/// - `abilities`: what it can do;
/// - `ends`: durable writes, flushes, and ranges that become empty;
/// - `reads`: all reads, for who only watches changes. (A way to read that was forgotten would
///   work, but as one read at a time.)
#[macro_export]
macro_rules! pass_on {
    ($($group:ident),+) => { $($crate::pass_on!(@ $group);)+ };
    (@shape) => {
        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn alignment(&self) -> usize {
            self.inner.alignment()
        }

        fn is_read_only(&self) -> bool {
            self.inner.is_read_only()
        }

        fn make_writable(&self) -> $crate::Result<()> {
            self.inner.make_writable()
        }

        fn is_locked(&self) -> bool {
            self.inner.is_locked()
        }
    };
    (@abilities) => {
        fn fua_is_flush(&self) -> bool {
            self.inner.fua_is_flush()
        }

        fn fua(&self) -> $crate::Fua {
            self.inner.fua()
        }

        fn can_discard(&self) -> bool {
            self.inner.can_discard()
        }

        fn discard_zeroes(&self) -> bool {
            self.inner.discard_zeroes()
        }
    };
    (@ends) => {
        fn write_fua(&self, buf: &[u8], offset: u64) -> $crate::Result<()> {
            self.inner.write_fua(buf, offset)
        }

        fn flush(&self) -> $crate::Result<()> {
            self.inner.flush()
        }

        fn discard(&self, offset: u64, len: u64) -> $crate::Result<()> {
            self.inner.discard(offset, len)
        }

        fn zero_range(&self, offset: u64, len: u64) -> $crate::Result<()> {
            self.inner.zero_range(offset, len)
        }
    };
    (@reads) => {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> $crate::Result<()> {
            self.inner.read_at(buf, offset)
        }

        fn read_vectored_at(&self, bufs: &mut [::std::io::IoSliceMut<'_>], offset: u64) -> $crate::Result<()> {
            self.inner.read_vectored_at(bufs, offset)
        }

        fn read_scattered(&self, reads: &mut [$crate::ScatteredRead<'_>], done: $crate::ReadDone<'_>) {
            self.inner.read_scattered(reads, done)
        }

        fn reads_together(&self) -> bool {
            self.inner.reads_together()
        }

        fn reads_from(&self) -> ::std::option::Option<$crate::ReadsFrom<'_>> {
            self.inner.reads_from()
        }
    };
}
