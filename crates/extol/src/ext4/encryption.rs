//! Encryption of the volume: policies, and requests about it of other processes.

use extol_fscrypt::{BadKey, Context, DESCRIPTOR_LEN, KeySpec, MasterKey, Policy};
use extol_ondisk::Incompat;
use extol_vfs::{FsError, RemountError, Result};

use super::Ext4;
use crate::encryption::{Encryption, KEYS_AT_ONCE, KeyStatus, Request, secret, spec_to_hex};
use crate::keys::Keys;
use crate::ops::{keys, policy};

impl Ext4 {
    /// How an inode is encrypted.
    ///
    /// # Errors
    /// `NoAttribute` if it is not; `NotSupported` if the volume has no feature encrypt.
    pub fn encryption(&self, ino: u32) -> Result<Encryption> {
        let context = self.context(ino)?;
        let has_key = self.fs().vol.keys.find(&context.policy.key).is_some();
        Ok(Encryption { context, has_key })
    }

    /// True if the volume can have encrypted files.
    pub fn has_feature_encrypt(&self) -> bool {
        self.fs().vol.geo.incompat().contains(Incompat::ENCRYPT)
    }

    pub(super) fn context(&self, ino: u32) -> Result<Context> {
        self.op(|fs| policy::context(fs, ino))
    }

    /// Makes an empty directory an encrypted one. What is made in it is encrypted by this policy. A
    /// directory that has this policy stays as it is.
    ///
    /// # Errors
    /// Those of Linux: `Exists` if it has another policy; `NotADirectory`; `NotEmpty`; `Invalid` if
    /// the policy cannot be used there; `NotPermitted` for the root; `NotSupported` if the volume
    /// has no feature encrypt.
    pub fn set_encryption(&self, ino: u32, policy: &Policy) -> Result<()> {
        self.change(|fs| policy::set(fs, ino, policy))
    }

    /// Adds a key to the volume while it is in use: for policies of version 2, or with a descriptor
    /// for those of version 1 that call it this. Gives what it is called. A key that is called as
    /// one that is there changes nothing.
    ///
    /// # Errors
    /// If no key has this length.
    pub fn add_key(
        &self,
        raw: &[u8],
        descriptor: Option<[u8; DESCRIPTOR_LEN]>,
    ) -> std::result::Result<KeySpec, BadKey> {
        let mut more = Keys::default();
        let spec = match descriptor {
            None => {
                more.add(raw)?;
                KeySpec::Identifier(MasterKey::new(raw)?.identifier())
            }
            Some(descriptor) => {
                more.add_as(descriptor, raw)?;
                KeySpec::Descriptor(descriptor)
            }
        };
        let fs = self.fs();
        fs.vol.keys.extend(&more);
        fs.options.lock().keys.extend(&more);
        self.outdated.lock().extend(fs.table.referenced());
        Ok(spec)
    }

    /// What the keys of the volume are called.
    pub fn keys(&self) -> Vec<KeyStatus> {
        let all = self.fs().vol.keys.all().into_iter();
        all.map(|(spec, is_there, files)| KeyStatus { spec, is_there, files }).collect()
    }

    /// Takes a key away while the volume is in use. Names that it encrypts are shown as without it,
    /// and files cannot be opened. Files that the front end has open
    /// ([`Mountable::opened`](extol_vfs::Mountable::opened)) can still be read and written: how
    /// many they are is the answer. Once they are closed, the next call takes away what is left.
    ///
    /// # Errors
    /// `NoKey` if there is no such key.
    pub fn remove_key(&self, spec: &KeySpec) -> Result<usize> {
        let files = self.change(|fs| keys::remove(fs, spec))?;
        self.outdated.lock().extend(self.fs().table.referenced());
        Ok(files)
    }

    /// Answers a request of another process.
    pub(super) fn answer_about_encryption(
        &self,
        request: &str,
    ) -> std::result::Result<Vec<String>, RemountError> {
        if let Some((raw, descriptor)) = secret(request) {
            let added = self.add_key(&raw, descriptor);
            let told = added.map_err(|error| RemountError(error.to_string()));
            return told.map(|spec| vec![spec_to_hex(&spec)]);
        }
        let Some(request) = Request::parse(request) else {
            return Err(RemountError("the request is of another version of extol".into()));
        };
        let done = match request {
            Request::Policy(ino) => match self.encryption(ino) {
                Ok(found) => Ok(vec![found.to_text()]),
                Err(FsError::NoAttribute) => Ok(Vec::new()),
                Err(error) => Err(error),
            },
            Request::Keys(from) => {
                let keys = self.keys();
                let some = keys.iter().skip(from).take(KEYS_AT_ONCE);
                Ok(some.map(KeyStatus::to_text).collect())
            }
            Request::RemoveKey(spec) => self.remove_key(&spec).map(|files| vec![files.to_string()]),
            Request::SetPolicy(ino, policy) => {
                self.set_encryption(ino, &policy).map(|()| Vec::new())
            }
        };
        done.map_err(|error| RemountError(error.to_string()))
    }
}
