//! Two hosts with a small TCP, the payload framework between them, and conversations that they
//! hold: cut, reordered, repeated and lost as a test wants.

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub(crate) mod arena;
pub(crate) mod h323;
pub(crate) mod host;
pub(crate) mod link;
pub(crate) mod pptp;
pub(crate) mod recorded;
pub(crate) mod spoken;
pub(crate) mod telephone;

pub(crate) use host::Host;
pub(crate) use link::{Link, Opening};

use natgate_payload::{
    CallStep, Counterpart, Endpoints, Expectation, FurtherFlow, Ports, Side, Uses, Wanted,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// A generator of test choices (SplitMix64); a test prints its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// The mark of a realm: its number, which is the same in another process.
pub(crate) fn mark(realm: u16) -> Option<u16> {
    Some(realm)
}

/// The realm of a mark.
pub(crate) fn realm(mark: u16) -> Option<u16> {
    Some(mark)
}

/// Ports of a translator that has enough of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    pub(crate) made: Vec<Expectation>,
    pub(crate) withdrawn: Vec<Expectation>,
    pub(crate) shortened: Vec<Expectation>,
    /// Time in seconds, and the end of what is kept for an internal endpoint.
    pub(crate) now: u32,
    pub(crate) ends: BTreeMap<SocketAddr, u32>,
    pub(crate) next: u16,
    /// Internal endpoints that have a port.
    pub(crate) named: Vec<SocketAddr>,
    pub(crate) is_empty: bool,
    /// True if no two ports follow each other.
    pub(crate) has_no_pair: bool,
    /// Addresses inside and outside, and whether they are one to one.
    pub(crate) addresses: Vec<(Ipv4Addr, Ipv4Addr, bool)>,
    /// Steps of calls. The external Call ID of the internal host's one at a place is 60,002 and
    /// twice the place.
    pub(crate) steps: Vec<CallStep>,
    /// Further control flows.
    pub(crate) followed: Vec<FurtherFlow>,
}

impl Book {
    /// Seconds for which a port of the internal host is kept.
    pub(crate) fn left(&self, port: u16) -> u32 {
        let of_port = self.ends.iter().filter(|(internal, _)| internal.port() == port);
        of_port.map(|(_, end)| end.saturating_sub(self.now)).max().unwrap_or(0)
    }
}

