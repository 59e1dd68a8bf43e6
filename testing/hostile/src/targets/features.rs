//! What only some volumes have: files of fs-verity, encrypted names, casefolded names.

use std::cell::RefCell;
use std::sync::LazyLock;

use extol_casefold::{MAX_EXPANSION, Wanted, fold};
use extol_fscrypt::{
    Context, FileKey, MasterKey, NoKeyName, Volume, decrypted_name, encrypted_name, symlink,
};
use extol_verity::{Descriptor, Failed, Recent, Tree, Verifier, ext4};

/// Most bytes of an encrypted name.
const MOST: usize = 255;

/// The end of the last block and the length stored there, then a descriptor, and behind it what is
/// read as its tree.
pub(super) fn verity(input: &[u8]) {
    let Some((end, rest)) = input.split_first_chunk::<8>() else { return };
    let Some((length, bytes)) = rest.split_first_chunk::<4>() else { return };
    let Some(size) = bytes.get(8..16).and_then(|size| size.try_into().ok()) else { return };
    let size = u64::from_le_bytes(size);
    let (end, length) = (u64::from_le_bytes(*end), u32::from_le_bytes(*length));
    if let Ok((at, len)) = ext4::locate(size, end, length, 4096) {
        assert!(at >= size && len <= ext4::MAX_LEN && at + len as u64 <= end);
    }
    let Ok(descriptor) = Descriptor::parse(bytes, size) else { return };
    let again = Descriptor::parse(&descriptor.to_bytes(), size);
    assert_eq!(again.map(|again| again.digest()), Ok(descriptor.digest()));
    let tree = bytes.get(descriptor.to_bytes().len()..).unwrap_or_default();
    let Ok(verifier) = Verifier::new(descriptor) else { return };
    for index in [0, 1, verifier.tree().data_blocks().saturating_sub(1), u64::MAX] {
        block_of(&verifier, index, tree);
    }
}

/// Verifies a block of zeros: it holds only if its hash is in the tree.
fn block_of(verifier: &Verifier, index: u64, tree: &[u8]) {
    let params = verifier.descriptor().params();
    let data = vec![0; params.block_len()];
    let known = RefCell::new(Recent::new(4));
    let mut read = Vec::new();
    let done = verifier.verify(index, &data, &known, |at, block| {
        read.push(at);
        let part = usize::try_from(at).ok().and_then(|at| tree.get(at..)).ok_or(())?;
        let len = part.len().min(block.len());
        block[..len].copy_from_slice(&part[..len]);
        Ok(())
    });
    let levels = verifier.tree().levels().len();
    assert!(read.len() <= levels && read.iter().all(|at| *at < verifier.tree().size()));
    assert_eq!(index >= verifier.tree().data_blocks(), matches!(done, Err(Failed::<()>::Outside)));
    let another = Tree::new(params, verifier.descriptor().data_size());
    assert_eq!(another.map(|tree| tree.size()), Ok(verifier.tree().size()));
}

static MASTER: LazyLock<MasterKey> = LazyLock::new(|| {
    let bytes: Vec<u8> = (1..=64).collect();
    MasterKey::new(&bytes).expect("a key of 64 bytes")
});

/// The length of a context in one byte, the context, and a name or a target.
pub(super) fn fscrypt(input: &[u8]) {
    let Some((len, rest)) = input.split_first() else { return };
    let (context, text) = rest.split_at(rest.len().min(usize::from(*len)));
    nokey(text);
    let _ = symlink::encrypted(text);
    let Ok(context) = Context::parse(context) else { return };
    assert_eq!(Context::parse(&context.to_bytes()), Ok(context));
    let volume = Volume { block_bits: 12, huge_files: false, stable_inodes: true, uuid: [7; 16] };
    for casefold in [false, true] {
        let Ok(policy) = context.policy.check(&volume, casefold) else { continue };
        let Ok(key) = FileKey::names(&MASTER, &policy, &context, 12) else { continue };
        let _ = decrypted_name(&key, text);
        let _ = symlink::target(&key, text);
        let name = text.split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(encrypted) = encrypted_name(&key, name, MOST).filter(|_| !name.is_empty()) {
            assert!(encrypted.len() <= MOST && encrypted.len() >= name.len());
            assert_eq!(decrypted_name(&key, &encrypted).as_deref(), Ok(name));
        }
    }
}

/// A name of an entry, and one that is looked up.
fn nokey(name: &[u8]) {
    for hash in [[0; 2], [0x1234_5678, 9]] {
        if let Some(shown) = NoKeyName::shown(hash, name).ok().filter(|_| name.len() <= MOST) {
            assert!(!shown.contains(&b'/') && !shown.contains(&0) && shown.len() <= MOST);
            assert_eq!(shown.len(), NoKeyName::shown_len(name.len()));
            let parsed = NoKeyName::parse(&shown).expect("a name that is shown is found");
            assert!(parsed.matches(name) && parsed.hash == hash);
        }
    }
    if let Some(parsed) = NoKeyName::parse(name) {
        assert!(parsed.whole().is_none_or(|whole| parsed.matches(whole)));
    }
}

/// Two names, the length of the first one in one byte.
pub(super) fn casefold(input: &[u8]) {
    let Some((len, rest)) = input.split_first() else { return };
    let (one, other) = rest.split_at(rest.len().min(usize::from(*len)));
    let (first, second) = (Wanted::new(one), Wanted::new(other));
    assert!(first.matches(one));
    assert_eq!(first.matches(other), second.matches(one));
    if let (Some(a), Some(b)) = (fold(one), fold(other)) {
        assert_eq!(a == b || one == other, first.matches(other));
        if std::str::from_utf8(one).is_ok() {
            assert!(a.len() <= one.len() * MAX_EXPANSION);
            assert!(std::str::from_utf8(&a).is_ok());
        }
    }
    if first.matches(other) && one != other {
        assert_eq!(first.hashed(), second.hashed(), "equal names have one hash");
    }
}
