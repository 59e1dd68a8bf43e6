//! Methods that a decorator passes on to the device below it, and those of devices that are only
//! read.

/// Inside `impl BlockDevice` of a decorator: passes groups of methods on to `self.inner`, or to
/// another device that is said before them (`pass_on!(me => **me; shape, reads)`).
///
/// - `shape`: what it is;
/// - `abilities`: what it can do;
/// - `reads`: all reads, for a device that watches changes only;
/// - `writes`: writes that are not durable yet, alone and in batches, and batches of durable ones;
/// - `ends`: durable writes, flushes, and ranges that become empty;
/// - `length`: changes of the size.
#[macro_export]
macro_rules! pass_on {
    ($($group:ident),+) => { $crate::pass_on!(me => me.inner; $($group),+); };
    ($me:ident => $below:expr; $($group:ident),+) => {
        $($crate::pass_on!(@$group $me $below);)+
    };
    (@shape $me:ident $below:expr) => { $crate::pass_on! { @methods $me $below;
        size() -> u64;
        size_now() -> u64;
        alignment() -> usize;
        table_sector() -> u64;
        is_read_only() -> bool;
        write_refusal() -> Option<String>;
        make_writable() -> $crate::Result<()>;
        is_locked() -> bool;
        object() -> Option<usize>;
        keep_others_out() -> $crate::Result<()>;
        others_open_it() -> bool;
        drop_page_cache() -> ();
    } };
    (@abilities $me:ident $below:expr) => { $crate::pass_on! { @methods $me $below;
        fua_is_flush() -> bool;
        fua() -> $crate::Fua;
        can_discard() -> bool;
        discard_zeroes() -> bool;
    } };
    (@reads $me:ident $below:expr) => { $crate::pass_on! { @methods $me $below;
        read_at(buf: &mut [u8], offset: u64) -> $crate::Result<()>;
        read_vectored_at(bufs: &mut [::std::io::IoSliceMut<'_>], offset: u64) -> $crate::Result<()>;
        data_from(at: u64) -> $crate::Result<Option<::std::ops::Range<u64>>>;
    } };
    (@writes $me:ident $below:expr) => { $crate::pass_on! { @methods $me $below;
        write_at(buf: &[u8], offset: u64) -> $crate::Result<()>;
        write_vectored_at(bufs: &[::std::io::IoSlice<'_>], offset: u64) -> $crate::Result<()>;
        write_scattered(writes: &[$crate::ScatteredWrite<'_>]) -> $crate::Result<()>;
        write_scattered_fua(writes: &[$crate::ScatteredWrite<'_>]) -> $crate::Result<()>;
        write_mark(buf: &[u8], offset: u64) -> $crate::Result<()>;
    } };
    (@ends $me:ident $below:expr) => { $crate::pass_on! { @methods $me $below;
        write_fua(buf: &[u8], offset: u64) -> $crate::Result<()>;
        flush() -> $crate::Result<()>;
        discard(offset: u64, len: u64) -> $crate::Result<()>;
        zero_range(offset: u64, len: u64) -> $crate::Result<()>;
    } };
    (@length $me:ident $below:expr) => { $crate::pass_on! { @methods $me $below;
        set_size(bytes: u64) -> $crate::Result<()>;
    } };
    (@methods $me:ident $below:expr;
        $($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)+) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            let $me = self;
            $below.$name($($arg),*)
        })+
    };
}