impl Ports for Book {
    fn expect(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4> {
        if self.is_empty || self.has_no_pair && wanted.wanted == Wanted::Pair {
            return None;
        }
        self.made.push(*wanted);
        let end = self.ends.entry(wanted.internal).or_default();
        *end = (*end).max(self.now + u32::from(wanted.lifetime));
        if wanted.wanted == Wanted::EndpointOfFlow {
            return Some(flow.external);
        }
        if let Some(at) = self.named.iter().position(|named| *named == wanted.internal) {
            return Some(SocketAddrV4::new(*flow.external.ip(), 60_002 + 2 * at as u16));
        }
        self.named.push(wanted.internal);
        self.next += 2;
        Some(SocketAddrV4::new(*flow.external.ip(), 60_000 + self.next))
    }

    fn limit(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4> {
        let at = self.named.iter().position(|named| *named == wanted.internal)?;
        let is_same =
            |made: &Expectation| (made.internal, made.remote) == (wanted.internal, wanted.remote);
        if self.made.iter().any(is_same) {
            return None;
        }
        self.made.push(*wanted);
        Some(SocketAddrV4::new(*flow.external.ip(), 60_002 + 2 * at as u16))
    }

    fn shorten(&mut self, _: &Endpoints, wanted: &Expectation) {
        self.shortened.push(*wanted);
        if let Some(end) = self.ends.get_mut(&wanted.internal) {
            *end = (*end).min(self.now + u32::from(wanted.lifetime));
        }
    }

    fn withdraw(&mut self, _: &Endpoints, wanted: &Expectation) {
        self.withdrawn.push(*wanted);
        self.ends.remove(&wanted.internal);
    }

    fn counterpart(&self, _: &Endpoints, from: Side, address: Ipv4Addr) -> Option<Counterpart> {
        let of = |&(inside, outside, is_one_to_one): &(Ipv4Addr, Ipv4Addr, bool)| match from {
            Side::Inside if inside == address => {
                Some(Counterpart { address: outside, is_one_to_one })
            }
            Side::Outside if outside == address && is_one_to_one => {
                Some(Counterpart { address: inside, is_one_to_one })
            }
            _ => None,
        };
        self.addresses.iter().find_map(of)
    }

    fn across(&self, flow: &Endpoints, address: IpAddr) -> Option<IpAddr> {
        let SocketAddr::V6(known) = flow.remote_inside else { return None };
        let prefix = known.ip().to_bits() >> 32 << 32;
        match address {
            IpAddr::V4(address) => {
                Some(Ipv6Addr::from_bits(prefix | u128::from(address.to_bits())).into())
            }
            IpAddr::V6(address) => {
                let low = address.to_bits() ^ prefix;
                u32::try_from(low).ok().map(|low| Ipv4Addr::from_bits(low).into())
            }
        }
    }

    fn follow(&mut self, _: &Endpoints, further: &FurtherFlow, _: u16) -> bool {
        self.followed.push(*further);
        true
    }

    fn call(&mut self, _: &Endpoints, step: CallStep) -> Option<u16> {
        let place = |own: u16| self.named.iter().position(|named| named.port() == own);
        let external = |own: u16| Some(60_002 + 2 * place(own)? as u16);
        let answer = match step {
            CallStep::Internal(outer) => {
                let place = usize::from(outer.checked_sub(60_002)?) / 2;
                self.named.get(place).map(SocketAddr::port)
            }
            CallStep::OfPeer(peer) => self.steps.iter().rev().find_map(|step| match step {
                CallStep::Peer { internal, peer: other } if *other == peer => Some(*internal),
                _ => None,
            }),
            CallStep::Peer { internal: own, .. } | CallStep::Clear(own) | CallStep::End(own) => {
                external(own)
            }
            CallStep::Restart => None,
        };
        if !matches!(step, CallStep::Internal(_) | CallStep::OfPeer(_)) {
            self.steps.push(step);
        }
        answer
    }
}

pub(crate) fn endpoints(internal: &str, external: &str, remote: &str) -> Endpoints {
    let internal: SocketAddr = internal.parse().unwrap();
    let remote: SocketAddrV4 = remote.parse().unwrap();
    let remote_inside: SocketAddr = match internal {
        SocketAddr::V4(_) => remote.into(),
        SocketAddr::V6(_) => {
            format!("[64:ff9b::{}]:{}", remote.ip(), remote.port()).parse().unwrap()
        }
    };
    let external = external.parse().unwrap();
    Endpoints { internal, external, remote, remote_inside, realm: 0, number: None }
}

/// A client inside with IPv4.
pub(crate) fn client_inside(port: u16) -> Endpoints {
    endpoints("10.0.0.5:40000", "203.0.113.1:50000", &format!("198.51.100.2:{port}"))
}

/// A client inside with IPv6.
pub(crate) fn client_inside_v6(port: u16) -> Endpoints {
    endpoints("[2001:db8:2::31]:40000", "203.0.113.1:50000", &format!("198.51.100.2:{port}"))
}

/// A server inside behind a static mapping.
pub(crate) fn server_inside(port: u16) -> Endpoints {
    let (internal, external) = (format!("10.0.0.80:{port}"), format!("203.0.113.9:{port}"));
    endpoints(&internal, &external, "198.51.100.2:40000")
}

/// A TCP expectation that one flow uses up, as FTP makes it.
pub(crate) fn once(internal: &str, remote: &str, lifetime: u16) -> Expectation {
    Expectation {
        protocol: 6,
        remote: Some(remote.parse().unwrap()),
        remote_port: 0,
        internal: internal.parse().unwrap(),
        wanted: Wanted::AddressOfFlow,
        lifetime,
        uses: Uses::Once,
    }
}
