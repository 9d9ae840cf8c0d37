//! Expectations: permissions for one future flow, and the trait by which the framework asks the
//! translator for them.

use crate::Side;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// The external endpoint that an expectation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wanted {
    /// A port of the control flow's external address.
    AddressOfFlow,
    /// The control flow's own external endpoint: its mapping admits one more remote endpoint.
    EndpointOfFlow,
    /// An even port of the control flow's external address, and the odd port above it for the
    /// internal port above (RTP and RTCP, RFC 3550 section 11).
    Pair,
    /// A Call ID of PPTP that no other call between the control flow's external address and its
    /// remote address has. It is the port of the endpoint, and that of the internal endpoint is the
    /// internal host's Call ID.
    CallId,
}

/// What a control connection of PPTP says about one of its calls, or asks. Each step that knows the
/// call has a number as its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// Which Call ID of the internal host is this external one?
    Internal(u16),
    /// Which Call ID of the internal host does the call of this remote Call ID have?
    OfPeer(u16),
    /// The call with this internal Call ID has this remote one. The answer is the external one.
    Peer {
        /// The internal host's Call ID.
        internal: u16,
        /// The remote host's.
        peer: u16,
    },
    /// A host wants the call with this internal Call ID to end. The answer is the external one.
    Clear(u16),
    /// The call with this internal Call ID has ended. The answer is the external one.
    End(u16),
    /// The control connection starts: it has no calls. There is no answer.
    Restart,
}

/// How often an expectation may become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uses {
    /// The first flow uses it up.
    Once,
    /// Any number of flows until the end of the lifetime.
    Many,
}

/// A permission for one future flow from the outside to an internal endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expectation {
    /// IP protocol number of the expected flow.
    pub protocol: u8,
    /// The remote address; `None`: any.
    pub remote: Option<Ipv4Addr>,
    /// The remote port; 0: any.
    pub remote_port: u16,
    /// The internal endpoint.
    pub internal: SocketAddr,
    /// The external endpoint that it needs.
    pub wanted: Wanted,
    /// Lifetime, seconds.
    pub lifetime: u16,
    /// How often it may be used.
    pub uses: Uses,
}

/// Endpoints of a control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// The internal endpoint, of either family.
    pub internal: SocketAddr,
    /// The external endpoint of its mapping.
    pub external: SocketAddrV4,
    /// The remote endpoint, as seen outside.
    pub remote: SocketAddrV4,
    /// The remote endpoint as the internal host knows it.
    pub remote_inside: SocketAddr,
    /// Number of the realm that the internal endpoint is in.
    pub realm: u16,
    /// Number of an internal host with an IPv4 address, if its realm has numbers: hosts behind
    /// several B4s may have one internal endpoint.
    pub number: Option<Ipv4Addr>,
}

impl Endpoints {
    /// The internal endpoint with the number of its host, if the host has one. `None`: the host has
    /// an IPv6 address.
    pub fn numbered(&self) -> Option<SocketAddrV4> {
        match self.internal {
            SocketAddr::V4(end) => {
                Some(SocketAddrV4::new(self.number.unwrap_or(*end.ip()), end.port()))
            }
            SocketAddr::V6(_) => None,
        }
    }
}

/// [`Endpoints`] in 54 bytes: addresses of IPv6 without flow labels and scopes, which no translated
/// packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedEndpoints {
    internal: (PackedHost, u16),
    remote_inside: (IpAddr, u16),
    external: SocketAddrV4,
    remote: SocketAddrV4,
    realm: u16,
}

const _: () = assert!(size_of::<PackedEndpoints>() <= 54);

/// An internal host: its address, and with IPv4 its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackedHost {
    Ipv4(Ipv4Addr, Option<Ipv4Addr>),
    Ipv6(Ipv6Addr),
}

impl From<Endpoints> for PackedEndpoints {
    fn from(ends: Endpoints) -> Self {
        let Endpoints { internal, external, remote, remote_inside, realm, number } = ends;
        let host = match internal.ip() {
            IpAddr::V4(address) => PackedHost::Ipv4(address, number),
            IpAddr::V6(address) => PackedHost::Ipv6(address),
        };
        let remote_inside = (remote_inside.ip(), remote_inside.port());
        Self { internal: (host, internal.port()), remote_inside, external, remote, realm }
    }
}

impl From<PackedEndpoints> for Endpoints {
    fn from(packed: PackedEndpoints) -> Self {
        let PackedEndpoints { internal, remote_inside, external, remote, realm } = packed;
        let (host, port) = internal;
        let (address, number) = match host {
            PackedHost::Ipv4(address, number) => (address.into(), number),
            PackedHost::Ipv6(address) => (address.into(), None),
        };
        let (internal, remote_inside) = (SocketAddr::new(address, port), remote_inside.into());
        Self { internal, external, remote, remote_inside, realm, number }
    }
}

/// A control flow that a message of another one names, and that the same protocol reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FurtherFlow {
    /// The side of the server, which waits for the flow.
    pub server: Side,
    /// The server's endpoint, as it is outside.
    pub end: SocketAddrV4,
    /// The internal endpoint: of a client inside, only its address counts.
    pub internal: SocketAddr,
}

/// The address of a host on the other side of the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counterpart {
    /// The address.
    pub address: Ipv4Addr,
    /// True if the address has no other counterpart.
    pub is_one_to_one: bool,
}

/// The translator's ports and addresses, as a protocol needs them.
pub trait Ports {
    /// Makes the expectation for a control flow. The answer is the external endpoint of the
    /// expected flow. An internal endpoint that already has one keeps it, so that a message that
    /// comes again, or a renewal, changes nothing. An expectation that lasts longer keeps its time.
    /// `None`: there is no port, or the subscriber is at its quota.
    fn expect(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4>;

    /// Limits an expectation for any remote address to that of `wanted`, or adds the address to an
    /// expectation that was limited. Its time stays, and no port is opened. The answer is the
    /// external endpoint. `None`: there is no such expectation, or the address is not new.
    fn limit(&mut self, flow: &Endpoints, wanted: &Expectation) -> Option<SocketAddrV4>;

    /// Lets an expectation that admits only the remote address of `wanted` end after the lifetime
    /// of `wanted`, if it would end later. What other control flows keep is not shortened.
    fn shorten(&mut self, flow: &Endpoints, wanted: &Expectation);

    /// Ends an expectation, unless other control flows keep it.
    fn withdraw(&mut self, flow: &Endpoints, wanted: &Expectation);

    /// The address by which the other side reaches a host that one side names, always and by the
    /// configuration. `None`: it is the same address, or there is none.
    fn counterpart(&self, flow: &Endpoints, from: Side, address: Ipv4Addr) -> Option<Counterpart>;

    /// The address of a remote host in the other family, for a control flow between families: the
    /// IPv4 address of one that the internal host knows by IPv6, and back. `None`: packets of the
    /// internal host do not reach it.
    fn across(&self, _flow: &Endpoints, _address: IpAddr) -> Option<IpAddr> {
        None
    }

    /// Takes a step of a call of PPTP. Calls begin by [`Ports::expect`] with [`Wanted::CallId`].
    /// `None`: the control flow has no such call.
    fn call(&mut self, _flow: &Endpoints, _step: CallStep) -> Option<u16> {
        None
    }

    /// Has the protocol of a flow read a further one over TCP between the same hosts, if it begins
    /// within `lifetime` seconds. False: there is no room.
    fn follow(&mut self, _flow: &Endpoints, _further: &FurtherFlow, _lifetime: u16) -> bool {
        true
    }
}
