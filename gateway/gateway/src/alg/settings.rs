//! Settings of application-level gateways: which protocols are on, and the ports of their servers.

use natgate_engine::Limits;
use natgate_payload::{Kind, Payloads};
use natgate_wire::protocol::{TCP, UDP};

/// Mappings that hosts and application-level gateways may request, if no table says another number.
const REQUESTED_MAPPINGS: u32 = 65_536;

/// A number for each protocol, in the order of [`Kind::ALL`].
pub(crate) type AlgSums = [u32; Kind::ALL.len()];

/// Ports of the servers of each protocol; a protocol without ports is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlgSettings {
    ports: Vec<(Kind, Vec<u16>)>,
    /// Most control flows of a worker.
    flows: u32,
}

impl Default for AlgSettings {
    fn default() -> Self {
        Self { ports: Vec::new(), flows: natgate_payload::Limits::default().flows }
    }
}

impl AlgSettings {
    /// Sets the number of control flows that a worker has room for.
    pub fn set_flows(&mut self, flows: u32) {
        self.flows = flows;
    }

    /// The number of control flows that a worker has room for.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// Bytes of memory for control flows of a number of workers, when all places and buffers are
    /// used; 0 if no protocol is on.
    pub fn memory(&self, workers: usize) -> u64 {
        let limits = natgate_payload::Limits { flows: self.flows, ..Default::default() };
        if self.is_off() { 0 } else { workers.max(1) as u64 * Payloads::memory(limits) }
    }

    /// The usual ports of a protocol's servers.
    pub fn usual_ports(kind: Kind) -> &'static [u16] {
        match kind {
            Kind::Ftp => &[21],
            Kind::Tftp => &[69],
            Kind::Sip => &[5060],
            Kind::Rtsp => &[554],
            Kind::Irc => &[6667],
            Kind::Dns => &[53],
            Kind::Pptp => &[1723],
            Kind::H323 => &[1720, 1719],
        }
    }

    /// Turns a protocol on, for servers at these ports; without ports, off.
    //= rfc4787#REQ-10a
    pub fn set(&mut self, kind: Kind, ports: Vec<u16>) {
        self.ports.retain(|(other, _)| *other != kind);
        if !ports.is_empty() {
            self.ports.push((kind, ports));
        }
    }

    /// Adds the ports of other settings.
    pub(crate) fn add(&mut self, other: &Self) {
        for (kind, ports) in other.iter() {
            let mut all = self.ports(kind).to_vec();
            all.extend(ports.iter().filter(|port| !self.ports(kind).contains(port)));
            self.set(kind, all);
        }
    }

    fn ports(&self, kind: Kind) -> &[u16] {
        let mut all = self.iter().filter(|(of, _)| *of == kind);
        all.next().map_or(&[], |(_, ports)| ports)
    }

    /// True if a protocol is on.
    pub fn has(&self, kind: Kind) -> bool {
        !self.ports(kind).is_empty()
    }

    /// True if no protocol is on.
    pub fn is_off(&self) -> bool {
        self.ports.is_empty()
    }

    /// The protocols that are on, with the ports of their servers.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &[u16])> {
        self.ports.iter().map(|(kind, ports)| (*kind, &ports[..]))
    }

    /// A sum over the ports of each protocol's servers; 0: the protocol is off. Two nodes of a pair
    /// compare them.
    pub(crate) fn sums(&self) -> AlgSums {
        Kind::ALL.map(|kind| {
            let mut ports = self.ports(kind).to_vec();
            ports.sort_unstable();
            let bytes: Vec<u8> = ports.iter().flat_map(|port| port.to_le_bytes()).collect();
            if bytes.is_empty() { 0 } else { crc32fast::hash(&bytes) | 1 }
        })
    }

    /// Has the engine keep room for expectations, unless it keeps room for requested mappings
    /// already.
    pub fn reserve(&self, limits: &mut Limits) {
        if !self.is_off() && limits.explicit_mappings == 0 {
            limits.explicit_mappings = REQUESTED_MAPPINGS;
        }
    }

    /// The protocol of servers at a port.
    pub(crate) fn kind(&self, protocol: u8, port: u16) -> Option<Kind> {
        let mut all =
            self.iter().filter(|(kind, ports)| carries(protocol, *kind) && ports.contains(&port));
        all.next().map(|(kind, _)| kind)
    }

    /// The protocol that has a port already, so that another one cannot have it.
    pub fn rival(&self, kind: Kind, port: u16) -> Option<Kind> {
        let carriers = [TCP, UDP].into_iter().filter(|protocol| carries(*protocol, kind));
        carriers.filter_map(|protocol| self.kind(protocol, port)).find(|other| *other != kind)
    }
}

/// The protocols that may take the flows of a rule. Rules have it as their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleAlgs(u16);

const _: () = assert!(Kind::ALL.len() < 15);

impl RuleAlgs {
    /// Tells a rule that names no protocol from a rule that says nothing.
    const IS_SAID: u16 = 1 << 15;

    /// These protocols and no others.
    pub fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self(kinds.into_iter().fold(Self::IS_SAID, |all, kind| all | 1 << kind as u16))
    }

    /// What the mark of a rule says. `None`: nothing, so that any protocol may take the flows.
    pub fn of_mark(mark: u16) -> Option<Self> {
        (mark & Self::IS_SAID != 0).then_some(Self(mark))
    }

    /// The mark for a rule.
    pub fn mark(self) -> u16 {
        self.0
    }

    /// True if a protocol may take the flows.
    pub fn has(self, kind: Kind) -> bool {
        self.0 >> kind as u16 & 1 == 1
    }

    /// The names of the protocols.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind)).map(Kind::name)
    }
}

/// True if an IP protocol carries messages of a protocol.
fn carries(protocol: u8, kind: Kind) -> bool {
    match kind {
        Kind::Tftp => protocol == UDP,
        Kind::Sip | Kind::Dns | Kind::H323 => protocol == UDP || protocol == TCP,
        Kind::Ftp | Kind::Rtsp | Kind::Irc | Kind::Pptp => protocol == TCP,
    }
}
