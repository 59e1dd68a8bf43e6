//! What a front end of a kernel wants of an open volume.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_ondisk::Incompat;
use extol_vfs::acting_for;
use extol_vfs::{Attr, Author, Done, Fallocate, Job, Mountable, OpenNr, Reader, Result};

use super::{Ext4, KeptReader};
use crate::data::readahead::FileReadahead;
use crate::mounted::MountedFs;
use crate::ops::{files, names, references};

impl Mountable for Ext4 {
    fn open_by_number(&self, ino: u32) -> Result<Attr> {
        self.op(|fs| names::open_by_number(fs, ino))
    }

    fn open_entry(&self, dir: u32, ino: u32) -> Result<Attr> {
        self.op(|fs| names::open_entry(fs, dir, ino))
    }

    fn kept_reader(self: Arc<Self>, ino: u32) -> Option<Arc<dyn Reader>> {
        Some(Arc::new(KeptReader { fs: self, ino, ahead: FileReadahead::default() }))
    }

    fn count_opens(&self) {
        self.fs().table.count_opens();
    }

    fn opened(&self, ino: u32) -> Result<OpenNr> {
        let fs = self.fs();
        files::check_open(&fs, ino)?;
        fs.table.open(ino)
    }

    fn closed(&self, ino: u32) {
        let fs = self.fs();
        if fs.table.close(&fs.vol, ino) {
            references::unused(&fs, ino);
        }
    }

    fn write_as(&self, ino: u32, offset: u64, data: &[u8], author: Author) -> Result<usize> {
        let write = |fs: &MountedFs| files::write(fs, ino, offset, data, author);
        acting_for(author.process(), || self.change(write))
    }

    fn fallocate_as(
        &self,
        ino: u32,
        mode: Fallocate,
        offset: u64,
        len: u64,
        author: Author,
    ) -> Result<()> {
        let allocate = |fs: &MountedFs| files::fallocate(fs, ino, mode, (offset, len), author);
        acting_for(author.process(), || self.change(allocate))
    }

    fn kill_privileges(&self, ino: u32, outsider: bool) -> Result<()> {
        self.change(|fs| files::kill_privileges(fs, ino, outsider))
    }

    fn fsync_open(&self, ino: u32, open: OpenNr, data_only: bool) -> Result<()> {
        self.op(|fs| files::fsync(fs, (ino, open), data_only))
    }

    fn fsync_then(
        &self,
        file: (u32, OpenNr),
        data_only: bool,
        done: Done,
        lead: &mut dyn FnMut(Job),
    ) {
        let fs = self.fs();
        fs.operations.add();
        files::fsync_then(&fs, file, data_only, done, lead);
    }

    fn refuse_when_frozen(&self) {
        self.fs().freeze_gate.refuse();
    }

    fn wait_thawed(&self) {
        self.fs().freeze_gate.wait_open();
    }

    fn caches_sizes(&self) {
        self.sizes_cached.store(true, Ordering::Release);
    }

    fn names_have_spellings(&self) -> bool {
        self.fs().vol.geo.incompat().contains(Incompat::CASEFOLD)
    }

    fn take_outdated(&self) -> Vec<u32> {
        self.outdated()
    }

    fn unmounted(&self) -> Result<()> {
        self.unmount()
    }
}
