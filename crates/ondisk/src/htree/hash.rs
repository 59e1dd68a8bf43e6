//! Hashes of names, by which the entries of a hashed directory are ordered.

use crate::geometry::Geometry;

/// A hash function of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashVersion {
    /// The first one; weak.
    Legacy,
    /// Half of MD4's rounds; the usual one.
    HalfMd4,
    /// Tiny encryption algorithm.
    Tea,
}

impl HashVersion {
    /// From the number in a dx root or the superblock. 3 to 5, which stand for the unsigned
    /// versions in memory, are not valid on disk, but old kernels wrote them.
    #[must_use]
    pub fn from_disk(n: u8) -> Option<Self> {
        match n {
            0 | 3 => Some(Self::Legacy),
            1 | 4 => Some(Self::HalfMd4),
            2 | 5 => Some(Self::Tea),
            _ => None,
        }
    }

    /// The number on disk.
    #[must_use]
    pub fn to_disk(self) -> u8 {
        match self {
            Self::Legacy => 0,
            Self::HalfMd4 => 1,
            Self::Tea => 2,
        }
    }
}

/// How a volume hashes names in one directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hasher {
    /// Function.
    pub version: HashVersion,
    /// Characters above 127 count as positive.
    pub unsigned: bool,
    /// Seed of the volume; zeros mean the standard one.
    pub seed: [u32; 4],
}

/// Hash of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameHash {
    /// The hash that the tree is ordered by; even.
    pub hash: u32,
    /// A second one that orders names with the same first.
    pub minor: u32,
}

impl NameHash {
    /// As an index has two words of a hash function.
    #[must_use]
    pub fn of_index(hash: u32, minor: u32) -> Self {
        let hash = hash & !1;
        // The greatest value marks the end of a directory.
        Self { hash: if hash == 0xFFFF_FFFE { 0xFFFF_FFFC } else { hash }, minor }
    }
}

impl Hasher {
    /// The hasher for a directory whose root names this version.
    #[must_use]
    pub fn new(geo: &Geometry, disk_version: u8) -> Option<Self> {
        let version = HashVersion::from_disk(disk_version)?;
        let unsigned = (geo.hash_unsigned && disk_version < 3) || (3..=5).contains(&disk_version);
        Some(Self { version, unsigned, seed: geo.hash_seed })
    }

    /// The hasher for new directories: the volume's default, or half-MD4 if that is unknown.
    #[must_use]
    pub fn default_for(geo: &Geometry) -> Self {
        Self::new(geo, geo.def_hash_version).unwrap_or(Self {
            version: HashVersion::HalfMd4,
            unsigned: geo.hash_unsigned,
            seed: geo.hash_seed,
        })
    }

    /// Hashes a name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let mut state = if self.seed == [0; 4] {
            [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476]
        } else {
            self.seed
        };
        let (hash, minor) = match self.version {
            HashVersion::Legacy => (legacy(name, self.unsigned), 0),
            HashVersion::HalfMd4 => {
                let mut rest = name;
                while !rest.is_empty() {
                    half_md4(&mut state, &words::<8>(rest, self.unsigned));
                    rest = rest.get(32..).unwrap_or_default();
                }
                (state[1], state[2])
            }
            HashVersion::Tea => {
                let mut rest = name;
                while !rest.is_empty() {
                    tea(&mut state, &words::<4>(rest, self.unsigned));
                    rest = rest.get(16..).unwrap_or_default();
                }
                (state[0], state[1])
            }
        };
        NameHash::of_index(hash, minor)
    }
}

fn widen(c: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(c) } else { c as i8 as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut h0, mut h1) = (0x12A3_FE2Du32, 0x37AB_E8F9u32);
    for &c in name {
        let mut h = h1.wrapping_add(h0 ^ widen(c, unsigned).wrapping_mul(7_152_373));
        if h & 0x8000_0000 != 0 {
            h = h.wrapping_sub(0x7FFF_FFFF);
        }
        h1 = h0;
        h0 = h;
    }
    h0 << 1
}

/// Packs the first `4 * N` bytes of what is left of a name into words; padding repeats the length
/// that is left.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let pad = (rest.len() as u32 & 0xFF).wrapping_mul(0x0101_0101);
    let mut out = [pad; N];
    for (word, chunk) in out.iter_mut().zip(rest.chunks(4)) {
        *word = chunk.iter().fold(pad, |w, &c| widen(c, unsigned).wrapping_add(w << 8));
    }
    out
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5A82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (|x, y, z| x ^ y ^ z, 0x6ED9_EBA1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, turns) in rounds {
        for (step, &word) in order.iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[word]).wrapping_add(constant);
            // The four words take turns: what was `a` becomes the newest and moves to the second
            // place.
            (a, b, c, d) = (d, sum.rotate_left(turns[step % 4]), b, c);
        }
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d]) {
        *s = s.wrapping_add(v);
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut v0, mut v1) = (state[0], state[1]);
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let mix = |v: u32, k0: u32, k1: u32| {
            (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
        };
        v0 = v0.wrapping_add(mix(v1, key[0], key[1]));
        v1 = v1.wrapping_add(mix(v0, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(v0);
    state[1] = state[1].wrapping_add(v1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(version: HashVersion, unsigned: bool, seed: [u32; 4], name: &str) -> (u32, u32) {
        let h = Hasher { version, unsigned, seed }.hash(name.as_bytes());
        (h.hash, h.minor)
    }

    #[test]
    fn hashes() {
        use HashVersion::{HalfMd4, Legacy, Tea};
        assert_eq!(hash(HalfMd4, false, [0; 4], "foo"), (0x74C6_57AC, 0x85A8_D812));
        assert_eq!(hash(Tea, false, [0; 4], "foo"), (0x901B_3376, 0x4878_F6AE));
        assert_eq!(hash(Legacy, false, [0; 4], "foo").0, 0x9F57_EF58);
        let name = "f\u{f6}\u{f6}";
        assert_eq!(hash(HalfMd4, false, [0; 4], name), (0x8F2E_E650, 0xBDAD_3697));
        assert_eq!(hash(HalfMd4, true, [0; 4], name), (0x8697_3340, 0x4631_5381));
        assert_eq!(hash(Tea, false, [0; 4], name), (0x74F1_2C86, 0xA821_399A));
        assert_eq!(hash(Tea, true, [0; 4], name), (0x10F3_4EE6, 0xD3FC_B075));
        assert_eq!(hash(Legacy, false, [0; 4], name).0, 0x3A22_CDCC);
        assert_eq!(hash(Legacy, true, [0; 4], name).0, 0x1AFE_D3CC);
        let seed = [0x3322_1100, 0x7766_5544, 0xBBAA_9988, 0xFFEE_DDCC];
        let long = "hello_world_this_is_a_long_name_0123456789";
        assert_eq!(hash(HalfMd4, false, seed, long), (0xC23F_B5C2, 0x5BB4_E873));
        assert_eq!(hash(Tea, false, seed, long), (0x8098_67C0, 0xEF5C_BACF));
    }
}
