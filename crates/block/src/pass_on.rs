//! Methods that a decorator passes on to the device below it.

/// Inside `impl BlockDevice` of a decorator of `self.inner`: passes a group of methods on to it.
///
/// - `shape`: what it is;
/// - `abilities`: what it can do;
/// - `ends`: durable writes, flushes, and ranges that become empty;
/// - `reads`: all reads, for a device that watches changes only.
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

        fn read_vectored_at(
            &self,
            bufs: &mut [::std::io::IoSliceMut<'_>],
            offset: u64,
        ) -> $crate::Result<()> {
            self.inner.read_vectored_at(bufs, offset)
        }

    };
}
