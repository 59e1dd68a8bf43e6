//! What may be set of an export.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;

use extol_vfs::number;

use crate::handle::Secret;
use crate::limits;

/// Whose ids are replaced by those of the anonymous user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Squash {
    /// Those of root.
    #[default]
    Root,
    /// All.
    All,
    /// None: root of a client is root here.
    None,
}

/// An export.
#[derive(Clone, Debug)]
pub struct Config {
    /// Nothing is changed.
    pub read_only: bool,
    /// Whose ids are replaced.
    pub squash: Squash,
    /// User in their place.
    pub anonymous_uid: u32,
    /// Group in its place.
    pub anonymous_gid: u32,
    /// The directory that is exported, from the root of the volume.
    pub subtree: Vec<u8>,
    /// Peers that may connect. None: those of this machine.
    pub allowed: Vec<Network>,
    /// Only peers on ports below 1024, which only root may use.
    pub low_ports: bool,
    /// The secret of the handles. None: a new one, and no handle is good after a restart.
    pub secret: Option<Secret>,
    /// Most connections at a time.
    pub connections: usize,
    /// Most bytes of requests and replies in memory; [`limits::MEMORY_LEAST`] at least.
    pub memory: usize,
}

/// The user and group that stand for no one in particular.
const ANONYMOUS: u32 = 65534;

impl Default for Config {
    fn default() -> Self {
        Self {
            read_only: false,
            squash: Squash::Root,
            anonymous_uid: ANONYMOUS,
            anonymous_gid: ANONYMOUS,
            subtree: Vec::new(),
            allowed: Vec::new(),
            low_ports: false,
            secret: None,
            connections: limits::CONNECTIONS,
            memory: limits::MEMORY,
        }
    }
}

impl Config {
    /// Takes an option of exports(5), or one of ours. False: it is none.
    ///
    /// # Errors
    /// One line about a bad value.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        let given = || value.filter(|value| !value.is_empty());
        let count = |range: RangeInclusive<u64>| {
            let text = given().ok_or_else(|| format!("option \"{name}\": give a number"))?;
            number::count(text, range).map_err(|why| format!("option \"{name}\": {why}"))
        };
        let id =
            || count(0..=(u32::MAX - 1).into()).map(|id| u32::try_from(id).unwrap_or(ANONYMOUS));
        match name {
            "anonuid" => self.anonymous_uid = id()?,
            "anongid" => self.anonymous_gid = id()?,
            "connections" => self.connections = count(1..=1 << 16)? as usize,
            "memory" => {
                let text = given().ok_or("option \"memory\": give a size, such as 64m")?;
                let bytes = number::size(text, 1, limits::MEMORY_LEAST as u64..=1 << 40)
                    .map_err(|why| format!("option \"memory\": {why}"))?;
                self.memory = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
            "subtree" => {
                let path = given().ok_or("option \"subtree\": give a directory of the volume")?;
                self.subtree = path.as_bytes().to_vec();
            }
            _ if value.is_some() => return Ok(false),
            "root_squash" => self.squash = Squash::Root,
            "all_squash" => self.squash = Squash::All,
            "no_root_squash" | "no_all_squash" => self.squash = Squash::None,
            "secure" => self.low_ports = true,
            "insecure" => self.low_ports = false,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// True if a peer at this address may connect.
    #[must_use]
    pub fn allows(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        if self.allowed.is_empty() {
            return peer.is_loopback();
        }
        self.allowed.iter().any(|network| network.holds(peer))
    }
}

/// Addresses that have their first bits in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    ///
    /// # Errors
    /// One line if it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("bad network \"{text}\": use ADDRESS/BITS, such as 192.168.1.0/24");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(bad)?
            }
            Some(_) => return Err(bad()),
        };
        let network = Self { address, bits };
        if !network.holds(address) || network.first() != address {
            return Err(format!(
                "bad network \"{text}\": it has bits behind the first {bits}; use {}/{bits}",
                network.first()
            ));
        }
        Ok(network)
    }

    fn mask(&self) -> u128 {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        u128::MAX.checked_shl(most - self.bits).unwrap_or(0)
    }

    fn number(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn first(&self) -> IpAddr {
        let first = Self::number(self.address) & self.mask();
        match self.address {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(first).unwrap_or(0).into()),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(first)),
        }
    }

    fn holds(&self, peer: IpAddr) -> bool {
        self.address.is_ipv4() == peer.is_ipv4()
            && (Self::number(self.address) ^ Self::number(peer)) & self.mask() == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(networks: &[&str], peer: &str) -> bool {
        let allowed = networks.iter().map(|text| Network::parse(text).expect(text)).collect();
        Config { allowed, ..Config::default() }.allows(peer.parse().expect(peer))
    }

    #[test]
    fn without_a_network_only_this_machine_may_connect() {
        for (peer, may) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.168.1.1", false),
            ("::ffff:192.168.1.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(allows(&[], peer), may, "{peer}");
        }
    }

    #[test]
    fn a_network_holds_what_its_bits_say() {
        let networks = ["192.168.4.0/22", "10.1.2.3", "fd00::/8"];
        for (peer, may) in [
            ("192.168.7.255", true),
            ("192.168.8.0", false),
            ("192.168.3.255", false),
            ("::ffff:192.168.5.1", true),
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("fdff::1", true),
            ("fe00::1", false),
            // What is said holds for this machine, too.
            ("127.0.0.1", false),
        ] {
            assert_eq!(allows(&networks, peer), may, "{peer}");
        }
        assert!(allows(&["0.0.0.0/0"], "203.0.113.9"));
        assert!(!allows(&["0.0.0.0/0"], "2001:db8::1"));
        assert!(allows(&["::/0"], "2001:db8::1"));
    }

    #[test]
    fn mistakes_in_networks_are_one_line() {
        for text in ["", "x", "1.2.3.4/33", "1.2.3.4/-1", "::/129", "1.2.3.4/+8", "1.2.3.4/"] {
            assert!(Network::parse(text).unwrap_err().contains("bad network"), "{text}");
        }
        assert!(Network::parse("10.1.2.3/8").unwrap_err().ends_with("use 10.0.0.0/8"));
    }

    #[test]
    fn options_have_the_names_of_exports() {
        let mut config = Config::default();
        for (name, value) in [
            ("all_squash", None),
            ("anonuid", Some("1000")),
            ("anongid", Some("0")),
            ("secure", None),
            ("subtree", Some("/home")),
            ("memory", Some("16m")),
            ("connections", Some("4")),
        ] {
            assert_eq!(config.set(name, value), Ok(true), "{name}");
        }
        assert_eq!((config.squash, config.low_ports), (Squash::All, true));
        assert_eq!((config.anonymous_uid, config.anonymous_gid), (1000, 0));
        assert_eq!((config.memory, config.connections), (16 << 20, 4));
        assert_eq!(config.subtree, b"/home");
        for (name, value) in [("noatime", None), ("all_squash", Some("x")), ("uid", Some("1"))] {
            assert_eq!(config.set(name, value), Ok(false), "{name}");
        }
        for (name, value) in [
            ("anonuid", Some("-1")),
            ("anongid", None),
            ("memory", Some("x")),
            ("memory", Some("3m")),
            ("subtree", None),
            ("connections", Some("0")),
        ] {
            assert!(config.set(name, value).is_err(), "{name}");
        }
    }
}
